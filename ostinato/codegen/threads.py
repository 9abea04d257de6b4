"""LLVM assembly by which the threads of one compiled function meet: generic over all functions.

A module of several threads has its own team: thread 0 is whoever calls `entry`, the others sleep
in `team_work`. A call publishes a job; all run the function `share` with their number and with how
many they are. Exported are

    `void team_open()`              comes before everything else
    `ptr team_work(ptr number)`     what a thread with this number, from 1 on, runs until the end
    `void team_lead(i64 count)`     from now on calls use this many threads; 1 when it was loaded
    `i64 team_jobs()`               how many calls have been shared
    `void team_end()`               waits for a running call, then makes `team_work` return

A call runs on one thread while another call has the team, and for a while after thread 0 spent more
than a third of a call waiting for others: the machine is then busy with something else. Where
workers had to be woken first, the next call is tried as well before that is concluded.

Waiting spins for some microseconds first. Then workers without a job sleep on a condition variable,
and threads inside of a job yield the processor.
"""

from __future__ import annotations

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

# Rounds of spinning, of some 50 ns each: for the next job, and for the other threads in a job.
JOB_SPINS = 400
SPINS = 200
# Most calls that are made on one thread before the others are tried again.
MOST_ALONE = 255

# What threads write at the same time has a cache line of its own. No system's mutex or condition
# variable is larger than 128 bytes.
_GLOBALS = """
@team_published = internal global i64 0, align 64
@team_arrived = internal global i64 0, align 64
@team_sleeping = internal global i64 0, align 64
@team_taken = internal global i64 0, align 64
@team_count = internal global i64 1, align 64
; buffers, symbols, number of the call, of threads, floating point mode, whether it is the last job
@team_job = internal global { ptr, ptr, i64, i64, i32, i32 } zeroinitializer, align 64
; of thread 0: ticks that it waited, calls to make alone, how many these were at first, whether the
; last call was late because it woke others
@team_late = internal global i64 0, align 64
@team_alone = internal global i64 0
@team_penalty = internal global i64 0
@team_doubt = internal global i8 0
@team_mutex = internal global [16 x i64] zeroinitializer, align 64
@team_wake = internal global [16 x i64] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
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

_FUNCTIONS = f"""
; Waits until all of `%count` threads are here. `%round` counts the arrivals of earlier times.
define internal void @team_wait(ptr %round, i64 %share, i64 %count) noinline nounwind {{
entry:
  %is.single = icmp ule i64 %count, 1
  br i1 %is.single, label %done, label %arrive
arrive:
  %before = load i64, ptr %round
  %goal = add i64 %before, %count
  store i64 %goal, ptr %round
  %previous = atomicrmw add ptr @team_arrived, i64 1 acq_rel
  br label %spin
spin:
  %n = phi i64 [ 0, %arrive ], [ %n.next, %relax ]
  %arrived = load atomic i64, ptr @team_arrived acquire, align 8
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
  %ignored = call i32 @sched_yield()
  %arrived.late = load atomic i64, ptr @team_arrived acquire, align 8
  %is.complete.late = icmp uge i64 %arrived.late, %goal
  br i1 %is.complete.late, label %account, label %yield
account:
  %is.first = icmp eq i64 %share, 0
  br i1 %is.first, label %add, label %done
add:
  %end = call i64 @team_clock()
  %waited = sub i64 %end, %start
  %late.before = load i64, ptr @team_late
  %late.after = add i64 %late.before, %waited
  store i64 %late.after, ptr @team_late
  br label %done
done:
  ret void
}}

; A worker announces its sleep before it looks for a job once more, and a job is published before
; the sleepers, whose number is returned, are counted, so none is overlooked.
define internal i64 @team_publish() nounwind {{
  %number = atomicrmw add ptr @team_published, i64 1 seq_cst
  %sleeping = load atomic i64, ptr @team_sleeping seq_cst, align 8
  %is.awake = icmp eq i64 %sleeping, 0
  br i1 %is.awake, label %done, label %wake
wake:
  %locked = call i32 @pthread_mutex_lock(ptr @team_mutex)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @team_mutex)
  %woken = call i32 @pthread_cond_broadcast(ptr @team_wake)
  br label %done
done:
  ret i64 %sleeping
}}

define internal i64 @team_call(ptr %buffers, ptr %symbols, i64 %call) nounwind {{
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
  br i1 %is.fine, label %together, label %spare
spare:
  %left.next = sub i64 %left, 1
  store i64 %left.next, ptr @team_alone
  store atomic i64 0, ptr @team_taken release, align 8
  br label %alone
alone:
  %code.alone = call i64 @share(ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 1)
  ret i64 %code.alone
together:
  %start = call i64 @team_clock()
  %symbols.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 1
  %call.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 2
  %count.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 3
  %mode.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 4
  store ptr %buffers, ptr @team_job
  store ptr %symbols, ptr %symbols.at
  store i64 %call, ptr %call.at
  store i64 %count, ptr %count.at
  call void @team_save_mode(ptr %mode.at)
  store i64 0, ptr @team_late
  store i64 0, ptr %round
  store atomic i64 0, ptr @team_arrived release, align 8
  %sleeping = call i64 @team_publish()
  %code = call i64 @share(ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 0, i64 %count)
  call void @team_wait(ptr %round, i64 0, i64 %count)
  %end = call i64 @team_clock()
  %took = sub i64 %end, %start
  %third = udiv i64 %took, 3
  %late = load i64, ptr @team_late
  %is.late = icmp ugt i64 %late, %third
  %slept = icmp ne i64 %sleeping, 0
  %doubt = load i8, ptr @team_doubt
  %was.sure = icmp eq i8 %doubt, 0
  %excuse = and i1 %slept, %was.sure
  %is.excused = and i1 %is.late, %excuse
  %doubt.next = zext i1 %is.excused to i8
  store i8 %doubt.next, ptr @team_doubt
  br i1 %is.excused, label %leave, label %judge
judge:
  %penalty = load i64, ptr @team_penalty
  %twice = shl i64 %penalty, 1
  %more = or i64 %twice, 1
  %is.most = icmp ugt i64 %more, MOST_ALONE
  %more.bounded = select i1 %is.most, i64 MOST_ALONE, i64 %more
  %less = lshr i64 %penalty, 1
  %penalty.next = select i1 %is.late, i64 %more.bounded, i64 %less
  store i64 %penalty.next, ptr @team_penalty
  %alone.next = select i1 %is.late, i64 %more.bounded, i64 0
  store i64 %alone.next, ptr @team_alone
  br label %leave
leave:
  store atomic i64 0, ptr @team_taken release, align 8
  ret i64 %code
}}

define ptr @team_work(ptr %number) nounwind {{
entry:
  %round = alloca i64
  %share = ptrtoint ptr %number to i64
  %symbols.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 1
  %call.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 2
  %count.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 3
  %mode.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 4
  %last.at = getelementptr {{ ptr, ptr, i64, i64, i32, i32 }}, ptr @team_job, i64 0, i32 5
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %job, %run ]
  br label %spin
spin:
  %n = phi i64 [ 0, %idle ], [ %n.next, %relax ]
  %job.spun = load atomic i64, ptr @team_published seq_cst, align 8
  %is.same = icmp eq i64 %job.spun, %seen
  br i1 %is.same, label %check, label %look
check:
  %n.next = add i64 %n, 1
  %is.long = icmp ugt i64 %n, {JOB_SPINS}
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
  %left = atomicrmw sub ptr @team_sleeping, i64 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr @team_mutex)
  br label %look
look:
  %job = phi i64 [ %job.spun, %spin ], [ %job.slept, %get.up ]
  %last = load i32, ptr %last.at
  %is.over = icmp ne i32 %last, 0
  br i1 %is.over, label %over, label %run
run:
  %buffers = load ptr, ptr @team_job
  %symbols = load ptr, ptr %symbols.at
  %call = load i64, ptr %call.at
  %count = load i64, ptr %count.at
  call void @team_load_mode(ptr %mode.at)
  store i64 0, ptr %round
  %code = call i64 @share(ptr %buffers, ptr %symbols, i64 %call, ptr %round, i64 %share, i64 %count)
  %arrived = atomicrmw add ptr @team_arrived, i64 1 acq_rel
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
  %jobs = load atomic i64, ptr @team_published monotonic, align 8
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
  %sleeping = call i64 @team_publish()
  ret void
}}
"""


def assembly(target: Target) -> str:
    """What a module whose function `share` runs on several threads needs besides it."""
    machine = _AARCH64 if target.triple.startswith(("aarch64", "arm64")) else _X86
    functions = _FUNCTIONS.replace("MOST_ALONE", str(MOST_ALONE))
    return _GLOBALS + machine + functions
