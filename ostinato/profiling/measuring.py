"""Measure the kernels of a model by clocks in its code."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.codegen.clocks import HEAD, TABLE
from ostinato.compiler import compile_model
from ostinato.native.function import GuardError, NativeFunction
from ostinato.options import Options
from ostinato.profiling.roofline import Roofline
from ostinato.program.expr import ITEM_BYTES
from ostinato.program.nodes import Buffer, Kernel, Loop, Program, Stmt, statements
from ostinato.program.title import title
from ostinato.runtime.load import load
from ostinato.schedule.pipeline import Scheduled
from ostinato.schedule.report import report_kernels, report_unfused_pairs, work
from ostinato.sizes.substitution import evaluate
from ostinato.stages.flow import Flow
from ostinato.stages.notice import Notice

Array = np.ndarray[Any, Any]
# The number of a kernel, when it began and when it ended, in seconds.
Event = tuple[int, float, float]

# Of one call; what comes behind is in the sums, not in the trace.
MOST_EVENTS = 200_000
_WARM_CALLS = 3
# The fastest batch counts: whatever else the machine does can only slow one down.
_BATCHES = 100
_MOST_CALLS = 10_000


@dataclass(frozen=True)
class KernelTime:
    """A kernel in one call of the model.

    name: of the kernel; title: of its nodes in short. nodes: all that it computes.
    runs: how often it ran. seconds: all runs together, means over the calls. bytes, flops: of one
    run. bound: the least seconds that the machine takes for them. loop: the steps of the loop
    around it; reads, writes: buffers.
    """

    name: str
    title: str
    nodes: tuple[str, ...]
    loop: str | None
    runs: float
    seconds: float
    bytes: int
    flops: int
    bound: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def of_roofline(self) -> float:
        """The share of the machine's rate that it reaches, where bytes stay in their cache."""
        return self.bound * self.runs / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """A profile of a model.

    calls, call: of how many calls the figures are means, and the seconds of one, by the clock of
    the caller. kernels: in the order of the program.
    events: of one call, the number of a kernel, its begin and end in seconds. memory: bytes of
    working memory that are alive, from a time in seconds on. refusals: as in `Report`.
    """

    model: str
    inputs: dict[str, list[int]]
    calls: int
    call: float
    kernels: tuple[KernelTime, ...]
    events: tuple[Event, ...]
    memory: tuple[tuple[float, int], ...]
    arena: int
    refusals: tuple[dict[str, Any], ...]
    fallback: tuple[str, ...]
    roofline: Roofline

    @property
    def measured(self) -> float:
        """Seconds of a call in kernels."""
        return sum(kernel.seconds for kernel in self.kernels)


def measure(
    model: Any,
    feeds: Mapping[str, Array],
    options: Options,
    roofline: Roofline,
    seconds: float = 1.0,
    name: str = "the model",
) -> Profile:
    """Profile calls of the model with these inputs, on one thread.

    Raises what compiling and running the model raise.
    """
    options = dataclasses.replace(options, threads=1, cache_dir=None)
    try:
        return _Measured(model, feeds, options, True, name).profile(seconds, roofline)
    except GuardError:
        return _Measured(model, feeds, options, False, name).profile(seconds, roofline)


class _Measured:
    """A model compiled with clocks, and its inputs."""

    def __init__(
        self, model: Any, feeds: Mapping[str, Array], options: Options, guarded: bool, name: str
    ) -> None:
        self._feeds, self._name = dict(feeds), name
        scheduled: list[Scheduled] = []
        compiled = compile_model(model, options, guarded, clocked=scheduled)
        notice = Notice(name)

        def specialize(node: Any) -> Flow:
            return load(node, dataclasses.replace(options, specialize={}), notice)[0]

        self._flow = Flow(compiled, options, notice, specialize)
        natives = list(self._flow.natives())
        self._parts = [_Clocked(*pair) for pair in zip(natives, scheduled, strict=True)]
        self._call = self._bound()

    def _bound(self) -> Callable[[], object]:
        native = self._flow.direct()
        if native is None:
            return lambda: self._flow.run(self._feeds, {})
        arrays = [self._feeds[argument.name] for argument in native.artifact.inputs]
        plan = native.plan([array.shape for array in arrays], native.values(arrays))
        outputs = [np.empty(s, d) for s, d in zip(plan.shapes, plan.dtypes, strict=True)]
        bound = native.bind(arrays, outputs)

        def call() -> None:
            code = bound()
            if code is not None:
                raise native.failure(code)

        return call

    def profile(self, seconds: float, roofline: Roofline) -> Profile:
        for _ in range(_WARM_CALLS):
            self._call()
        start = time.perf_counter()
        self._call()
        whole = max(time.perf_counter() - start, 1e-7)
        count = max(1, min(_MOST_CALLS, int(seconds / whole / _BATCHES)))
        first = [part.now() for part in self._parts]
        begin = time.perf_counter()
        least, tables = self._batch(count)
        for _ in range(_BATCHES - 1):
            spent, others = self._batch(count)
            if spent < least:
                least, tables = spent, others
        passed = time.perf_counter() - begin
        # The clocks of the last readings, just before the calls and at their end.
        pairs = zip(self._parts, first, strict=True)
        ticks = max((part.now() - before for part, before in pairs), default=0)
        rate = passed / ticks if ticks > 0 else 0.0
        kernels = [
            kernel
            for part, table in zip(self._parts, tables, strict=True)
            for kernel in part.kernels(table, count, rate, roofline)
        ]
        events, memory = self._traced(rate)
        return Profile(
            self._name,
            {name: list(array.shape) for name, array in self._feeds.items()},
            count,
            least / count,
            tuple(kernels),
            tuple(events),
            tuple(memory),
            sum(part.native.arena_bytes for part in self._parts),
            tuple(r for part in self._parts for r in part.refusals()),
            tuple(f"{entry['node']} ({entry['op']})" for entry in self._flow.not_native()),
            roofline,
        )

    def _batch(self, count: int) -> tuple[float, list[Array]]:
        """Seconds of so many calls, and the tables of their clocks."""
        for part in self._parts:
            part.reset()
        begin = time.perf_counter()
        for _ in range(count):
            self._call()
        return time.perf_counter() - begin, [part.table() for part in self._parts]

    def _traced(self, rate: float) -> tuple[list[Event], list[tuple[float, int]]]:
        """One call more, with all its events."""
        # The first calls bring the memory of the events into the caches.
        for _ in range(_WARM_CALLS):
            for part in self._parts:
                part.reset()
                part.record()
            self._call()
        origins = [part.first_tick() for part in self._parts]
        origin = min((tick for tick in origins if tick is not None), default=0)
        events: list[Event] = []
        memory: list[tuple[float, int]] = []
        offset = 0
        for part in self._parts:
            found = [
                (number, (begin - origin) * rate, (end - origin) * rate)
                for number, begin, end in part.events()
            ]
            memory += part.memory(found)
            events += [(number + offset, begin, end) for number, begin, end in found]
            offset += len(part.program_kernels)
        return events, memory


class _Clocked:
    """A native function with clocks, and the program that it is made of."""

    def __init__(self, native: NativeFunction, scheduled: Scheduled) -> None:
        self.native, self._scheduled = native, scheduled
        self._program: Program = scheduled.program
        self.program_kernels: list[Kernel] = list(self._program.kernels())
        words = HEAD + 2 * len(self.program_kernels)
        address = native.address(TABLE)
        self._table = np.ctypeslib.as_array((ctypes.c_int64 * words).from_address(address))
        self._events = np.zeros((0, 2), np.int64)

    def reset(self) -> None:
        self._table[1:] = 0

    def now(self) -> int:
        """The clock at the last reading, or at the begin of the last call."""
        return int(self._table[0])

    def record(self) -> None:
        """Let the next call write events."""
        if not len(self._events):
            self._events = np.zeros((MOST_EVENTS, 2), np.int64)
        self._table[2], self._table[3] = MOST_EVENTS, self._events.ctypes.data

    def first_tick(self) -> int | None:
        """When the first kernel of the recorded call began."""
        count = int(self._table[1])
        if not count:
            return None
        whole = int(self._table[HEAD::2].sum())
        # The last reading is that of the last event, if all of them fit.
        return int(self._table[0]) - whole

    def events(self) -> Iterator[tuple[int, int, int]]:
        before = self.first_tick()
        for end, number in self._events[: int(self._table[1])].tolist():
            assert before is not None
            yield number, before, end
            before = end

    def _sizes(self) -> dict[str, int]:
        last = self.native.last
        if last is None:
            return {}
        return dict(zip(self.native.artifact.symbols, last.symbols.tolist(), strict=False))

    def table(self) -> Array:
        """A copy of ticks and runs of each kernel since `reset`."""
        return self._table[HEAD:].reshape(-1, 2).copy()

    def kernels(
        self, table: Array, calls: int, rate: float, roofline: Roofline
    ) -> Iterator[KernelTime]:
        sizes = self._sizes()
        records = {r["name"]: r for r in report_kernels(self._program, self._program)}
        for number, kernel in enumerate(self.program_kernels):
            ticks, runs = table[number].tolist()
            size, flops = work(self._program, kernel, sizes)
            sources = tuple(kernel.sources)
            yield KernelTime(
                kernel.name,
                title(sources) or kernel.name,
                sources,
                records[kernel.name]["in_loop"],
                runs / calls,
                ticks * rate / calls,
                size,
                flops,
                max(flops / roofline.peak, size / roofline.bandwidth(size)),
                tuple(sorted(kernel.reads())),
                tuple(sorted(kernel.writes())),
            )

    def refusals(self) -> list[dict[str, Any]]:
        return report_unfused_pairs(self._scheduled.unfused_pairs)

    def memory(self, events: list[Event]) -> Iterator[tuple[float, int]]:
        """Bytes of the arena that are alive while each statement outside of loops runs."""
        sizes = self._sizes()
        body = self._program.body
        owner = {k.name: i for i, statement in enumerate(body) for k in _kernels(statement)}
        touched: dict[str, list[int]] = {}
        for place, statement in enumerate(body):
            inner = list(statements((statement,)))
            names = {n for s in inner for n in s.reads() | s.writes()}
            loops = [s for s in inner if isinstance(s, Loop)]
            names |= {name for s in loops for c in s.carries for name in (c.state, c.next)}
            for name in names:
                touched.setdefault(name, []).append(place)
        alive = [0] * len(body)
        for name, places in touched.items():
            buffer = self._program.buffers[name]
            if buffer.kind == "arena":
                for place in range(places[0], places[-1] + 1):
                    alive[place] += _bytes(buffer, sizes)
        last = None
        for number, begin, _ in events:
            place = owner[self.program_kernels[number].name]
            if place != last:
                yield begin, alive[place]
                last = place


def _kernels(statement: Stmt) -> list[Kernel]:
    return [s for s in statements((statement,)) if isinstance(s, Kernel)]


def _bytes(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    return evaluate(buffer.size, sizes) * ITEM_BYTES[buffer.dtype]
