"""LLVM assembly by which the threads of one compiled function meet: generic over all functions.

A module of several threads has its own team: thread 0 is whoever calls `entry`, the others sleep
in `team_work`. A call publishes a job. Those who sign in for it in time, about a microsecond, take
part: all run the function `share` with their number, with how many they are, and with what its
safepoints need (`ostinato.codegen.safepoints`): thread 0 asks, the others are told. Who comes too
late, because he has to be woken or his processor does something else, is not waited for. Exported
are

    `void team_open()`              comes before everything else
    `ptr team_work(ptr number)`     what a thread with this number, from 1 on, runs until the end
    `void team_lead(i64 count)`     from now on calls use this many threads; 1 when it was loaded
    `i64 team_jobs()`               how many calls have been shared
    `void team_end()`               waits for a running call, then makes `team_work` return

A call runs on one thread while another call has the team. Sleepers are waited for by calls that
gain more than waking takes, which are `patient`. Other calls wake them for the calls to come, if
the one before ended less than its own time ago, and run on one thread.

After a call that went wrong some run on one thread at once, without looking at the others: 1, then
3, 7, .. as long as it goes wrong. That is when thread 0 spent more than a third of the call waiting
for others, because the machine is busy with something else, and when those who were woken did not
come. In the first case they run on one thread for some time, too, in proportion to what was lost.

Waiting spins for some microseconds first. Then workers without a job sleep on a condition variable,
and threads inside of a job yield the processor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.codegen.safepoints import STOPPED, open_poll

if TYPE_CHECKING:
    from ostinato.codegen.target import Target

EXPORTS = ("team_open", "team_work", "team_lead", "team_jobs", "team_end")
IMPORTS = (
    "pthread_mutex_init",
    "pthread_cond_init",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_wait",
    "pthread_cond_broadcast",
    "sched_yield",
)

# For this many times the time that was lost waiting calls run on one thread: a sixteenth is lost at
# most, however busy the machine is.
LOSSES = 16

# Most threads of a call: a bit for each in a word.
MOST = 63

# Rounds of spinning, of some 30 ns each: for the next job between calls, for it during a call that
# this thread came too late for, and for the other threads in a job.
JOB_SPINS = 3000
BUSY_SPINS = 100_000
SPINS = 300
# Rounds for which others may sign in, those who were woken included; behind `SPINS` they yield.
SIGN_SPINS = 60
WAKE_SPINS = 1000
# Ticks of waiting for others after which thread 0 asks whether to stop.
ASK_TICKS = 1 << 20
# Calls that may pass until others who were woken are there.
PATIENCE = 8
# Most calls that are made on one thread before the others are tried again.
MOST_ALONE = 255

# What threads write at the same time has a cache line of its own. No system's mutex or condition
# variable is larger than 128 bytes.
_GLOBALS = """
@team_published = internal global i64 0, align 64
@team_arrived = internal global i64 0, align 64
@team_left = internal global i64 0, align 64
; whether the threads of the job are to stop
@team_stop = internal global i64 0, align 64
@team_sleeping = internal global i64 0, align 64
@team_taken = internal global i64 0, align 64
@team_count = internal global i64 1, align 64
; who takes part in the job: bit `n` for thread n, bit 0 when nobody can sign in any more
@team_present = internal global i64 1, align 64
; buffers, symbols, number of the call, of the job, floating point mode, whether it is the last job
@team_job = internal global { ptr, ptr, i64, i64, i32, i32 } zeroinitializer, align 64
; of thread 0: ticks that it waited, calls to make alone, how many these were at first, until when
; calls are made alone, when it woke others for later calls, when the last call ended and what it
; took, how many were shared
@team_late = internal global i64 0, align 64
@team_alone = internal global i64 0
@team_penalty = internal global i64 0
@team_resume = internal global i64 0
@team_woke = internal global i64 0
@team_ended = internal global i64 0
@team_took = internal global i64 0
@team_shared = internal global i64 0
@team_mutex = internal global [16 x i64] zeroinitializer, align 64
@team_wake = internal global [16 x i64] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i64 @llvm.ctpop.i64(i64)
"""

_X86 = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare i64 @llvm.readcyclecounter()

define internal void @team_pause() alwaysinline nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @team_clock() nounwind {
  %now = call i64 @llvm.readcyclecounter()
  ret i64 %now
}

define internal void @team_save_mode(ptr %mode) nounwind {
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  ret void
}

define internal void @team_load_mode(ptr %mode) nounwind {
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}
"""

_AARCH64 = """
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.readsteadycounter()

define internal void @team_pause() alwaysinline nounwind {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define internal i64 @team_clock() nounwind {
  %now = call i64 @llvm.readsteadycounter()
  ret i64 %now
}

define internal void @team_save_mode(ptr %mode) nounwind {
  ret void
}

define internal void @team_load_mode(ptr %mode) nounwind {
  ret void
}
"""

_JOIN_POLL = open_poll("%record", "@team_stop")

_FUNCTIONS = f"""
; Waits until all of `%count` threads are here; whether to stop instead. `%round` counts the
; arrivals of earlier times.
define internal i1 @team_wait(ptr %round, i64 %share, i64 %count, ptr %poll) noinline nounwind {{
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
}}

; Waits until `%counter` is at least `%goal`; whether to stop instead. Thread 0 asks while it waits.
define internal i1 @team_reach(ptr %counter, i64 %goal, i64 %share, ptr %poll) noinline nounwind {{
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
  %is.long = icmp ugt i64 %n, {SPINS}
  br i1 %is.long, label %late, label %relax
relax:
  call void @team_pause()
  br label %spin
late:
  %start = call i64 @team_clock()
  br label %yield
yield:
  %asked = phi i64 [ %start, %late ], [ %asked, %again ], [ %now, %ask ]
  %ignored = call i32 @sched_yield()
  %arrived.late = load atomic i64, ptr %counter acquire, align 8
  %is.complete.late = icmp uge i64 %arrived.late, %goal
  br i1 %is.complete.late, label %account, label %again
again:
  %told = load atomic i64, ptr @team_stop monotonic, align 8
  %is.told = icmp ne i64 %told, 0
  %now = call i64 @team_clock()
  %since = sub i64 %now, %asked
  %is.due = icmp ugt i64 %since, {ASK_TICKS}
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
  %end = call i64 @team_clock()
  %waited = sub i64 %end, %start
  %late.before = load i64, ptr @team_late
  %late.after = add i64 %late.before, %waited
  store i64 %late.after, ptr @team_late
  br label %done
done:
  ret i1 false
}}

; Waits until the others have left the job, which thread 0 left with this code; what the call
; returns. It is asked whether to stop, unless it did already, and waited for all the same.
define internal i64 @team_join(i64 %code, i64 %others, ptr %record) noinline nounwind {{
entry:
{_JOIN_POLL}  %is.stopped = icmp eq i64 %code, {STOPPED}
  br i1 %is.stopped, label %wait, label %reach
reach:
  %stops = call i1 @team_reach(ptr @team_left, i64 %others, i64 0, ptr %poll)
  br i1 %stops, label %wait, label %done
wait:
  %left = load atomic i64, ptr @team_left acquire, align 8
  %is.complete = icmp uge i64 %left, %others
  br i1 %is.complete, label %stopped, label %yield
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
stopped:
  ret i64 {STOPPED}
done:
  ret i64 %code
}}

; A worker announces its sleep before it looks for a job once more, and a job is published before
; the sleepers are counted, so none is overlooked.
define internal void @team_publish(i1 %wakes) nounwind {{
  %number = atomicrmw add ptr @team_published, i64 1 seq_cst
  %sleeping = load atomic i64, ptr @team_sleeping seq_cst, align 8
  %is.asleep = icmp ne i64 %sleeping, 0
  %is.woken = and i1 %is.asleep, %wakes
  br i1 %is.woken, label %wake, label %done
wake:
  %locked = call i32 @pthread_mutex_lock(ptr @team_mutex)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @team_mutex)
  %woken = call i32 @pthread_cond_broadcast(ptr @team_wake)
  br label %done
done:
  ret void
}}

; Waits until all of `%all` have signed in, for so many rounds at most; who did.
define internal i64 @team_gather(i64 %all, i64 %rounds) nounwind {{
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
  %is.long = icmp ugt i64 %n, {SPINS}
  br i1 %is.long, label %yield, label %relax
relax:
  call void @team_pause()
  br label %look
yield:
  %ignored = call i32 @sched_yield()
  br label %look
close:
  %those = atomicrmw or ptr @team_present, i64 1 acq_rel
  ret i64 %those
}}

; The next calls are made alone, or fewer of them the next time.
define internal void @team_judge(i1 %is.bad) nounwind {{
  %penalty = load i64, ptr @team_penalty
  %twice = shl i64 %penalty, 1
  %more = or i64 %twice, 1
  %is.most = icmp ugt i64 %more, MOST_ALONE
  %more.bounded = select i1 %is.most, i64 MOST_ALONE, i64 %more
  %less = lshr i64 %penalty, 1
  %penalty.next = select i1 %is.bad, i64 %more.bounded, i64 %less
  store i64 %penalty.next, ptr @team_penalty
  %alone.next = select i1 %is.bad, i64 %more.bounded, i64 0
  store i64 %alone.next, ptr @team_alone
  ret void
}}

define internal i64 @team_call(
    ptr %buffers, ptr %symbols, i64 %call, ptr %record, i1 %patient
) nounwind {{
entry:
  %round = alloca i64
  %count = load atomic i64, ptr @team_count acquire, align 8
  %is.team = icmp ugt i64 %count, 1
  br i1 %is.team, label %take, label %alone
take:
  %pair = cmpxchg ptr @team_taken, i64 0, i64 1 acq_rel monotonic
  %is.taken = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %is.taken, label %ask, label %alone
ask:
  %left = load i64, ptr @team_alone
  %is.fine = icmp eq i64 %left, 0
  br i1 %is.fine, label %look, label %spare
look:
  %start = call i64 @team_clock()
  %resume = load i64, ptr @team_resume
  %is.early = icmp ult i64 %start, %resume
  br i1 %is.early, label %leave.alone, label %consider
spare:
  %left.next = sub i64 %left, 1
  store i64 %left.next, ptr @team_alone
  br label %leave.alone
leave.alone:
  store atomic i64 0, ptr @team_taken release, align 8
  br label %alone
alone:
  %code.alone = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 1, ptr %record, ptr null)
  ret i64 %code.alone
consider:
  %sleeping = load atomic i64, ptr @team_sleeping seq_cst, align 8
  %is.asleep = icmp ne i64 %sleeping, 0
  br i1 %is.asleep, label %asleep, label %together
asleep:
  %woke = load i64, ptr @team_woke
  %took.last = load i64, ptr @team_took
  %is.woken = icmp ne i64 %woke, 0
  br i1 %is.woken, label %expected, label %quiet
expected:
  %since = sub i64 %start, %woke
  %patience = mul i64 %took.last, {PATIENCE}
  %is.vain = icmp ugt i64 %since, %patience
  br i1 %is.vain, label %in.vain, label %by.itself
in.vain:
  store i64 0, ptr @team_woke
  call void @team_judge(i1 1)
  br label %by.itself
quiet:
  br i1 %patient, label %together, label %hurried
hurried:
  %ended = load i64, ptr @team_ended
  %gap = sub i64 %start, %ended
  %is.soon = icmp ult i64 %gap, %took.last
  br i1 %is.soon, label %rouse, label %by.itself
rouse:
  store i64 %start, ptr @team_woke
  call void @team_publish(i1 1)
  br label %by.itself
by.itself:
  %code.itself = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 1, ptr %record, ptr null)
  %end.itself = call i64 @team_clock()
  br label %leave
together:
  %symbols.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 1
  %call.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 2
  %number.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 3
  %mode.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 4
  %published = load atomic i64, ptr @team_published monotonic, align 8
  %number = add i64 %published, 1
  store ptr %buffers, ptr @team_job
  store ptr %symbols, ptr %symbols.at
  store i64 %call, ptr %call.at
  store i64 %number, ptr %number.at
  call void @team_save_mode(ptr %mode.at)
  store i64 0, ptr @team_late
  store i64 0, ptr %round
  store atomic i64 0, ptr @team_arrived release, align 8
  store atomic i64 0, ptr @team_left release, align 8
  store atomic i64 0, ptr @team_stop release, align 8
  store atomic i64 0, ptr @team_present release, align 8
  call void @team_publish(i1 1)
  %bits = shl i64 1, %count
  %all = sub i64 %bits, 2
  %rounds = select i1 %is.asleep, i64 WAKE_SPINS, i64 SIGN_SPINS
  %present = call i64 @team_gather(i64 %all, i64 %rounds)
  %others = call i64 @llvm.ctpop.i64(i64 %present)
  %several = add i64 %others, 1
  %is.one = icmp eq i64 %others, 0
  %one = zext i1 %is.one to i64
  %shared = load i64, ptr @team_shared
  %shared.more = add i64 %shared, 1
  %shared.next = sub i64 %shared.more, %one
  store i64 %shared.next, ptr @team_shared
  %is.unheard = and i1 %is.asleep, %is.one
  %woke.next = select i1 %is.unheard, i64 %start, i64 0
  store i64 %woke.next, ptr @team_woke
  %begun = call i64 @team_clock()
  %code.own = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 %several,
      ptr %record, ptr @team_stop)
  %code = call i64 @team_join(i64 %code.own, i64 %others, ptr %record)
  %end = call i64 @team_clock()
  %work = sub i64 %end, %begun
  %third = udiv i64 %work, 3
  %late = load i64, ptr @team_late
  %is.late = icmp ugt i64 %late, %third
  br i1 %is.one, label %leave, label %judge
judge:
  call void @team_judge(i1 %is.late)
  %lost = mul i64 %late, LOSSES
  %regained = add i64 %end, %lost
  %resume.next = select i1 %is.late, i64 %regained, i64 0
  store i64 %resume.next, ptr @team_resume
  br label %leave
leave:
  %code.any = phi i64 [ %code.itself, %by.itself ], [ %code, %together ], [ %code, %judge ]
  %end.any = phi i64 [ %end.itself, %by.itself ], [ %end, %together ], [ %end, %judge ]
  %took = sub i64 %end.any, %start
  store i64 %took, ptr @team_took
  store i64 %end.any, ptr @team_ended
  store atomic i64 0, ptr @team_taken release, align 8
  ret i64 %code.any
}}

define ptr @team_work(ptr %number) nounwind {{
entry:
  %round = alloca i64
  %own = ptrtoint ptr %number to i64
  %bit = shl i64 1, %own
  %lower = sub i64 %bit, 2
  %symbols.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 1
  %call.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 2
  %number.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 3
  %mode.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 4
  %last.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 5
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
  %is.idle = icmp ugt i64 %n, {JOB_SPINS}
  %is.outside = icmp ugt i64 %m, {BUSY_SPINS}
  %is.long = or i1 %is.idle, %is.outside
  br i1 %is.long, label %lie.down, label %relax
relax:
  call void @team_pause()
  br label %spin
lie.down:
  %locked = call i32 @pthread_mutex_lock(ptr @team_mutex)
  %sleeping = atomicrmw add ptr @team_sleeping, i64 1 seq_cst
  br label %awake
awake:
  %job.slept = load atomic i64, ptr @team_published seq_cst, align 8
  %is.still = icmp eq i64 %job.slept, %seen
  br i1 %is.still, label %sleep, label %get.up
sleep:
  %woken = call i32 @pthread_cond_wait(ptr @team_wake, ptr @team_mutex)
  br label %awake
get.up:
  %risen = atomicrmw sub ptr @team_sleeping, i64 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr @team_mutex)
  br label %look
look:
  %job = phi i64 [ %job.spun, %spin ], [ %job.slept, %get.up ]
  %last = load i32, ptr %last.at
  %is.over = icmp ne i32 %last, 0
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
  %is.signed = extractvalue {{ i64, i1 }} %signing, 1
  br i1 %is.signed, label %await, label %sign.in
await:
  %k = phi i64 [ 0, %sign ], [ %k.next, %await.relax ], [ %k.next, %await.yield ]
  %present = load atomic i64, ptr @team_present acquire, align 8
  %closed = and i64 %present, 1
  %is.closed = icmp ne i64 %closed, 0
  br i1 %is.closed, label %run, label %await.check
await.check:
  %k.next = add i64 %k, 1
  %is.slow = icmp ugt i64 %k, {SPINS}
  br i1 %is.slow, label %await.yield, label %await.relax
await.relax:
  call void @team_pause()
  br label %await
await.yield:
  %ignored = call i32 @sched_yield()
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
  call void @team_load_mode(ptr %mode.at)
  store i64 0, ptr %round
  %code = call i64 @share(
      ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 %share, i64 %count,
      ptr null, ptr @team_stop)
  %left = atomicrmw add ptr @team_left, i64 1 acq_rel
  br label %idle
over:
  ret ptr null
}}

define void @team_open() nounwind {{
  %mutex = call i32 @pthread_mutex_init(ptr @team_mutex, ptr null)
  %wake = call i32 @pthread_cond_init(ptr @team_wake, ptr null)
  ret void
}}

define void @team_lead(i64 %count) nounwind {{
  store atomic i64 %count, ptr @team_count seq_cst, align 8
  ret void
}}

define i64 @team_jobs() nounwind {{
  %jobs = load atomic i64, ptr @team_shared monotonic, align 8
  ret i64 %jobs
}}

define void @team_end() nounwind {{
entry:
  store atomic i64 1, ptr @team_count seq_cst, align 8
  br label %take
take:
  %pair = cmpxchg ptr @team_taken, i64 0, i64 1 acq_rel monotonic
  %is.taken = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %is.taken, label %tell, label %wait
wait:
  %ignored = call i32 @sched_yield()
  br label %take
tell:
  %last.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 5
  store i32 1, ptr %last.at
  call void @team_publish(i1 1)
  ret void
}}
"""


def assembly(target: Target) -> str:
    """What a module whose function `share` runs on several threads needs besides it."""
    machine = _AARCH64 if target.triple.startswith(("aarch64", "arm64")) else _X86
    functions = _FUNCTIONS
    for name in ("MOST_ALONE", "LOSSES", "SIGN_SPINS", "WAKE_SPINS"):
        functions = functions.replace(name, str(globals()[name]))
    return _GLOBALS + machine + functions
