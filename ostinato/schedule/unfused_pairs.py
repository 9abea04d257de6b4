"""List kernels that pass values to each other through memory, and why they are not fused.

`fuse` says why two kernels of one statement list stayed apart. Other pairs cannot become one
because of where they stand: inside and outside of a loop, in a branch, in one step and the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ostinato.program.expr import ITEM_BYTES
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Carry, Loop, Program, Stmt, bodies, statements
from ostinato.records import dataclass
from ostinato.schedule.fuse import Refusal
from ostinato.schedule.joining import IN_PARTS
from ostinato.sizes.dims import Size, product

_CHANGED = "a loop in between changes the value"
_COUNTED = "one of them counts what the other runs for"


@dataclass(frozen=True)
class UnfusedPair:
    """Two kernels that stay apart although one reads what the other writes.

    buffer: what the consumer reads. bytes: what the producer writes there in one run.
    """

    producer: Kernel
    consumer: Kernel
    buffer: str
    bytes: Size
    reason: str


@dataclass(frozen=True)
class _Place:
    """A kernel, and the (number of the statement list, position, statement) of each ancestor."""

    kernel: Kernel
    path: tuple[tuple[int, int, Stmt], ...]

    def loops(self) -> Iterator[Loop]:
        """The loops around the kernel, the outermost first."""
        return (s for _, _, s in self.path if isinstance(s, Loop))


def unfused_pairs(program: Program, refusals: Iterable[Refusal] | None) -> tuple[UnfusedPair, ...]:
    """List every pair of kernels of a program of which one reads what the other writes.

    refusals: what `fuse` found; None if it has not run.
    """
    sizes = {name for name, buffer in program.buffers.items() if buffer.kind == "size"}
    reasons = {(r.producer, r.consumer): r.reason for r in refusals or ()}
    value = _values(program)
    found: list[UnfusedPair] = []
    for writer, written, reader, name in _passing(program, value):
        reason = _structural(writer, reader, written, name)
        if reason == "":
            continue
        if reason is None and refusals is None:
            reason = "pass fuse is disabled"
        elif reason is None and written in reader.kernel.writes():
            reason = "the reader changes a part of the value in place"
        elif reason is None:
            default = _CHANGED if name in value else IN_PARTS
            if not sizes.isdisjoint(writer.kernel.writes() | reader.kernel.writes()):
                default = _COUNTED
            reason = reasons.get((writer.kernel.name, reader.kernel.name), default)
        size = _written(writer, written, program)
        found.append(UnfusedPair(writer.kernel, reader.kernel, name, size, reason))
    return tuple(found)


def _passing(
    program: Program, value: Mapping[str, str]
) -> Iterator[tuple[_Place, str, _Place, str]]:
    """Yield a writer with its name for a value, and a reader of that value with its own name."""
    places = list(_places(program.body))
    writers: dict[str, list[tuple[_Place, str]]] = {}
    for place in places:
        for name in sorted(place.kernel.writes()):
            writers.setdefault(value.get(name, name), []).append((place, name))
    for reader in places:
        for name in sorted(reader.kernel.reads()):
            for writer, written in writers.get(value.get(name, name), ()):
                if writer.kernel is not reader.kernel:
                    yield writer, written, reader, name


def _places(
    body: tuple[Stmt, ...], path: tuple[tuple[int, int, Stmt], ...] = ()
) -> Iterator[_Place]:
    for position, statement in enumerate(body):
        here = (*path, (id(body), position, statement))
        if isinstance(statement, Kernel):
            yield _Place(statement, here)
        for inner in bodies(statement):
            yield from _places(inner, here)


def _values(program: Program) -> dict[str, str]:
    """Give the two buffers of every carried state one name."""
    names: dict[str, str] = {}
    for statement in statements(program.body):
        if isinstance(statement, Loop):
            for carry in statement.carries:
                first, second = (names.get(n, n) for n in (carry.state, carry.next))
                for name in (carry.state, carry.next):
                    names[name] = first
                for name, other in list(names.items()):
                    if other == second:
                        names[name] = first
    return names


def _structural(writer: _Place, reader: _Place, written: str, read: str) -> str | None:
    """Why two kernels cannot be one where they are; "" if no value passes, None if they could.

    written, read: the names of the buffers, two if a loop carries the value from one to the other.
    """
    for depth, (one, other) in enumerate(zip(writer.path, reader.path, strict=False)):
        (first_list, first, outer), (second_list, second, inner) = one, other
        if first_list != second_list:
            return ""  # the two ways of a branch
        if first == second:
            continue
        around = [s for _, _, s in writer.path[:depth] if isinstance(s, Loop)]
        if first > second or any(Carry(read, written) in loop.carries for loop in around):
            return "the reader uses the value of the step before" if around else ""
        if isinstance(outer, Kernel) and isinstance(inner, Kernel):
            return None
        if any(isinstance(s, Branch) for s in (outer, inner)):
            return "one of the two runs only if a condition holds"
        if isinstance(outer, Loop) and isinstance(inner, Loop):
            return "writer and reader are in two loops, one after the other"
        if isinstance(outer, Loop):
            return "the writer runs in the steps of a loop, the reader after them"
        return "the reader runs in every step of a loop, the writer once before them"
    return ""


def _written(place: _Place, name: str, program: Program) -> Size:
    points = product([axis.extent for axis in place.kernel.axes])
    stores = sum(store.access.buffer == name for store in place.kernel.stores)
    trips = product([loop.axis.extent for loop in place.loops()])
    return points * stores * trips * ITEM_BYTES[program.buffers[name].dtype]
