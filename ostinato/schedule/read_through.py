"""Sums of few rows compute an operand themselves that another kernel would store for many.

    b[k, j] = f(a[j, k])                        if many i:  b[k, j] = f(a[j, k])
    y[i, j] = sum_k q[i, k] b[k, j]      =>                 y[i, j] = sum_k q[i, k] b[k, j]
                                                else:       y[i, j] = sum_k q[i, k] f(a[j, k])

`fuse` leaves these apart where only a run tells how many rows read each element of `b`. For a
single row, such as the query of a decoder's step that meets scaled keys, writing and reading `b`
takes longer than the sum. What is computed for each element does not change, so bits do not either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ostinato.program.kernel import Kernel
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Program,
    Stmt,
    bodies,
    count_own_uses,
    with_bodies,
)
from ostinato.schedule.decisions import decision
from ostinato.schedule.in_place import stored_copies
from ostinato.schedule.joining import inlined, points_read
from ostinato.schedule.relayout import least_uses
from ostinato.sizes.dims import Size

# From so many rows on, storing the operand pays: keys of 16 to 1500 positions that are scaled (row
# `open queries` of `benchmarks.bench_micro`, for 1 to 23 queries).
LEAST_ROWS = 12
# An operand that is computed for each tile of rows has at most this many loads and operations.
MOST_WORK = 4


def read_through(program: Program) -> Program:
    """Let a run decide, by the number of rows, whether sums compute an operand themselves."""
    buffers = dict(program.buffers)
    # A value into whose copy something is stored must be read before that, or the copy is made.
    held = {i.buffer for i in program.outputs} | stored_copies(program).keys()
    body = _Rewriter(buffers, held, count_own_uses(program.body)).run(program.body)
    return program.with_body(body, buffers)


class _Rewriter:
    """Rewrites lists of statements; `buffers` gets those of decisions.

    held: buffers that must be read, or written, where they are. uses: statements, by buffer.
    """

    def __init__(self, buffers: dict[str, Buffer], held: Set[str], uses: Counter[str]) -> None:
        self._buffers, self._held, self._uses = buffers, held, uses

    def run(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Rewrite statements: some kernels then run for many rows alone."""
        slots = [[with_bodies(s, self.run) if bodies(s) else s] for s in body]
        writers = [i for i, (s,) in enumerate(slots) if self._is_operand(s)]
        users = _users(slots) if writers else {}
        for place in writers:
            (writer,) = slots[place]
            assert isinstance(writer, Kernel)
            reader = self._only_reader(writer, place, users, slots)
            joined = None if reader is None else self._joined(writer, slots[reader][0])
            if reader is not None and joined is not None:
                slots[place], slots[reader] = [], joined
        return tuple(s for slot in slots for s in slot)

    def _is_operand(self, statement: Stmt) -> bool:
        """Whether it computes little for each element of a value that is read in one place."""
        if not isinstance(statement, Kernel) or statement.reductions or statement.ordered:
            return False
        if statement.guard is not None or len(statement.stores) != 1:
            return False
        buffer = self._buffers[statement.stores[0].access.buffer]
        is_own = buffer.kind == "arena" and not buffer.is_copy and buffer.name not in self._held
        return is_own and statement.work <= MOST_WORK and not statement.reads() & self._held

    def _only_reader(
        self,
        writer: Kernel,
        place: int,
        users: Mapping[str, Sequence[int]],
        slots: Sequence[Sequence[Stmt]],
    ) -> int | None:
        """The place of the only statement that reads a kernel's result, if it may move there."""
        name = writer.stores[0].access.buffer
        others = [i for i in users[name] if i != place]
        if len(others) != 1 or others[0] < place or len(slots[others[0]]) != 1:
            return None
        (reader,) = others
        if count_own_uses(tuple(slots[reader]))[name] != self._uses[name] - 1:
            return None
        needed = writer.reads() | writer.sizes
        between = {i for n in needed for i in users[n] if place < i <= reader}
        return None if any(needed & s.writes() for i in between for s in slots[i]) else reader

    def _joined(self, writer: Kernel, reader: Stmt) -> list[Stmt] | None:
        """Replace a reader by statements that have the kernel in them; None to leave both."""
        if isinstance(reader, Branch):
            ways = [self._way(writer, n, way) for n, way in enumerate((reader.then, reader.orelse))]
            if not any(is_better for _, is_better in ways):
                return None
            return [replace(reader, then=ways[0][0], orelse=ways[1][0])]
        rows = self._rows(writer, reader) if isinstance(reader, Kernel) else None
        if rows is None:
            return None
        assert isinstance(reader, Kernel)
        pays = f"{writer.name}.pays"
        decided = decision(pays, writer.sources, rows, LEAST_ROWS, self._buffers)
        # A reader may meet several operands, in ways of a branch that another pass has made.
        few = replace(inlined(writer, reader), name=f"{reader.name}.{writer.name}")
        return [decided, Branch(pays, (writer, reader), (few,))]

    def _way(
        self, writer: Kernel, number: int, way: tuple[Stmt, ...]
    ) -> tuple[tuple[Stmt, ...], bool]:
        """Put the kernel into a way of a branch; also return whether a run decides about it."""
        name, own = writer.stores[0].access.buffer, replace(writer, name=f"{writer.name}.{number}")
        readers = [i for i, s in enumerate(way) if name in s.reads()]
        if not readers:
            return way, False
        place = readers[0]
        needed = writer.reads() | writer.sizes
        joined = None
        if len(readers) == 1 and not any(needed & s.writes() for s in way[: place + 1]):
            joined = self._joined(own, way[place])
        if joined is None:
            return (own, *way), False
        return (*way[:place], *joined, *way[place + 1 :]), True

    def _rows(self, writer: Kernel, reader: Kernel) -> Size | None:
        """How many rows of a sum read each element, where only a run tells and lanes load it."""
        name = writer.stores[0].access.buffer
        loads = [load for load in reader.loads() if load.access.buffer == name]
        # A kernel that writes another part of the operand uses it without a load.
        if not loads or any(x not in reader.summed or x.mask is not None for x in loads):
            return None
        if isinstance(points_read(writer, reader), str):
            return None
        lanes = [a for a in reader.axes if all(s.access.stride(a) == 1 for s in reader.stores)]
        if not any(all(load.access.stride(a) != 0 for load in loads) for a in lanes):
            return None
        rows = least_uses(reader, loads)
        return None if isinstance(rows, int) else rows


def _users(slots: Sequence[Sequence[Stmt]]) -> dict[str, list[int]]:
    """For each buffer, the places in a list of the statements that read or write it."""
    found: dict[str, list[int]] = {}
    for place, slot in enumerate(slots):
        for name in {n for s in slot for n in (*s.reads(), *s.writes())}:
            found.setdefault(name, []).append(place)
    return found
