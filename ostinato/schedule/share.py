"""Divide a program among threads: what each of them computes, and where they wait.

Every thread runs all statements, and of each kernel computes its own piece of one axis. No sum is
ever cut, so the number of threads changes no bit. Groups of lanes are divided first: a thread then
reads the same part of the weights in every step of a loop, from its own cache. Thread 0 alone
computes what is too small to be divided.

Threads wait for each other before a statement that touches what another thread may still read or
write. Loops whose steps gain less than the waiting costs are left to thread 0 as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from ostinato.program.expr import ITEM_BYTES, Axis, Load, walk
from ostinato.program.kernel import Kernel, Tile
from ostinato.program.nodes import Branch, Buffer, Loop, Program, Require, Stmt, bodies, statements
from ostinato.records import dataclass
from ostinato.schedule.arena import ALIGNMENT, Arena
from ostinato.schedule.times import OPERATION, operations, product_time, store_time
from ostinato.sizes.dims import (
    Size,
    ceildiv,
    computed,
    is_at_most,
    is_nonnegative,
    maximum,
    product,
)
from ostinato.sizes.substitution import substitute

# Picoseconds that threads lose when they wait for each other once, uneven arrival included: a
# property of the machine and its system, measured by `benchmarks.bench_threads`.
WAIT = 1_000_000
# Dividing a kernel must gain at least so much: a quarter of that, as not every kernel waits.
LEAST = 250_000
# The assumed share of threads with work to do where only a run tells how many pieces there are, and
# the weight of idle threads against that of weights that all threads read for a tile of rows:
# fitted to the same benchmark.
TYPICAL_SHARE = 0.9
_OWN_WEIGHTS = 0.25
# The weight of idle threads against that of rows that another thread has written, where rows have
# more bytes than weights: Winograd's products in ResNet-18 of `tools.torch_networks`.
_OWN_ROWS = 0.04
# A call must gain so much before threads that may sleep are woken for it.
WAKE = 50_000_000
# And so much more before it waits for threads that sleep.
PATIENT = 150_000_000


@dataclass(frozen=True)
class Part:
    """The axis of a kernel along which threads divide it, `unit` points at a time."""

    axis: Axis
    unit: int = 1

    @property
    def pieces(self) -> Size:
        """The number of pieces that are divided among threads."""
        return ceildiv(self.axis.extent, self.unit)


@dataclass(frozen=True)
class Step:
    """A statement, and how threads run it.

    wait: they wait for each other before it; `again`: before each look at a loop's condition too.
    gain: of a loop: all threads enter it only if this is positive, otherwise thread 0 alone does.
        None: all do.
    inner: the steps of the lists inside the statement.
    """

    statement: Stmt
    wait: bool = False
    again: bool = False
    gain: Size | None = None
    inner: tuple[tuple[Step, ...], ...] = ()


@dataclass(frozen=True)
class Shares:
    """A program divided among threads.

    parts: of the divided kernels, by name; thread 0 computes all others.
    gain: picoseconds that a call gains, less what waiting costs; worth it if positive.
    ample: what remains of the gain when sleeping threads are waited for; worth it if positive.
    """

    steps: tuple[Step, ...]
    parts: Mapping[str, Part] = field(default_factory=dict)
    gain: Size = 0
    ample: Size = 0


def undivided(body: tuple[Stmt, ...]) -> tuple[Step, ...]:
    """The steps of a single thread."""
    return tuple(Step(s, inner=tuple(map(undivided, bodies(s)))) for s in body)


def share(program: Program, arena: Arena, threads: int) -> Shares | None:
    """Divide the program among `threads`; None if a single one takes no longer."""
    if threads == 1:
        return None
    divider = _Divider(program, arena, threads)
    steps, _, gain = divider.body(program.body, frozenset())
    gain = substitute(gain, program.bounds) - WAKE
    if isinstance(gain, int) and gain <= 0:
        return None
    return Shares(steps, divider.parts, gain, gain - PATIENT)


def part_of(kernel: Kernel, threads: int) -> Part | None:
    """Choose the axis along which threads divide a kernel; None if no axis gains anything."""
    tile = kernel.tile
    lane = None if tile is None else tile.lane
    best, most = None, (0.0, 0)
    for axis in kernel.axes:
        if axis == lane or axis in kernel.ordered:
            continue
        part = Part(axis, _unit(tile, axis))
        use = use_of(part.pieces, threads)
        if not use:
            continue
        worth = use + _own(kernel, axis), _distance(kernel, axis)
        if worth > most:
            best, most = part, worth
    if best is None:
        return None
    gain = gain_of(time_of(kernel), use_of(best.pieces, threads), threads)
    return None if isinstance(gain, int) and gain < LEAST else best


def _own(kernel: Kernel, axis: Axis) -> float:
    """How much it is worth that a thread reads weights or rows of its own.

    Weights are worth less, the more rows they serve.
    """
    tile = kernel.tile
    if tile is None or not kernel.reductions:
        return 0.0
    if axis == tile.block:
        rows = 1 if tile.row is None else ceildiv(tile.row.extent, tile.rows)
        return _OWN_WEIGHTS / rows if isinstance(rows, int) and rows > 0 else _OWN_WEIGHTS
    if axis != tile.row:
        return 0.0
    sizes: dict[bool, Size] = {True: 0, False: 0}
    for load in {x for r in kernel.reductions for x in walk(*r.operands) if isinstance(x, Load)}:
        size = product([a.extent for a, _ in load.access.terms]) * ITEM_BYTES[load.dtype]
        is_row = load.access.stride(axis) != 0
        sizes[is_row] = sizes[is_row] + size
    return _OWN_ROWS if is_nonnegative(sizes[True] - sizes[False] - 1) else 0.0


def _distance(kernel: Kernel, axis: Axis) -> int:
    """The distance at which a kernel without sums stores neighbours along an axis.

    Along the axis with the largest one, a thread's piece is one piece of memory, and readers
    divided in the same way find it in their own cache.
    """
    if kernel.reductions:
        return 0
    strides = [store.access.stride(axis) for store in kernel.stores]
    return max((abs(stride) for stride in strides if isinstance(stride, int)), default=0)


def _unit(tile: Tile | None, axis: Axis) -> int:
    """The points of an axis in a tile."""
    if tile is None:
        return 1
    return tile.rows if axis in (tile.row, tile.other) else tile.groups if axis == tile.block else 1


def use_of(pieces: Size, threads: int) -> float:
    """The share of the threads' time that has work to do; 0 if one thread gets all the work."""
    if not isinstance(pieces, int):
        return TYPICAL_SHARE
    if pieces < 2:
        return 0.0
    return pieces / (ceildiv(pieces, threads) * threads)  # type: ignore[operator]


def gain_of(time: Size, use: float, threads: int) -> Size:
    """The time gained when threads divide the work, of whose time `use` is busy."""
    return time * round(1000 * (1 - 1 / (threads * use))) // 1000


def time_of(kernel: Kernel) -> Size:
    """Picoseconds that a kernel takes on one thread."""
    points = product([axis.extent for axis in kernel.axes])
    cost: Size = store_time(kernel)
    for reduce in kernel.reductions:
        depth = product([axis.extent for axis in reduce.axes])
        cost = cost + depth * product_time(kernel, reduce, points * depth)
        cost = cost + depth * OPERATION * operations(reduce.operands) // 16
    return points * cost


def steps_time(body: Iterable[Stmt]) -> Size:
    """Picoseconds that statements take on one thread; both ways of a branch count half."""
    total: Size = 0
    for statement in body:
        if isinstance(statement, Kernel):
            total = total + time_of(statement)
        elif isinstance(statement, Loop):
            total = total + statement.axis.extent * steps_time(statement.body)
        else:
            total = total + sum(map(steps_time, bodies(statement)), start=0) // 2
    return total


@dataclass(frozen=True)
class _Touch:
    """A read or write of a buffer that may not be over; `alone`: only by thread 0."""

    buffer: str
    writes: bool
    alone: bool


_Touches = frozenset[_Touch]


class _Memory:
    """Finds buffers that may share memory. Halves of a carried state swap: they count as one."""

    def __init__(self, program: Program, arena: Arena, threads: int) -> None:
        self._program, self._arena = program, arena
        carries = [c for s in statements(program.body) if isinstance(s, Loop) for c in s.carries]
        self._pairs = {pair for c in carries for pair in ((c.state, c.next), (c.next, c.state))}
        self._groups: dict[str, set[str]] = {}
        for carry in carries:
            halves = (carry.state, carry.next)
            group = set().union(*(self._groups.get(half, {half}) for half in halves))
            self._groups.update((name, group) for name in group)
        self._known: dict[tuple[str, str], bool] = {}
        self._threads = threads

    def is_written(self, name: str) -> bool:
        """Whether a run may write the buffer at all."""
        return self._program.buffers[name].kind in ("arena", "output", "size")

    def overlap(self, left: str, right: str) -> bool:
        """Whether two buffers may share a byte at the same time."""
        if left == right:
            return True
        if (left, right) in self._pairs:
            return False
        if (left, right) not in self._known:
            self._known[left, right] = any(
                self._lie_together(a, b)
                for a in self._groups.get(left, {left})
                for b in self._groups.get(right, {right})
            )
        return self._known[left, right]

    def _lie_together(self, left: str, right: str) -> bool:
        if left == right:
            return True
        a, b = (self._program.buffers[name] for name in (left, right))
        if a.kind != "arena" or b.kind != "arena":
            return False
        start, other = (self._arena.offsets.get(name, 0) for name in (left, right))
        # A buffer of fixed size may lie where one of a run-time size was or will be.
        end, other_end = start + self._bytes(a), other + self._bytes(b)
        return not (is_at_most(end, other) or is_at_most(other_end, start))

    def _bytes(self, buffer: Buffer) -> Size:
        if buffer.name in self._arena.strides:
            return self._threads * self._arena.strides[buffer.name]
        size = self._program.upper(buffer.size)
        return ceildiv(size, ALIGNMENT // ITEM_BYTES[buffer.dtype]) * ALIGNMENT


class _Divider:
    """Walks a program in order, with the accesses that threads may not have finished."""

    def __init__(self, program: Program, arena: Arena, threads: int) -> None:
        self._memory = _Memory(program, arena, threads)
        self._bounds = program.bounds
        self._threads = threads
        self._gains: dict[str, Size] = {}
        self.parts: dict[str, Part] = {}
        for kernel in _one_by_one(program.body):
            part = part_of(kernel, threads)
            if part is not None:
                self.parts[kernel.name] = part
                use = use_of(part.pieces, threads)
                self._gains[kernel.name] = gain_of(time_of(kernel), use, threads)

    def body(
        self, body: tuple[Stmt, ...], busy: _Touches
    ) -> tuple[tuple[Step, ...], _Touches, Size]:
        """Return the steps, the accesses that may be unfinished behind them, and their gain."""
        steps: list[Step] = []
        total: Size = 0
        for statement in body:
            if isinstance(statement, Kernel):
                step, busy, gain = self._kernel(statement, busy)
            elif isinstance(statement, Loop):
                step, busy, gain = self._loop(statement, busy)
            elif isinstance(statement, Branch):
                step, busy, gain = self._branch(statement, busy)
            else:
                wait, busy = self._after(self._touches(statement, False), busy)
                step, gain = Step(statement, wait), -WAIT * wait
            steps.append(step)
            total = total + gain
        return tuple(steps), busy, total

    def _touches(self, statement: Stmt, alone: bool) -> _Touches:
        reads = {_Touch(n, False, alone) for n in statement.reads() if self._memory.is_written(n)}
        return frozenset(reads | {_Touch(n, True, alone) for n in statement.writes()})

    def _after(self, touches: _Touches, busy: _Touches) -> tuple[bool, _Touches]:
        """Whether threads have to wait first, and the accesses that may be unfinished then."""
        wait = any(
            (new.writes or old.writes)
            and not (new.alone and old.alone)
            and self._memory.overlap(new.buffer, old.buffer)
            for new in touches
            for old in busy
        )
        return wait, touches if wait else busy | touches

    def _kernel(self, kernel: Kernel, busy: _Touches) -> tuple[Step, _Touches, Size]:
        touches = self._touches(kernel, kernel.name not in self.parts)
        wait, busy = self._after(touches, busy)
        return Step(kernel, wait), busy, self._gains.get(kernel.name, 0) - WAIT * wait

    def _branch(self, branch: Branch, busy: _Touches) -> tuple[Step, _Touches, Size]:
        condition = frozenset((_Touch(branch.condition, False, False),))
        wait, busy = self._after(condition, busy)
        then, after_then, gain = self.body(branch.then, busy)
        orelse, after_orelse, other = self.body(branch.orelse, busy)
        step = Step(branch, wait, inner=(then, orelse))
        return step, after_then | after_orelse, (gain + other) // 2 - WAIT * wait

    def _dealt(self, loop: Loop, busy: _Touches) -> tuple[Step, _Touches, Size]:
        wait, busy = self._after(self._touches(loop, False), busy)
        use = use_of(loop.axis.extent, self._threads)
        gain = gain_of(steps_time((loop,)), use, self._threads)
        return Step(loop, wait, inner=(undivided(loop.body),)), busy, gain - WAIT * wait

    def _loop(self, loop: Loop, busy: _Touches) -> tuple[Step, _Touches, Size]:
        if loop.scratch is not None:
            return self._dealt(loop, busy)
        extent = loop.axis.extent
        counted = frozenset(_Touch(name, False, False) for name in computed(extent))
        first, start = self._after(counted, busy) if counted else (False, busy)
        inside, again, after, gain = self._steps(loop, start)
        if _all_enter(loop) or (isinstance(gain, int) and gain > 0):
            total = extent * gain - WAIT * first
            return Step(loop, first, again=again, inner=(inside,)), after, total
        if isinstance(gain, int):
            wait, busy = self._after(self._touches(loop, not counted), busy)
            return Step(loop, wait, gain=0, inner=(undivided(loop.body),)), busy, -WAIT * wait
        # Where a single thread enters, nothing inside the loop waits for what it has done.
        wait, busy = self._after(self._touches(loop, False), busy)
        inside, _, _, gain = self._steps(loop, frozenset())
        total = extent * maximum(gain, 0) - WAIT * wait
        return Step(loop, wait, gain=gain, inner=(inside,)), busy, total

    def _steps(self, loop: Loop, busy: _Touches) -> tuple[tuple[Step, ...], bool, _Touches, Size]:
        """The steps of the body, given accesses that the step before may not have finished.

        Also whether threads wait before each look at the condition, the accesses that may be
        unfinished behind the loop, and the gain.
        """
        while True:
            again, start = False, busy
            if loop.condition is not None:
                look = frozenset((_Touch(loop.condition, False, False),))
                again, start = self._after(look, busy)
            inside, after, gain = self.body(loop.body, start)
            more = busy | start | _swapped(after, loop)
            if more == busy:
                gain = substitute(gain, self._bounds)
                return inside, again, busy, gain - WAIT * again
            busy = more


def _one_by_one(body: tuple[Stmt, ...]) -> Iterator[Kernel]:
    """The kernels that all threads reach at the same time."""
    for statement in body:
        if isinstance(statement, Kernel):
            yield statement
        elif not isinstance(statement, Loop) or statement.scratch is None:
            for inner in bodies(statement):
                yield from _one_by_one(inner)


def _all_enter(loop: Loop) -> bool:
    """Whether every thread must know how the loop ends."""
    required = any(isinstance(s, Require) for s in statements(loop.body))
    return required or loop.condition is not None


def _swapped(touches: _Touches, loop: Loop) -> _Touches:
    """The same accesses under the names that the buffers have in the next step."""
    names = {c.state: c.next for c in loop.carries} | {c.next: c.state for c in loop.carries}
    return frozenset(replace(t, buffer=names.get(t.buffer, t.buffer)) for t in touches)
