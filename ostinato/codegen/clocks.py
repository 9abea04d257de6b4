"""Clocks: code that tells how long each kernel took, for `ostinato profile` alone.

The clock is read behind every kernel, and what has passed since it was read before belongs to that
kernel: the loop around it and whatever else lies between the two counts as its time, so that all
times together are the time of the call. The record `TABLE` begins with `HEAD` words: the clock at
the last reading, how many events were written, how many there is room for, and their address; then
come two words for each kernel, ticks and calls. An event is the clock and the number of a kernel.
"""

from __future__ import annotations

from ostinato.codegen.target import Target
from ostinato.program.nodes import Program

TABLE = "clocked"
HEAD = 4
BEGIN = "call void @clock.begin()"

_ASSEMBLY = """
@clocked = global [WORDS x i64] zeroinitializer
declare i64 @CLOCK()

define internal void @clock.begin() nounwind noinline {
  %now = call i64 @CLOCK()
  store i64 %now, ptr @clocked
  ret void
}

define internal void @clock.read(i64 %kernel) nounwind noinline {
  %now = call i64 @CLOCK()
  %before = load i64, ptr @clocked
  store i64 %now, ptr @clocked
  %passed = sub i64 %now, %before
  %twice = mul i64 %kernel, 2
  %place = add i64 %twice, 4
  %ticks.at = getelementptr i64, ptr @clocked, i64 %place
  %ticks = load i64, ptr %ticks.at
  %ticks.more = add i64 %ticks, %passed
  store i64 %ticks.more, ptr %ticks.at
  %calls.at = getelementptr i64, ptr %ticks.at, i64 1
  %calls = load i64, ptr %calls.at
  %calls.more = add i64 %calls, 1
  store i64 %calls.more, ptr %calls.at
  %written.at = getelementptr i64, ptr @clocked, i64 1
  %written = load i64, ptr %written.at
  %room.at = getelementptr i64, ptr @clocked, i64 2
  %room = load i64, ptr %room.at
  %fits = icmp slt i64 %written, %room
  br i1 %fits, label %write, label %done
write:
  %events.at = getelementptr i64, ptr @clocked, i64 3
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


def assembly(program: Program, target: Target) -> str:
    """The record and the functions that a module with clocks needs."""
    words = HEAD + 2 * len(numbers(program))
    # On AArch64 the counter of cycles is the kernel's alone.
    clock = "llvm.readcyclecounter" if target.triple.startswith("x86") else _STEADY
    return _ASSEMBLY.replace("WORDS", str(words)).replace("CLOCK", clock)


def read(number: int) -> str:
    """The instruction behind a kernel."""
    return f"call void @clock.read(i64 {number})"


_STEADY = "llvm.readsteadycounter"
