"""Plans the arena: one block of memory for all buffers, reused as values die."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from ostinato.program.expr import ITEM_BYTES
from ostinato.program.laid import ALIGNMENT as ALIGNMENT
from ostinato.program.nodes import (
    CALL,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Program,
    Stmt,
    bodies,
    statements,
)
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, ceildiv, computed, maximum


@dataclass(frozen=True)
class Arena:
    """Byte offsets of the arena's buffers, and the bytes needed.

    strides: how far the copies of each thread lie apart, of scratch.
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
    """When a loop runs, the pairs of buffers that it swaps, and what all steps share.

    parts: what steps write parts of, and whatever steps touch that run at the same time.
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
    """Buffers that a step writes at a place of its own, so that a later one may read them whole.

    All that they touch where several run at the same time.
    """
    if loop.scratch is not None:
        return frozenset(loop.reads() | loop.writes())
    kernels = (s for s in statements(loop.body) if isinstance(s, Kernel))
    accesses = (store.access for kernel in kernels for store in kernel.stores)
    return frozenset(a.buffer for a in accesses if a.stride(loop.axis) != 0 or computed(a.offset))


def _own_reads(statement: Stmt) -> set[str]:
    """Buffers that the statement itself touches, not the statements inside it."""
    if isinstance(statement, Branch):
        return {statement.condition}
    return set() if isinstance(statement, Loop) else statement.reads() | statement.writes()


def _stretch(lives: dict[str, _Life], loops: list[_Span]) -> None:
    """Keep alive during a whole loop what it shares with the outside or with its next step.

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
    """Offsets for all arena buffers; those of equal or known sizes share memory in turn."""
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
    known = [b for b in buffers if isinstance(b.size, int)]
    offsets: dict[str, Size] = {}
    end: Size = _place_known(known, lives, offsets)
    by_size: dict[Size, list[Buffer]] = {}
    for buffer in buffers:
        if not isinstance(buffer.size, int):
            by_size.setdefault(_bytes(buffer), []).append(buffer)
    for size, group in by_size.items():
        end = _place_equal(group, size, end, lives, offsets)
    if not counts_calls(program):
        return Arena(offsets, end, strides)
    # The count of runs comes first.
    moved = {name: offset + ALIGNMENT for name, offset in offsets.items()}
    return Arena(moved, end + ALIGNMENT, strides)


def counts_calls(program: Program) -> bool:
    """Whether a kernel's order of work depends on the count of runs, at the start of the arena."""
    return any(k.tile is not None and k.tile.serpentine == CALL for k in program.kernels())


def _scratch(program: Program) -> frozenset[str]:
    """The buffers of which each thread has its own."""
    loops = [s for s in statements(program.body) if isinstance(s, Loop)]
    return frozenset[str]().union(*(loop.scratch for loop in loops if loop.scratch is not None))


def _bytes(buffer: Buffer) -> Size:
    return _items(buffer) * ITEM_BYTES[buffer.dtype]


def _items(buffer: Buffer) -> Size:
    """The elements of whole units of alignment."""
    # On a way that is not taken a size may be anything; it must not move what lies behind it.
    size, unit = maximum(buffer.size, 0), ALIGNMENT // ITEM_BYTES[buffer.dtype]
    return ceildiv(size, unit) * unit


def _place_known(buffers: list[Buffer], lives: dict[str, _Life], offsets: dict[str, Size]) -> int:
    """First fit, largest buffers first."""
    placed: list[tuple[int, int, _Life]] = []
    end = 0
    for buffer in sorted(buffers, key=lambda b: (-_known_bytes(b), b.name)):
        life, size = lives[buffer.name], _known_bytes(buffer)
        start = 0
        for other_start, other_end, other in sorted(placed, key=lambda p: p[0]):
            overlaps = life.first <= other.last and other.first <= life.last
            if overlaps and start < other_end and other_start < start + size:
                start = other_end
        placed.append((start, start + size, life))
        offsets[buffer.name] = start
        end = max(end, start + size)
    return end


def _known_bytes(buffer: Buffer) -> int:
    size = _bytes(buffer)
    assert isinstance(size, int)
    return size


def _place_equal(
    group: list[Buffer], size: Size, end: Size, lives: dict[str, _Life], offsets: dict[str, Size]
) -> Size:
    """Buffers of one run-time size take turns in as few slots as their lives allow."""
    slots: list[tuple[Size, int]] = []
    for buffer in sorted(group, key=lambda b: lives[b.name].first):
        life = lives[buffer.name]
        for i, (offset, busy_until) in enumerate(slots):
            if busy_until < life.first:
                offsets[buffer.name] = offset
                slots[i] = (offset, life.last)
                break
        else:
            offsets[buffer.name] = end
            slots.append((end, life.last))
            end = end + size
    return end
