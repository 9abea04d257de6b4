"""Plan the arena: one block of memory for all buffers, whose places are reused as values die."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import field, replace

from ostinato.program.expr import ITEM_BYTES
from ostinato.program.kernel import Kernel
from ostinato.program.laid import ALIGNMENT as ALIGNMENT
from ostinato.program.nodes import CALL, Branch, Buffer, Loop, Program, Stmt, bodies, statements
from ostinato.records import dataclass
from ostinato.schedule.operands import estimate
from ostinato.sizes.dims import (
    Dim,
    Size,
    ceildiv,
    computed,
    is_at_most,
    is_nonnegative,
    maximum,
    terms_of,
)

# A size may be rounded up by this share of it.
_LITTLE = 8


@dataclass(frozen=True)
class Arena:
    """Byte offsets of the arena's buffers, and the bytes needed.

    strides: the distance between the copies of a scratch buffer that threads have.
    """

    offsets: Mapping[str, Size]
    size: Size
    strides: Mapping[str, Size] = field(default_factory=dict)


@dataclass
class _Life:
    """First and last statement (in program order) that touch a buffer."""

    first: int
    last: int


@dataclass(frozen=True)
class _Span:
    """The statements of a loop, the pairs of buffers that it swaps, and what its steps share.

    parts: buffers that steps write in parts, and those touched by steps that run at the same time.
    """

    start: int
    end: int
    pairs: tuple[tuple[str, str], ...]
    parts: frozenset[str]


def _lives(
    body: tuple[Stmt, ...],
    clock: list[int],
    lives: dict[str, _Life],
    loops: list[_Span],
) -> None:
    for statement in body:
        start = clock[0]
        for name in sorted(_own_reads(statement)):
            _touch(lives, name, start)
        for inner in bodies(statement):
            _lives(inner, clock, lives, loops)
        if isinstance(statement, Loop):
            pairs = tuple((c.state, c.next) for c in statement.carries)
            loops.append(_Span(start, clock[0], pairs, _written_in_parts(statement)))
        clock[0] += 1


def _written_in_parts(loop: Loop) -> frozenset[str]:
    """Buffers that steps write in parts, so that a later step may read them whole.

    All that the steps touch where several run at the same time.
    """
    if loop.scratch is not None:
        return frozenset(loop.reads() | loop.writes())
    kernels = (s for s in statements(loop.body) if isinstance(s, Kernel))
    accesses = (store.access for kernel in kernels for store in kernel.stores)
    return frozenset(a.buffer for a in accesses if a.stride(loop.axis) != 0 or computed(a.offset))


def _own_reads(statement: Stmt) -> Set[str]:
    """Buffers that the statement itself touches, not the statements inside it."""
    if isinstance(statement, Branch):
        return {statement.condition}
    return set() if isinstance(statement, Loop) else statement.reads() | statement.writes()


def _stretch(lives: dict[str, _Life], loops: list[_Span]) -> None:
    """Extend lives over a whole loop where steps share a buffer with the outside or the next step.

    The halves of a carried state swap, so each of them lives as long as both.
    """
    for span in loops:
        for pair in span.pairs:
            for name in pair:
                for other in pair:
                    if other in lives:
                        _touch(lives, name, lives[other].first)
                        _touch(lives, name, lives[other].last)
                _touch(lives, name, span.start)
                _touch(lives, name, span.end)
        for name in sorted(span.parts):
            _touch(lives, name, span.start)
            _touch(lives, name, span.end)
        for name, life in list(lives.items()):
            inside = life.first <= span.end and life.last >= span.start
            if inside and (life.first < span.start or life.last > span.end):
                _touch(lives, name, span.start)
                _touch(lives, name, span.end)


def _touch(lives: dict[str, _Life], name: str, time: int) -> None:
    life = lives.setdefault(name, _Life(time, time))
    life.first, life.last = min(life.first, time), max(life.last, time)


def plan(program: Program, reuse: bool = True, threads: int = 1) -> Arena:
    """Assign an offset to every arena buffer; buffers that are not alive together may overlap."""
    lives: dict[str, _Life] = {}
    loops: list[_Span] = []
    _lives(program.body, [0], lives, loops)
    _stretch(lives, loops)
    if not reuse:
        lives = {name: _Life(0, 1) for name in lives}
    buffers = [program.buffers[n] for n in lives if program.buffers[n].kind == "arena"]
    buffers = [replace(b, size=program.upper(b.size)) for b in buffers]
    scratch = _scratch(program)
    strides = {b.name: _bytes(b) for b in buffers if b.name in scratch}
    buffers = [replace(b, size=threads * _items(b)) if b.name in scratch else b for b in buffers]
    offsets, end = _placed(buffers, lives)
    if not counts_calls(program):
        return Arena(offsets, end, strides)
    # The counter of runs comes first.
    moved = {name: offset + ALIGNMENT for name, offset in offsets.items()}
    return Arena(moved, end + ALIGNMENT, strides)


def counts_calls(program: Program) -> bool:
    """Whether a kernel's order of work depends on the counter of runs, at the arena's start."""
    return any(k.tile is not None and k.tile.serpentine == CALL for k in program.kernels())


def _scratch(program: Program) -> frozenset[str]:
    """The buffers of which each thread has its own."""
    loops = [s for s in statements(program.body) if isinstance(s, Loop)]
    return frozenset[str]().union(*(loop.scratch for loop in loops if loop.scratch is not None))


def _bytes(buffer: Buffer) -> Size:
    return _items(buffer) * ITEM_BYTES[buffer.dtype]


def _items(buffer: Buffer) -> Size:
    """Round the size of a buffer up to whole units of alignment.

    Each term is rounded for itself where that adds little: the sum can still be compared with
    others.
    """
    size, unit = buffer.size, ALIGNMENT // ITEM_BYTES[buffer.dtype]
    if is_nonnegative(size) and all(-n % unit * _LITTLE <= n for m, n in terms_of(size) if m):
        whole = [(m, -(-n // unit) * unit) for m, n in terms_of(size)]
        return sum((Dim(((m, n),)) if m else n for m, n in whole), 0)
    # In a branch that is not taken a size may be anything; it must not move what lies behind it.
    return ceildiv(maximum(size, 0), unit) * unit


def _placed(buffers: list[Buffer], lives: dict[str, _Life]) -> tuple[dict[str, Size], Size]:
    """First fit, largest buffers first: the offset of each, and the end of all.

    Buffers of sizes that only a run tells come last. Two of them whose order cannot be proven for
    all sizes do not share memory.
    """
    offsets: dict[str, Size] = {}
    taken: list[tuple[Size, Size, _Life]] = []
    end: Size = 0
    for buffer in sorted(buffers, key=lambda b: (not isinstance(b.size, int), -_about(b), b.name)):
        life, size = lives[buffer.name], _bytes(buffer)
        busy = _joined(
            (start, stop)
            for start, stop, other in taken
            if life.first <= other.last and other.first <= life.last
        )
        # Everything ends before `end`, whatever the sizes.
        start = next(_starts(size, busy), end)
        stop = start + size
        insort(taken, (start, stop, life), key=lambda piece: estimate(piece[0]))
        offsets[buffer.name] = start
        if not is_at_most(stop, end):
            end = stop if is_at_most(end, stop) else end + size
    return offsets, end


def _joined(pieces: Iterable[tuple[Size, Size]]) -> list[tuple[Size, Size]]:
    """Merge pieces of memory, in order, where one begins before the one before it ends."""
    joined: list[tuple[Size, Size]] = []
    last: dict[Size, int] = {}
    for start, stop in dict.fromkeys(pieces):
        number = last.pop(start, None)
        if number is None:
            number = len(joined)
            joined.append((start, stop))
        else:
            joined[number] = joined[number][0], stop
        last[stop] = number
    return joined


def _starts(size: Size, busy: list[tuple[Size, Size]]) -> Iterator[Size]:
    """Places where a piece of memory may begin, lowest first."""
    fixed = [(a, b) for a, b in busy if isinstance(a, int) and isinstance(b, int)]
    if not isinstance(size, int) or len(fixed) < len(busy):
        places = list(busy)
        for start in sorted(dict.fromkeys([0, *(stop for _, stop in busy)]), key=estimate):
            taken = _first_taken(start, start + size, places)
            if taken is None:
                yield start
            else:
                # The piece that blocks one place is likely to block the next one: try it first.
                places.insert(0, places.pop(taken))
        return
    lowest = 0
    for start, stop in sorted(fixed):
        if lowest + size <= start:
            break
        lowest = max(lowest, stop)
    yield lowest


def _first_taken(start: Size, stop: Size, busy: list[tuple[Size, Size]]) -> int | None:
    """The number of the first piece of memory that this one may overlap; None if it never does."""
    for number, (a, b) in enumerate(busy):
        if not (is_at_most(b, start) or is_at_most(stop, a)):
            return number
    return None


def _about(buffer: Buffer) -> int:
    return estimate(_bytes(buffer))
