"""The other threads: from sleep to sleep, and how the team begins and ends."""

from __future__ import annotations

WORKERS = """define ptr @team_work(ptr %number) nounwind {
entry:
  %round = alloca i64
  %own = ptrtoint ptr %number to i64
  %bit = shl i64 1, %own
  %lower = sub i64 %bit, 2
  %symbols.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 1
  %call.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 2
  %number.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 3
  %mode.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 4
  %last.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 5
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %job, %sign.in ], [ %done, %run ]
  br label %spin
spin:
  %n = phi i64 [ 0, %idle ], [ %n.next, %relax ]
  %m = phi i64 [ 0, %idle ], [ %m.next, %relax ]
  %job.spun = load atomic i64, ptr @team_published seq_cst, align 8
  %is.same = icmp eq i64 %job.spun, %seen
  br i1 %is.same, label %check, label %look
check:
  %taken = load atomic i64, ptr @team_taken monotonic, align 8
  %is.free = icmp eq i64 %taken, 0
  %n.more = add i64 %n, 1
  %n.next = select i1 %is.free, i64 %n.more, i64 0
  %m.next = add i64 %m, %taken
  %is.idle = icmp ugt i64 %n, JOB_SPINS
  %is.outside = icmp ugt i64 %m, BUSY_SPINS
  %is.long = or i1 %is.idle, %is.outside
  br i1 %is.long, label %lie.down, label %relax
relax:
  call void @pause()
  br label %spin
lie.down:
  call void @team_lock()
  %sleeping = atomicrmw add ptr @team_sleeping, i64 1 seq_cst
  br label %awake
awake:
  %job.slept = load atomic i64, ptr @team_published seq_cst, align 8
  %is.still = icmp eq i64 %job.slept, %seen
  br i1 %is.still, label %sleep, label %get.up
sleep:
  call void @team_sleep()
  br label %awake
get.up:
  %risen = atomicrmw sub ptr @team_sleeping, i64 1 seq_cst
  call void @team_unlock()
  br label %look
look:
  %job = phi i64 [ %job.spun, %spin ], [ %job.slept, %get.up ]
  %last = load i64, ptr %last.at
  %is.over = icmp ne i64 %last, 0
  br i1 %is.over, label %over, label %sign.in
sign.in:
  ; Nothing changes any more once nobody can sign in.
  %before = load atomic i64, ptr @team_present acquire, align 8
  %closed.before = and i64 %before, 1
  %is.late = icmp ne i64 %closed.before, 0
  br i1 %is.late, label %idle, label %sign
sign:
  %with.me = or i64 %before, %bit
  %signing = cmpxchg ptr @team_present, i64 %before, i64 %with.me acq_rel monotonic
  %is.signed = extractvalue { i64, i1 } %signing, 1
  br i1 %is.signed, label %await, label %sign.in
await:
  %k = phi i64 [ 0, %sign ], [ %k.next, %await.relax ], [ %k.next, %await.yield ]
  %present = load atomic i64, ptr @team_present acquire, align 8
  %closed = and i64 %present, 1
  %is.closed = icmp ne i64 %closed, 0
  br i1 %is.closed, label %run, label %await.check
await.check:
  %k.next = add i64 %k, 1
  %is.slow = icmp ugt i64 %k, SPINS
  br i1 %is.slow, label %await.yield, label %await.relax
await.relax:
  call void @pause()
  br label %await
await.yield:
  call void @team_yield()
  br label %await
run:
  %before.me = and i64 %present, %lower
  %rank = call i64 @llvm.ctpop.i64(i64 %before.me)
  %share = add i64 %rank, 1
  ; With the bit that says closed this counts thread 0, too.
  %count = call i64 @llvm.ctpop.i64(i64 %present)
  %done = load i64, ptr %number.at
  %buffers = load ptr, ptr @team_job
  %symbols = load ptr, ptr %symbols.at
  %call = load i64, ptr %call.at
  %mode = load i64, ptr %mode.at
  call void @set_mode(i64 %mode)
  store i64 0, ptr %round
  %code = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 %share, i64 %count,
      ptr null, ptr @team_stop)
  %left = atomicrmw add ptr @team_left, i64 1 acq_rel
  br label %idle
over:
  ret ptr null
}

define void @team_open() nounwind {
  call void @team_prepare()
  ret void
}

define void @team_lead(i64 %count) nounwind {
  store atomic i64 %count, ptr @team_count seq_cst, align 8
  ret void
}

define i64 @team_jobs() nounwind {
  %jobs = load atomic i64, ptr @team_shared monotonic, align 8
  ret i64 %jobs
}

define void @team_end() nounwind {
entry:
  store atomic i64 1, ptr @team_count seq_cst, align 8
  br label %take
take:
  %pair = cmpxchg ptr @team_taken, i64 0, i64 1 acq_rel monotonic
  %is.taken = extractvalue { i64, i1 } %pair, 1
  br i1 %is.taken, label %tell, label %wait
wait:
  call void @team_yield()
  br label %take
tell:
  %last.at = getelementptr { ptr, ptr, i64, i64, i64, i64 }, ptr @team_job, i64 0, i32 5
  store i64 1, ptr %last.at
  call void @team_publish(i1 1)
  ret void
}
"""
