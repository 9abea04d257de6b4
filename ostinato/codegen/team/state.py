"""Memory that the threads of a team share, and instructions by kind of processor."""

from __future__ import annotations

# What threads write at the same time has a cache line of its own. No system's mutex or condition
# variable is larger than 128 bytes.
GLOBALS = """
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

X86 = """
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

AARCH64 = """
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
