"""How threads sleep and wake each other: a record for each kind of operating system.

The assembly of a record defines, over one lock and one queue of sleepers,

    `void team_prepare()`    comes before all others
    `void team_lock()`
    `void team_unlock()`
    `void team_sleep()`      with the lock, which is free while this thread sleeps; may end early
    `void team_wake_all()`
    `void team_yield()`      another thread may have this processor
"""

from __future__ import annotations

from ostinato.records import dataclass


@dataclass(frozen=True)
class System:
    """A kind of operating system; `imports` are the functions of it that the assembly calls."""

    imports: tuple[str, ...]
    assembly: str


# No system's mutex or condition variable is larger than 128 bytes.
_POSIX = System(
    (
        "pthread_mutex_init",
        "pthread_cond_init",
        "pthread_mutex_lock",
        "pthread_mutex_unlock",
        "pthread_cond_wait",
        "pthread_cond_broadcast",
        "sched_yield",
    ),
    """
@team_mutex = internal global [16 x i64] zeroinitializer, align 64
@team_sleepers = internal global [16 x i64] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()

define internal void @team_prepare() nounwind {
  %mutex = call i32 @pthread_mutex_init(ptr @team_mutex, ptr null)
  %sleepers = call i32 @pthread_cond_init(ptr @team_sleepers, ptr null)
  ret void
}

define internal void @team_lock() nounwind {
  %locked = call i32 @pthread_mutex_lock(ptr @team_mutex)
  ret void
}

define internal void @team_unlock() nounwind {
  %unlocked = call i32 @pthread_mutex_unlock(ptr @team_mutex)
  ret void
}

define internal void @team_sleep() nounwind {
  %woken = call i32 @pthread_cond_wait(ptr @team_sleepers, ptr @team_mutex)
  ret void
}

define internal void @team_wake_all() nounwind {
  %woken = call i32 @pthread_cond_broadcast(ptr @team_sleepers)
  ret void
}

define internal void @team_yield() nounwind {
  %yielded = call i32 @sched_yield()
  ret void
}
""",
)

# Slim reader/writer locks and condition variables are pointers, null at first.
WINDOWS = System(
    (
        "AcquireSRWLockExclusive",
        "ReleaseSRWLockExclusive",
        "SleepConditionVariableSRW",
        "WakeAllConditionVariable",
        "SwitchToThread",
    ),
    """
@team_mutex = internal global ptr null, align 64
@team_sleepers = internal global ptr null, align 64

declare void @AcquireSRWLockExclusive(ptr)
declare void @ReleaseSRWLockExclusive(ptr)
declare i32 @SleepConditionVariableSRW(ptr, ptr, i32, i32)
declare void @WakeAllConditionVariable(ptr)
declare i32 @SwitchToThread()

define internal void @team_prepare() nounwind {
  ret void
}

define internal void @team_lock() nounwind {
  call void @AcquireSRWLockExclusive(ptr @team_mutex)
  ret void
}

define internal void @team_unlock() nounwind {
  call void @ReleaseSRWLockExclusive(ptr @team_mutex)
  ret void
}

; Without limit of time, and as the lock was taken: for writing.
define internal void @team_sleep() nounwind {
  %woken = call i32 @SleepConditionVariableSRW(ptr @team_sleepers, ptr @team_mutex, i32 -1, i32 0)
  ret void
}

define internal void @team_wake_all() nounwind {
  call void @WakeAllConditionVariable(ptr @team_sleepers)
  ret void
}

define internal void @team_yield() nounwind {
  %switched = call i32 @SwitchToThread()
  ret void
}
""",
)


def system(name: str) -> System:
    """The record of a `Target.system`."""
    return WINDOWS if name == "windows" else _POSIX
