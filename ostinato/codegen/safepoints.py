"""Safepoints: where long-running compiled code asks whether it should stop.

Functions count down estimated work (`ostinato.schedule.times`) and ask when `LIMIT` of it is done,
so that asking costs nothing, and code that is estimated to be short has no safepoints at all. The
caller of the compiled function decides who is asked: the last entry of its table of buffers is the
address of a record that begins with a function `i64 (ptr record)`, or null. An answer other than
zero makes the compiled function return `STOPPED` soon; what it wrote until then is unfinished.

A thread has a `%Poll`: the work that is left until it asks; the record, or null for threads that
may not ask; and a flag, or null, that all threads of a call look at and that the asking thread
sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ostinato.codegen.writer import LoopState, Value, Writer, integer
from ostinato.sizes.dims import Size

STOPPED = -3
"""The status of a compiled function that was told to stop."""

# In picoseconds of estimated work: how much may be done without asking, and how much counting may
# take. Where every access misses all caches, a thousand times as much time may pass.
LIMIT = 1 << 27
GRAIN = 1 << 20

POLL = Value("%poll", "ptr")

FRAME = """
; work left until the next question, whom to ask, whether all threads are to stop
%Poll = type { i64, ptr, ptr }

!0 = !{!"branch_weights", i32 1, i32 1048575}
"""
"""What a module with safepoints needs, beside the function that these call."""

# It runs so rarely that LLVM may translate it without optimisation, in half of the time.
_FUNCTION = """
; Whether to stop.
define internal i1 @safepoint(ptr %poll) noinline nounwind cold optnone {
entry:
  store i64 LIMIT, ptr %poll
  %stop.at = getelementptr %Poll, ptr %poll, i64 0, i32 2
  %stop = load ptr, ptr %stop.at
  %is.single = icmp eq ptr %stop, null
  br i1 %is.single, label %find, label %look
look:
  %flag = load atomic i64, ptr %stop monotonic, align 8
  %is.told = icmp ne i64 %flag, 0
  br i1 %is.told, label %yes, label %find
find:
  %record.at = getelementptr %Poll, ptr %poll, i64 0, i32 1
  %record = load ptr, ptr %record.at
  %is.unwatched = icmp eq ptr %record, null
  br i1 %is.unwatched, label %no, label %ask
ask:
  %function = load ptr, ptr %record
  %answer = call i64 %function(ptr %record)
  %is.fine = icmp eq i64 %answer, 0
  br i1 %is.fine, label %no, label %tell
tell:
  br i1 %is.single, label %yes, label %tell.all
tell.all:
  store atomic i64 1, ptr %stop monotonic, align 8
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
"""


def called(functions: Iterable[str]) -> list[str]:
    """The function that safepoints call, if one of these has any: LLVM takes 0.25 ms for it."""
    is_called = any("@safepoint(" in function for function in functions)
    return [_FUNCTION.replace("LIMIT", str(LIMIT))] if is_called else []


def open_poll(stop: str) -> str:
    """Instructions that fill `POLL` with the value `%record` and the flag `stop`."""
    return f"""  %poll = alloca %Poll
  store i64 {LIMIT}, ptr %poll
  %poll.record = getelementptr %Poll, ptr %poll, i64 0, i32 1
  store ptr %record, ptr %poll.record
  %poll.stop = getelementptr %Poll, ptr %poll, i64 0, i32 2
  store ptr {stop}, ptr %poll.stop
"""


class Safepoints:
    """Writes the safepoints of one function, which branches to the label `stopped` to leave.

    is_optional: whether `POLL` may be null, where there is no need to ask.
    """

    def __init__(self, w: Writer, is_optional: bool = False) -> None:
        self._w, self._is_optional = w, is_optional
        self.count = 0

    def write(self, work: Value) -> None:
        """Subtract `work` from what is left, ask if that is used up, and leave if told to."""
        w = self._w
        go = w.name("go")[1:]
        if self._is_optional:
            unwatched = w.compare("icmp", "eq", POLL, Value("null", "ptr"), 1)
            counting = w.name("count")[1:]
            w.line(f"br i1 {unwatched.text}, label %{go}, label %{counting}")
            w.block(counting)
        left = w.sub(w.load("i64", POLL), work)
        w.store(left, POLL)
        spent = w.compare("icmp", "slt", left, integer(0), 1)
        ask = w.name("ask")[1:]
        w.line(f"br i1 {spent.text}, label %{ask}, label %{go}, !prof !0")
        w.block(ask)
        stops = w.emit("i1", f"call i1 @safepoint(ptr {POLL.text})")
        self.leave_if(stops, go)

    def leave_if(self, stops: Value, go: str | None = None) -> None:
        """Leave the function on this condition, otherwise continue, at the label `go`."""
        self.count += 1
        go = go or self._w.name("go")[1:]
        self._w.line(f"br i1 {stops.text}, label %stopped, label %{go}, !prof !0")
        self._w.block(go)

    def ending(self, result: str) -> str:
        """The block that returns `result` from safepoints; empty where there are none."""
        return f"stopped:\n  ret {result}\n" if self.count else ""


class WatchedLoops:
    """Writes the loops of a function that may take long, with the safepoints in them.

    asks: whether a loop that is written now may need safepoints. is_optional: as in `Safepoints`.
    """

    def __init__(self, w: Writer, asks: bool, is_optional: bool) -> None:
        self._w, self.asks = w, asks
        self.safepoints = Safepoints(w, is_optional)

    @contextmanager
    def loop(
        self, start: Value, stop: Value, step: int, time: Size, carried: Sequence[Value] = ()
    ) -> Iterator[LoopState]:
        """Write a loop, with safepoints if it is the outermost with surely short iterations.

        time: of an iteration. Several iterations that are too short share a safepoint: they are a
        loop inside.
        """
        if not self.asks or not isinstance(time, int) or time >= LIMIT:
            with self._w.loop(start, stop, step, carried) as loop:
                yield loop
            return
        self.asks = False
        count = GRAIN // time
        if count <= 1:
            with self._w.loop(start, stop, step, carried) as loop:
                self.safepoints.write(integer(time))
                yield loop
        else:
            with self._w.loop(start, stop, step * count, carried) as group:
                self.safepoints.write(integer(time * count))
                end = self._w.add(group.index, integer(step * count))
                end = self._w.call("i64", "llvm.smin.i64", end, stop)
                with self._w.loop(group.index, end, step, group.carried) as loop:
                    yield loop
                group.results = loop.carried
            loop.carried = group.carried
        self.asks = True
