"""Join kernels with their readers, so that intermediate values stay in registers.

Two moves, tried for every reader and each kernel that wrote what it loads:

    merge    producer  b[i] = f(i)           reader  y[i] = g(b[i])
             one kernel over i computes both; b is stored only if something else reads it.

    inline   producer  b[i] = sum_k x[k] * W[k, i]
             readers   y[j] = g(b[j], b[j + n], b[j + 2n])
             every reader computes what it reads, if no element is computed more often then.

The second move is how a matrix product is fused with gates that read its result in pieces: it
becomes a kernel with one accumulator for each piece. Nothing here knows what the kernels are for.
What is computed for each element, and in which order, never changes, so results keep their bits.

Each pair that could not be joined is reported with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Loop, Program, Require, Stmt, bodies, with_bodies
from ostinato.records import dataclass
from ostinato.schedule.in_place import stored_copies
from ostinato.schedule.joining import (
    IN_PARTS,
    READ_AGAIN,
    bijection,
    in_parts,
    inlined,
    is_free,
    merged,
    points_read,
    reads_again,
)
from ostinato.sizes.dims import Size, is_nonnegative, product


@dataclass(frozen=True)
class Refusal:
    """Two kernels that stay apart although one reads what the other writes."""

    producer: str
    consumer: str
    reason: str


_CHANGES = "a size that the writer depends on changes before the reader runs"
STORED_INTO = "a copy of what the writer reads is stored into before the reader runs"
IN_BETWEEN = "another reader of the value must run between writer and reader"


def fuse(program: Program, refusals: list[Refusal] | None = None) -> Program:
    """Join kernels in every statement list of the program."""
    lost: list[Refusal] = []
    body = _Fuser(program, program.body, lost, set(), stored_copies(program)).run()
    if refusals is not None:
        refusals += lost
    return program.with_body(body)


class _Fuser:
    """One statement list: who writes and who reads each buffer, and the order of statements.

    copies: for each original, its copies that are stored into.
    """

    def __init__(
        self,
        program: Program,
        body: tuple[Stmt, ...],
        refusals: list[Refusal],
        outside: set[str],
        copies: Mapping[str, Set[str]],
    ) -> None:
        self._program = program
        self._refusals = refusals
        self._copies = copies
        self._statements: dict[int, Stmt] = dict(enumerate(body))
        # Buffers that are read outside of this list: their stores must stay.
        self._kept = outside | {i.buffer for i in program.outputs}
        self._writers: dict[str, set[int]] = {}
        self._readers: dict[str, set[int]] = {}
        # Each reader of a value asks for the pair again: most pairs have not changed.
        self._counted: dict[tuple[int, int], tuple[Kernel, Kernel, Size | str]] = {}
        for key, statement in self._statements.items():
            self._index(key, statement)

    def _index(self, key: int, statement: Stmt) -> None:
        for name in statement.writes():
            self._writers.setdefault(name, set()).add(key)
        for name in statement.reads():
            self._readers.setdefault(name, set()).add(key)

    def _replace(self, key: int, statement: Stmt | None) -> None:
        old = self._statements.pop(key)
        for name in old.writes():
            self._writers[name].discard(key)
        for name in old.reads():
            self._readers[name].discard(key)
        if statement is not None:
            self._statements[key] = statement
            self._index(key, statement)

    def _kernel(self, key: int) -> Kernel:
        found = self._statements[key]
        assert isinstance(found, Kernel)
        return found

    def run(self) -> tuple[Stmt, ...]:
        self._enter_bodies()
        for key in sorted(self._statements):
            current = key
            while current in self._statements and (merged := self._join(current)) is not None:
                current = merged
        self._report()
        return tuple(self._statements[key] for key in sorted(self._statements))

    def _enter_bodies(self) -> None:
        for key, statement in list(self._statements.items()):
            if not bodies(statement):
                continue
            names = statement.reads() | statement.writes()
            outside = {n for n in names if self._readers.get(n, set()) - {key}} | self._kept
            if isinstance(statement, Loop):
                outside |= statement.carried

            def inside(body: tuple[Stmt, ...], outside: set[str] = outside) -> tuple[Stmt, ...]:
                return _Fuser(self._program, body, self._refusals, outside, self._copies).run()

            self._replace(key, with_bodies(statement, inside))

    def _producers(self, key: int) -> Iterator[int]:
        reader = self._statements[key]
        found: dict[int, None] = {}
        for name in sorted(reader.reads(), key=_natural):
            writers = self._writers.get(name, set())
            if len(writers) == 1:
                (writer,) = writers
                if writer < key and isinstance(self._statements[writer], Kernel):
                    found[writer] = None
        yield from found

    def _join(self, key: int) -> int | None:
        """Try to join the statement with one of its producers; return the place of the result."""
        if not isinstance(self._statements[key], Kernel):
            return None
        for producer in list(self._producers(key)):
            joined = self._merge(producer, key)
            if joined is None and self._inline(producer):
                joined = key
            if joined is not None:
                return joined
        return None

    def _merge(self, producer: int, consumer: int) -> int | None:
        p, c = self._kernel(producer), self._kernel(consumer)
        c = in_parts(p, c)
        images = bijection(p, c)
        if isinstance(images, str):
            return None
        place = self._place(producer, consumer)
        if place is None:
            return None
        dead = {
            name
            for name in p.writes()
            if name not in self._kept
            and self._program.buffers[name].kind == "arena"
            and self._readers.get(name, set()) <= {consumer}
        }
        joined = merged(p, c, images, dead)
        self._replace(producer, None)
        self._replace(consumer, None)
        self._statements[place] = joined
        self._index(place, joined)
        return place

    def _place(self, producer: int, consumer: int) -> int | None:
        """The place of a merged kernel: the reader's, else the producer's; None if neither fits."""
        p, c = self._kernel(producer), self._statements[consumer]
        others = {r for name in p.writes() for r in self._readers.get(name, set())} - {consumer}
        stays = self._changes(p, producer, consumer) or self._outdates(p, producer, consumer)
        if all(r > consumer for r in others) and not stays:
            return consumer
        needed = {w for name in c.reads() for w in self._writers.get(name, set())} - {producer}
        if all(w < producer for w in needed) and not self._is_guarded(producer, consumer):
            used = {r for name in self._sizes(c.writes()) for r in self._readers.get(name, set())}
            return None if any(producer < r < consumer for r in used) else producer
        return None

    def _sizes(self, names: Iterable[str]) -> list[str]:
        """Select the buffers that hold sizes, which loops write again behind their readers."""
        return [name for name in names if self._program.buffers[name].kind == "size"]

    def _changes(self, kernel: Kernel, start: int, end: int) -> bool:
        """Whether a size that the kernel reads changes between two places."""
        writers = {w for name in kernel.sizes for w in self._writers.get(name, set())}
        return any(start < w < end for w in writers)

    def _outdates(self, kernel: Kernel, start: int, end: int) -> bool:
        """Whether a copy of what few points of the kernel read is stored into before a place.

        Behind that the store would need a copy, which takes longer than passing on what is read.
        """
        originals = kernel.reads() & self._copies.keys()
        if not originals:
            return False
        points = product([axis.extent for axis in kernel.axes])
        few = [n for n in originals if not is_nonnegative(points - self._program.buffers[n].size)]
        copies = {copy for name in few for copy in self._copies[name]}
        writers = {w for name in copies for w in self._writers.get(name, set()) if start < w <= end}
        return any(copies & self._statements[writer].reads() for writer in writers)

    def _is_guarded(self, producer: int, consumer: int) -> bool:
        """Whether a condition in between may be what bounds the reader's computed sizes."""
        sizes = self._kernel(consumer)
        between = (s for k, s in self._statements.items() if producer < k < consumer)
        return bool(sizes.sizes) and any(isinstance(s, Require) for s in between)

    def _inline(self, producer: int) -> bool:
        p = self._kernel(producer)
        if self._why_not_inline(producer) is not None:
            return False
        (store,) = p.stores
        readers = self._readers[store.access.buffer]
        rewritten = {}
        for key in readers:
            reader = self._kernel(key)
            rewritten[key] = inlined(p, reader)
        for key, statement in rewritten.items():
            self._replace(key, statement)
        self._replace(producer, None)
        return True

    def _why_not_inline(self, producer: int) -> str | None:
        """Why the kernel's readers cannot compute its values themselves; None if they can."""
        p = self._kernel(producer)
        if len(p.stores) != 1:
            return "the writer makes several values at once"
        name = p.stores[0].access.buffer
        buffer = self._program.buffers[name]
        if name in self._kept or buffer.kind != "arena":
            return "the value is also an output, or needed outside of this loop or branch"
        if len(self._writers[name]) != 1:
            return IN_PARTS
        total: Size = 0
        readers: list[Kernel] = []
        for key in self._readers.get(name, set()):
            reader = self._statements[key]
            if not isinstance(reader, Kernel):
                return "a loop or a branch reads the value too"
            if self._changes(p, producer, key):
                return _CHANGES
            if self._outdates(p, producer, key):
                return STORED_INTO
            points = self._points_read(producer, key, p, reader)
            if isinstance(points, str):
                return points
            total = total + points
            readers.append(reader)
        if not is_free(p) and not is_nonnegative(product([a.extent for a in p.axes]) - total):
            return "readers would compute values more than once"
        if len(readers) > 1 and reads_again(p, readers, self._program.buffers):
            return READ_AGAIN
        return None

    def _points_read(self, producer: int, key: int, p: Kernel, reader: Kernel) -> Size | str:
        counted = self._counted.get((producer, key))
        if counted is None or counted[0] is not p or counted[1] is not reader:
            counted = self._counted[producer, key] = p, reader, points_read(p, reader)
        return counted[2]

    def _report(self) -> None:
        for key in sorted(self._statements):
            consumer = self._statements[key]
            if not isinstance(consumer, Kernel):
                continue
            for producer in self._producers(key):
                p = self._kernel(producer)
                images = bijection(p, consumer)
                merge = images if isinstance(images, str) else IN_BETWEEN
                inline = self._why_not_inline(producer)
                self._refusals.append(Refusal(p.name, consumer.name, _explained(merge, inline)))


def _explained(merge: str, inline: str | None) -> str:
    """Join the reasons against either move into a sentence."""
    if inline is None or inline == merge:
        return merge
    return f"no common loop: {merge}; not computed by the reader: {inline}"


def _natural(name: str) -> tuple[str, int]:
    digits = len(name) - len(name.rstrip("0123456789"))
    return (name[: len(name) - digits], int(name[len(name) - digits :] or 0))
