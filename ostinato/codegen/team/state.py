"""Memory that the threads of a team share."""

from __future__ import annotations

# Variables that threads write at the same time have cache lines of their own.
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
@team_job = internal global { ptr, ptr, i64, i64, i64, i64 } zeroinitializer, align 64
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

declare i64 @llvm.ctpop.i64(i64)
"""
