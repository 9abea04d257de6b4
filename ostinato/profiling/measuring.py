"""Measure the kernels of a model by clocks in its code."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ostinato.codegen import threads
from ostinato.codegen.clocks import HEAD, TABLE, words
from ostinato.compiler import compile_model
from ostinato.guards import Guards
from ostinato.native.function import GuardError, NativeFunction
from ostinato.options import Options
from ostinato.profiling.roofline import Roofline
from ostinato.program.expr import ITEM_BYTES
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Buffer, Loop, Program, Stmt, statements
from ostinato.program.title import title
from ostinato.runtime.load import load
from ostinato.schedule.pipeline import Scheduled
from ostinato.schedule.report import report_kernels, report_unfused_pairs, work
from ostinato.sizes.substitution import evaluate
from ostinato.stages.flow import Flow
from ostinato.stages.notice import Notice

Array = np.ndarray[Any, Any]
# The number of a kernel, when it began and when it ended, in seconds; and of a thread.
Event = tuple[int, float, float, int]

# Events of one call that are kept; later ones are in the sums, not in the trace.
_MOST_EVENTS = 200_000
_WARM_CALLS = 3
# The fastest batch counts: whatever else the machine does can only slow one down. They are shorter
# than the turns that programs take on a core: on a busy machine some are undisturbed.
_BATCH_SECONDS = 1e-3
_LEAST_BATCHES = 10
# To record a call on several threads.
_MOST_ATTEMPTS = 50


@dataclass(frozen=True)
class KernelTime:
    """A kernel in one call of the model.

    name: of the kernel; title: of its nodes in short. nodes: all that it computes.
    runs: how often it ran. threads: seconds of each thread, all runs together, means over the
    calls; the first one is the caller's. bytes, flops: of one run. bound: the least seconds that a
    core takes for them. loop: the steps of the loop around it; reads, writes: buffers.
    """

    name: str
    title: str
    nodes: tuple[str, ...]
    loop: str | None
    runs: float
    threads: tuple[float, ...]
    bytes: int
    flops: int
    bound: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the caller's thread, whose times add up to the call."""
        return self.threads[0]

    @property
    def of_roofline(self) -> float:
        """The share of its cores' rate that it reaches, where bytes stay in their cache."""
        spent = sum(self.threads)
        return self.bound * self.runs / spent if spent else 0.0

    @property
    def imbalance(self) -> float:
        """The time of its slowest thread over the mean of those that ran it; 1 is none."""
        spent = [seconds for seconds in self.threads if seconds]
        return max(spent) * len(spent) / sum(spent) if spent else 1.0


@dataclass(frozen=True)
class Profile:
    """A profile of a model.

    calls, call: of how many calls the figures are means, and the seconds of one, by the clock of
    the caller. kernels: in the order of the program. waiting: seconds in which each thread of a
    call waits for others.
    events: of one call, the number of a kernel, its begin and end in seconds, and the thread.
    memory: bytes of working memory that are alive, from a time in seconds on. shared: which part of
    the calls that were measured ran on several threads. overhead: what the seconds outside of
    kernels are. refusals: as in `Report`.
    """

    model: str
    inputs: dict[str, list[int]]
    calls: int
    call: float
    kernels: tuple[KernelTime, ...]
    waiting: tuple[float, ...]
    events: tuple[Event, ...]
    memory: tuple[tuple[float, int], ...]
    arena: int
    shared: float
    overhead: str
    refusals: tuple[dict[str, Any], ...]
    fallback: tuple[str, ...]
    roofline: Roofline

    @property
    def measured(self) -> float:
        """Seconds of a call in kernels."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def outside(self) -> float:
        """Seconds of a call in no kernel, nor waiting for threads of one."""
        return max(self.call - self.measured - self.waiting[0], 0.0)


def measure(
    model: Any,
    feeds: Mapping[str, Array],
    options: Options,
    roofline: Roofline,
    seconds: float = 1.0,
    name: str = "the model",
) -> Profile:
    """Profile calls of the model with these inputs, on as many threads as the options say.

    Raises what compiling and running the model raise.
    """
    options = dataclasses.replace(options, cache_dir=None)
    try:
        return _Measured(model, feeds, options, Guards.LIKELY, name).profile(seconds, roofline)
    except GuardError:
        return _Measured(model, feeds, options, Guards.NONE, name).profile(seconds, roofline)


class _Batch(NamedTuple):
    """Some calls: their seconds, how many ran on several threads, the tables of their clocks.

    end: when the last one ended, by the clock of Python; tick: by that of the kernels.
    """

    seconds: float
    shared: int
    tables: list[Array]
    end: float
    tick: int


def _rate(batches: Sequence[_Batch]) -> float:
    """Seconds of a tick: the median, as something else may run between the two readings."""
    pairs = zip(batches, batches[len(batches) // 2 :], strict=False)
    rates = [(b.end - a.end) / (b.tick - a.tick) for a, b in pairs if b.tick > a.tick]
    return statistics.median(rates) if rates else 0.0


class _Measured:
    """A model compiled with clocks, and its inputs."""

    def __init__(
        self, model: Any, feeds: Mapping[str, Array], options: Options, guarded: Guards, name: str
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
        # Once is enough: the same inputs fail always or never. The plan then has the sizes that
        # kernels compute as well.
        native.run(self._feeds, {})
        return native.bind(arrays, outputs)

    def profile(self, seconds: float, roofline: Roofline) -> Profile:
        # The first calls are slow, and any may be: something else runs in between.
        whole = max(min(self._batch(1).seconds for _ in range(_WARM_CALLS)), 1e-7)
        count = max(1, int(_BATCH_SECONDS / whole))
        many = max(_LEAST_BATCHES, int(seconds / whole / count))
        batches = [self._batch(count) for _ in range(many)]
        # Only calls that other threads took part in, if there are any: these are asked for.
        is_team = any(batch.shared > count / 2 for batch in batches)
        wanted = [batch for batch in batches if not is_team or batch.shared > count / 2]
        fastest = min(wanted, key=lambda batch: batch.seconds)
        tables, rate = fastest.tables, _rate(batches)
        kernels = [
            kernel
            for part, table in zip(self._parts, tables, strict=True)
            for kernel in part.kernels(table, count, rate, roofline)
        ]
        waits = [p.waiting(t, count, rate) for p, t in zip(self._parts, tables, strict=True)]
        events, memory = self._traced(rate, is_team)
        return Profile(
            self._name,
            {name: list(array.shape) for name, array in self._feeds.items()},
            count,
            fastest.seconds / count,
            tuple(kernels),
            tuple(sum(each) for each in itertools.zip_longest(*waits, fillvalue=0.0)) or (0.0,),
            tuple(events),
            tuple(memory),
            sum(part.native.arena_bytes for part in self._parts),
            sum(batch.shared for batch in batches) / (count * many),
            self._overhead(),
            tuple(r for part in self._parts for r in part.refusals()),
            tuple(f"{entry['node']} ({entry['op']})" for entry in self._flow.not_native()),
            roofline,
        )

    def _overhead(self) -> str:
        if self._flow.direct() is not None:
            return "from Python into compiled code and back"
        nodes = len(self._flow.not_native())
        parts = f"Python between compiled parts ({len(self._parts)})"
        return parts + (f", and nodes that are not native ({nodes})" if nodes else "")

    def _batch(self, count: int) -> _Batch:
        for part in self._parts:
            part.reset()
        jobs, call = self._jobs(), self._call
        begin = time.perf_counter()
        for _ in itertools.repeat(None, count):
            call()
        end = time.perf_counter()
        tick = max((part.now() for part in self._parts), default=0)
        tables = [part.table() for part in self._parts]
        return _Batch(end - begin, self._jobs() - jobs, tables, end, tick)

    def _jobs(self) -> int:
        return max((part.jobs for part in self._parts), default=0)

    def _traced(self, rate: float, is_team: bool) -> tuple[list[Event], list[tuple[float, int]]]:
        """One call more, with all its events. is_team: on several threads, if they come."""
        for attempt in range(_MOST_ATTEMPTS):
            for part in self._parts:
                part.reset()
                part.record()
            jobs = self._jobs()
            self._call()
            # The first calls bring the memory of the events into the caches.
            if attempt >= _WARM_CALLS and (not is_team or self._jobs() > jobs):
                break
        origins = [part.first_tick() for part in self._parts]
        origin = min((tick for tick in origins if tick is not None), default=0)
        events: list[Event] = []
        memory: list[tuple[float, int]] = []
        offset = 0
        for part in self._parts:
            found = [
                (number, (begin - origin) * rate, (end - origin) * rate, thread)
                for number, begin, end, thread in part.events()
            ]
            memory += part.memory([event for event in found if event[3] == 0])
            events += [(k + offset, begin, end, thread) for k, begin, end, thread in found]
            offset += len(part.program_kernels)
        return events, memory


class _Clocked:
    """A native function with clocks, and the program that it is made of."""

    def __init__(self, native: NativeFunction, scheduled: Scheduled) -> None:
        self.native, self._scheduled = native, scheduled
        self._program: Program = scheduled.program
        self.program_kernels: list[Kernel] = list(self._program.kernels())
        # One row for each thread that may take part.
        team = native.team
        self.threads = 1 if team is None else team.threads
        shape = (threads.MOST if team else 1), words(len(self.program_kernels))
        address = native.address(TABLE)
        table = (ctypes.c_int64 * (shape[0] * shape[1])).from_address(address)
        self._table = np.ctypeslib.as_array(table).reshape(shape)[: self.threads]
        self._events = np.zeros((0, 0, 2), np.int64)

    def reset(self) -> None:
        self._table[:, 1:] = 0

    @property
    def jobs(self) -> int:
        """The number of calls that ran on several threads so far."""
        return 0 if self.native.team is None else self.native.team.jobs

    def now(self) -> int:
        """The clock of the caller's thread at the last reading, or at the begin of the call."""
        return int(self._table[0, 0])

    def record(self) -> None:
        """Let the next call write events."""
        if not len(self._events):
            self._events = np.zeros((self.threads, _MOST_EVENTS // self.threads, 2), np.int64)
        for row, events in zip(self._table, self._events, strict=True):
            row[2], row[3] = len(events), events.ctypes.data

    def _first_tick(self, thread: int) -> int | None:
        """When the time of a thread in the recorded call began."""
        row = self._table[thread]
        return int(row[0] - row[HEAD::2].sum()) if row[1] else None

    def first_tick(self) -> int | None:
        """When the recorded call began."""
        return self._first_tick(0)

    def events(self) -> Iterator[tuple[int, int, int, int]]:
        """Number of a kernel, begin, end and thread; waiting is no event."""
        for thread, events in enumerate(self._events):
            before = self._first_tick(thread)
            for end, number in events[: int(self._table[thread, 1])].tolist():
                assert before is not None
                if number < len(self.program_kernels):
                    yield number, before, end, thread
                before = end

    def _sizes(self) -> dict[str, int]:
        last = self.native.last
        if last is None:
            return {}
        return dict(zip(self.native.artifact.symbols, last.symbols.tolist(), strict=False))

    def table(self) -> Array:
        """Ticks and runs of each kernel, and of waiting, since `reset`, by thread: a copy."""
        count = len(self.program_kernels) + 1
        used = self._table[:, HEAD : HEAD + 2 * count]
        return used.reshape(self.threads, count, 2).copy()

    def waiting(self, table: Array, calls: int, rate: float) -> list[float]:
        """Seconds of a call in which each thread waits."""
        return [ticks * rate / calls for ticks in table[:, -1, 0].tolist()]

    def kernels(
        self, table: Array, calls: int, rate: float, roofline: Roofline
    ) -> Iterator[KernelTime]:
        sizes = self._sizes()
        records = {r["name"]: r for r in report_kernels(self._program, self._program)}
        loops = [s for s in statements(self._program.body) if isinstance(s, Loop)]
        dealt = {
            s.name
            for loop in loops
            if loop.scratch is not None
            for s in statements(loop.body)
            if isinstance(s, Kernel)
        }
        for number, kernel in enumerate(self.program_kernels):
            # Threads run the others together.
            runs = int(table[:, number, 1].sum() if kernel.name in dealt else table[0, number, 1])
            size, flops = work(self._program, kernel, sizes)
            sources = tuple(kernel.sources)
            yield KernelTime(
                kernel.name,
                title(sources) or kernel.name,
                sources,
                records[kernel.name]["in_loop"],
                runs / calls,
                tuple(ticks * rate / calls for ticks in table[:, number, 0].tolist()),
                size,
                flops,
                max(flops / roofline.peak, size / roofline.bandwidth(size / self.threads)),
                tuple(sorted(kernel.reads())),
                tuple(sorted(kernel.writes())),
            )

    def refusals(self) -> list[dict[str, Any]]:
        """As in `Report`, with the bytes of the sizes that the last call had."""
        sizes = self._sizes()
        return report_unfused_pairs(
            dataclasses.replace(pair, bytes=evaluate(pair.bytes, sizes))
            for pair in self._scheduled.unfused_pairs
        )

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
            names = names.union(*(loop.carried for loop in loops))
            for name in names:
                touched.setdefault(name, []).append(place)
        alive = [0] * len(body)
        for name, places in touched.items():
            buffer = self._program.buffers[name]
            if buffer.kind == "arena":
                for place in range(places[0], places[-1] + 1):
                    alive[place] += _bytes(buffer, sizes)
        last = None
        for number, begin, _, _ in events:
            place = owner[self.program_kernels[number].name]
            if place != last:
                yield begin, alive[place]
                last = place


def _kernels(statement: Stmt) -> list[Kernel]:
    return [s for s in statements((statement,)) if isinstance(s, Kernel)]


def _bytes(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    return evaluate(buffer.size, sizes) * ITEM_BYTES[buffer.dtype]
