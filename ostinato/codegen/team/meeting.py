"""How threads wait for each other, sign in for a job and leave it."""

from __future__ import annotations

MEETING = """
; Waits until all of `%count` threads are here; whether to stop instead. `%round` counts the
; arrivals of earlier times.
define internal i1 @team_wait(ptr %round, i64 %share, i64 %count, ptr %poll) noinline nounwind {
entry:
  %is.single = icmp ule i64 %count, 1
  br i1 %is.single, label %single, label %arrive
single:
  ret i1 false
arrive:
  %before = load i64, ptr %round
  %goal = add i64 %before, %count
  store i64 %goal, ptr %round
  %previous = atomicrmw add ptr @team_arrived, i64 1 acq_rel
  %stops = call i1 @team_reach(ptr @team_arrived, i64 %goal, i64 %share, ptr %poll)
  ret i1 %stops
}

; Waits until `%counter` is at least `%goal`; whether to stop instead. Thread 0 asks while it waits.
define internal i1 @team_reach(ptr %counter, i64 %goal, i64 %share, ptr %poll) noinline nounwind {
entry:
  %is.first = icmp eq i64 %share, 0
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %n.next, %relax ]
  %arrived = load atomic i64, ptr %counter acquire, align 8
  %is.complete = icmp uge i64 %arrived, %goal
  br i1 %is.complete, label %done, label %check
check:
  %n.next = add i64 %n, 1
  %is.long = icmp ugt i64 %n, SPINS
  br i1 %is.long, label %late, label %relax
relax:
  call void @pause()
  br label %spin
late:
  %start = call i64 @clock()
  br label %yield
yield:
  %asked = phi i64 [ %start, %late ], [ %asked, %again ], [ %now, %ask ]
  call void @team_yield()
  %arrived.late = load atomic i64, ptr %counter acquire, align 8
  %is.complete.late = icmp uge i64 %arrived.late, %goal
  br i1 %is.complete.late, label %account, label %again
again:
  %told = load atomic i64, ptr @team_stop monotonic, align 8
  %is.told = icmp ne i64 %told, 0
  %now = call i64 @clock()
  %since = sub i64 %now, %asked
  %is.due = icmp ugt i64 %since, ASK_TICKS
  %is.asking = and i1 %is.first, %is.due
  %is.either = or i1 %is.told, %is.asking
  br i1 %is.either, label %ask, label %yield
ask:
  %stops = call i1 @safepoint(ptr %poll)
  br i1 %stops, label %stopped, label %yield
stopped:
  ret i1 true
account:
  br i1 %is.first, label %add, label %done
add:
  %end = call i64 @clock()
  %waited = sub i64 %end, %start
  %late.before = load i64, ptr @team_late
  %late.after = add i64 %late.before, %waited
  store i64 %late.after, ptr @team_late
  br label %done
done:
  ret i1 false
}

; Waits until the others have left the job, which thread 0 left with this code; what the call
; returns. It is asked whether to stop, unless it did already, and waited for all the same.
define internal i64 @team_join(i64 %code, i64 %others, ptr %record) noinline nounwind {
entry:
JOIN_POLL
  %is.stopped = icmp eq i64 %code, STOPPED
  br i1 %is.stopped, label %wait, label %reach
reach:
  %stops = call i1 @team_reach(ptr @team_left, i64 %others, i64 0, ptr %poll)
  br i1 %stops, label %wait, label %done
wait:
  %left = load atomic i64, ptr @team_left acquire, align 8
  %is.complete = icmp uge i64 %left, %others
  br i1 %is.complete, label %stopped, label %yield
yield:
  call void @team_yield()
  br label %wait
stopped:
  ret i64 STOPPED
done:
  ret i64 %code
}

; A worker announces its sleep before it looks for a job once more, and a job is published before
; the sleepers are counted, so none is overlooked.
define internal void @team_publish(i1 %wakes) nounwind {
  %number = atomicrmw add ptr @team_published, i64 1 seq_cst
  %sleeping = load atomic i64, ptr @team_sleeping seq_cst, align 8
  %is.asleep = icmp ne i64 %sleeping, 0
  %is.woken = and i1 %is.asleep, %wakes
  br i1 %is.woken, label %wake, label %done
wake:
  call void @team_lock()
  call void @team_unlock()
  call void @team_wake_all()
  br label %done
done:
  ret void
}

; Waits until all of `%all` have signed in, for so many rounds at most; who did.
define internal i64 @team_gather(i64 %all, i64 %rounds) nounwind {
entry:
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n.next, %relax ], [ %n.next, %yield ]
  %present = load atomic i64, ptr @team_present acquire, align 8
  %is.complete = icmp eq i64 %present, %all
  br i1 %is.complete, label %close, label %check
check:
  %n.next = add i64 %n, 1
  %is.over = icmp uge i64 %n, %rounds
  br i1 %is.over, label %close, label %again
again:
  %is.long = icmp ugt i64 %n, SPINS
  br i1 %is.long, label %yield, label %relax
relax:
  call void @pause()
  br label %look
yield:
  call void @team_yield()
  br label %look
close:
  %those = atomicrmw or ptr @team_present, i64 1 acq_rel
  ret i64 %those
}

"""
