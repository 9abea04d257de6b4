"""Clocks: code that measures the time of each kernel, for `ostinato profile` alone.

The clock is read behind every kernel, and the time since the last reading is counted for that
kernel: so is the loop around it and anything else between the two readings, so that all times
together are the time of the call. Each thread has a record of its own in `TABLE`, of `words` words,
and also reads the clock behind every wait for other threads. The record begins with `HEAD` words:
the clock at the last reading, how many events were written, how many there is room for, and their
address; then come two words for each kernel, ticks and calls, and two for waiting. An event is the
clock and the number of a kernel, or, for waiting, the number behind the last one.
"""

from __future__ import annotations

from ostinato.codegen.processor import processor
from ostinato.codegen.target import Target
from ostinato.program.nodes import Program

TABLE = "clocked"
HEAD = 4
# Words of a cache line, which threads should not share.
_LINE = 8
FIRST = "@clocked"

_ASSEMBLY = """
@clocked = global [WORDS x i64] zeroinitializer, align 64

define internal void @clock.begin(ptr %clocked) nounwind noinline {
  %now = call i64 @clock()
  store i64 %now, ptr %clocked
  ret void
}

define internal void @clock.read(ptr %clocked, i64 %kernel) nounwind noinline {
  %now = call i64 @clock()
  %before = load i64, ptr %clocked
  store i64 %now, ptr %clocked
  %passed = sub i64 %now, %before
  %twice = mul i64 %kernel, 2
  %place = add i64 %twice, 4
  %ticks.at = getelementptr i64, ptr %clocked, i64 %place
  %ticks = load i64, ptr %ticks.at
  %ticks.more = add i64 %ticks, %passed
  store i64 %ticks.more, ptr %ticks.at
  %calls.at = getelementptr i64, ptr %ticks.at, i64 1
  %calls = load i64, ptr %calls.at
  %calls.more = add i64 %calls, 1
  store i64 %calls.more, ptr %calls.at
  %written.at = getelementptr i64, ptr %clocked, i64 1
  %written = load i64, ptr %written.at
  %room.at = getelementptr i64, ptr %clocked, i64 2
  %room = load i64, ptr %room.at
  %fits = icmp slt i64 %written, %room
  br i1 %fits, label %write, label %done
write:
  %events.at = getelementptr i64, ptr %clocked, i64 3
  %events = load ptr, ptr %events.at
  %first = mul i64 %written, 2
  %event.at = getelementptr i64, ptr %events, i64 %first
  store i64 %now, ptr %event.at
  %number.at = getelementptr i64, ptr %event.at, i64 1
  store i64 %kernel, ptr %number.at
  %written.more = add i64 %written, 1
  store i64 %written.more, ptr %written.at
  br label %done
done:
  ret void
}
"""


def numbers(program: Program) -> dict[str, int]:
    """The number of each kernel, by name."""
    return {kernel.name: number for number, kernel in enumerate(program.kernels())}


def words(kernels: int) -> int:
    """Words of a thread's record."""
    return -(-(HEAD + 2 * (kernels + 1)) // _LINE) * _LINE


def assembly(program: Program, target: Target, threads: int) -> str:
    """The records and functions that a module with clocks needs, for at most `threads` threads.

    With more than one thread the module has the functions of the processor already.
    """
    count = threads * words(len(numbers(program)))
    clock = processor(target.architecture).assembly if threads == 1 else ""
    return clock + _ASSEMBLY.replace("WORDS", str(count))


def record(kernels: int, thread: str) -> str:
    """The address of a thread's record, as an instruction without its name."""
    return f"getelementptr [{words(kernels)} x i64], ptr {FIRST}, i64 {thread}"


def begin(record: str = FIRST) -> str:
    """The instruction at which the time of a thread begins."""
    return f"call void @clock.begin(ptr {record})"


def read(number: int, record: str = FIRST) -> str:
    """The instruction behind a kernel; with the number after the last kernel's, behind waiting."""
    return f"call void @clock.read(ptr {record}, i64 {number})"
