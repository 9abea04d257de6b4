"""Kernels join their readers, so that intermediate values stay in registers.

Two moves, tried for every reader and each kernel that wrote what it loads:

    merge    producer  b[i] = f(i)           reader  y[i] = g(b[i])
             one kernel over i computes both; b is stored only if somebody else reads it.

    inline   producer  b[i] = sum_k x[k] * W[k, i]
             readers   y[j] = g(b[j], b[j + n], b[j + 2n])
             every reader computes what it reads, if no element is computed more often then.

The second move is how a matrix product is fused with gates that read its result in pieces: it
becomes a kernel with one accumulator for each piece. Nothing here knows what the kernels are for.
What is computed for each element, and in which order, never changes, so results keep their bits.

Each pair that could not be joined is reported with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ostinato.program.expr import (
    Axis,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Load,
    Op,
    Reduced,
    dtype_of,
    rewrite,
    walk,
)
from ostinato.program.nodes import (
    Kernel,
    Loop,
    Program,
    Reduce,
    Require,
    Stmt,
    bodies,
    map_loads,
    with_bodies,
)
from ostinato.schedule.index_maps import (
    Affine,
    Map,
    shift_reduced,
    solve,
    substitute,
    substitute_reduce,
    substitute_store,
)
from ostinato.sizes.dims import Size, is_nonnegative, product


@dataclass(frozen=True)
class Refusal:
    """Two kernels that stay apart although one reads what the other writes."""

    producer: str
    consumer: str
    reason: str


# More accumulators than this in one kernel would not fit in registers.
MAX_REDUCTIONS = 8
# Operations and loads of a point of a joined kernel. Joining saves a store and a load for each
# vector of the value between, up to 20 cycles where that leaves the caches; so many operations take
# several hundred. LLVM takes more than linear time for larger functions, and kernels cut alike
# share one (`benchmarks.bench_depth` measures both).
MAX_WORK = 512
LONG = MAX_WORK // 4

IN_PARTS = "the value is made part by part, by several kernels or stores"
IN_BETWEEN = "what else reads the value has to run between writer and reader"
OTHER_LANES = "one sums along the lanes of a register, the other one sum per lane"
TOO_MANY_SUMS = f"together they keep more than {MAX_REDUCTIONS} sums, too many for the registers"
TOO_MUCH_WORK = f"together they are more than {MAX_WORK} operations, too many for one kernel"
COMPUTED_INDEX = "the reader picks values by indices that are computed while running"
PADDED = "the reader pads the value"
TELLS_SIZE = "the writer computes a size of the reader"
OTHER_ORDER = "the reader takes the values apart in another way than the writer lays them out"


def fuse(program: Program, refusals: list[Refusal] | None = None) -> Program:
    """Join kernels in every statement list of the program."""
    lost: list[Refusal] = []
    body = _Fuser(program, program.body, lost, set()).run()
    if refusals is not None:
        refusals += lost
    return program.with_body(body)


class _Fuser:
    """One statement list: who writes and who reads each buffer, and the order of statements."""

    def __init__(
        self, program: Program, body: tuple[Stmt, ...], refusals: list[Refusal], outside: set[str]
    ) -> None:
        self._program = program
        self._refusals = refusals
        self._statements: dict[int, Stmt] = dict(enumerate(body))
        # Buffers that somebody outside this list reads: their stores must stay.
        self._kept = outside | {i.buffer for i in program.outputs}
        self._writers: dict[str, set[int]] = {}
        self._readers: dict[str, set[int]] = {}
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
                outside |= {name for c in statement.carries for name in (c.state, c.next)}

            def inside(body: tuple[Stmt, ...], outside: set[str] = outside) -> tuple[Stmt, ...]:
                return _Fuser(self._program, body, self._refusals, outside).run()

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
        """Try to join the statement with one of its producers; returns where the result is."""
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
        p, c = self._statements[producer], self._statements[consumer]
        assert isinstance(p, Kernel) and isinstance(c, Kernel)
        images = _bijection(p, c)
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
        merged = _merged(p, c, images, dead)
        self._replace(producer, None)
        self._replace(consumer, None)
        self._statements[place] = merged
        self._index(place, merged)
        return place

    def _place(self, producer: int, consumer: int) -> int | None:
        """Where a merged kernel may stand: at the reader's place, else at the producer's."""
        p, c = self._statements[producer], self._statements[consumer]
        others = {r for name in p.writes() for r in self._readers.get(name, set())} - {consumer}
        if all(r > consumer for r in others):
            return consumer
        needed = {w for name in c.reads() for w in self._writers.get(name, set())} - {producer}
        if all(w < producer for w in needed) and not self._is_guarded(producer, consumer):
            return producer
        return None

    def _is_guarded(self, producer: int, consumer: int) -> bool:
        """Whether a condition in between may be that of the reader's computed sizes."""
        sizes = self._statements[consumer]
        assert isinstance(sizes, Kernel)
        between = (s for k, s in self._statements.items() if producer < k < consumer)
        return bool(sizes.sizes) and any(isinstance(s, Require) for s in between)

    def _inline(self, producer: int) -> bool:
        p = self._statements[producer]
        assert isinstance(p, Kernel)
        if self._why_not_inline(producer) is not None:
            return False
        (store,) = p.stores
        readers = self._readers[store.access.buffer]
        rewritten = {}
        for key in readers:
            reader = self._statements[key]
            assert isinstance(reader, Kernel)
            rewritten[key] = _inlined(p, reader)
        for key, statement in rewritten.items():
            self._replace(key, statement)
        self._replace(producer, None)
        return True

    def _why_not_inline(self, producer: int) -> str | None:
        """The reason that the kernel's readers cannot compute its values themselves, or None."""
        p = self._statements[producer]
        assert isinstance(p, Kernel)
        if len(p.stores) != 1:
            return "the writer makes several values at once"
        name = p.stores[0].access.buffer
        buffer = self._program.buffers[name]
        if name in self._kept or buffer.kind != "arena":
            return "the value is also an output, or needed outside of this loop or branch"
        if len(self._writers[name]) != 1:
            return IN_PARTS
        readers = [self._statements[key] for key in self._readers.get(name, set())]
        total: Size = 0
        for reader in readers:
            if not isinstance(reader, Kernel):
                return "a loop or a branch reads the value too"
            points = _points_read(p, reader)
            if isinstance(points, str):
                return points
            total = total + points
        if not _is_free(p) and not is_nonnegative(product([a.extent for a in p.axes]) - total):
            return "readers would compute values more than once"
        return None

    def _report(self) -> None:
        for key in sorted(self._statements):
            consumer = self._statements[key]
            if not isinstance(consumer, Kernel):
                continue
            for producer in self._producers(key):
                p = self._statements[producer]
                assert isinstance(p, Kernel)
                images = _bijection(p, consumer)
                merge = images if isinstance(images, str) else IN_BETWEEN
                inline = self._why_not_inline(producer)
                self._refusals.append(Refusal(p.name, consumer.name, _explained(merge, inline)))


def _explained(merge: str, inline: str | None) -> str:
    """Why neither move was possible, `merge` and `inline` being the reasons against each."""
    if inline is None or inline == merge:
        return merge
    return f"no common loop: {merge}; not computed by the reader: {inline}"


def _natural(name: str) -> tuple[str, int]:
    digits = len(name) - len(name.rstrip("0123456789"))
    return (name[: len(name) - digits], int(name[len(name) - digits :] or 0))


def _reads_of(kernel: Kernel, names: set[str]) -> list[Load]:
    return [load for load in kernel.loads() if load.access.buffer in names]


def _number_of_reads(kernel: Kernel, names: set[str]) -> int:
    """As many as `_reads_of` finds, whose order takes a walk of the kernel."""
    return sum(load.access.buffer in names for load in kernel.loaded)


def _inside_reduction(kernel: Kernel, names: set[str]) -> bool:
    operands = [e for r in kernel.reductions for e in r.operands]
    return any(isinstance(n, Load) and n.access.buffer in names for n in walk(*operands))


def _in_chains(kernel: Kernel) -> bool:
    return any(r.chains > 1 for r in kernel.reductions)


def _same_style(p: Kernel, c: Kernel) -> bool:
    return not (p.reductions and c.reductions and _in_chains(p) != _in_chains(c))


def _order_conflict(p: Kernel, c: Kernel) -> str | None:
    """Why two kernels cannot be one although their points may match, or None."""
    if p.writes() & c.sizes:
        return TELLS_SIZE
    if p.ordered:
        return "the writer's steps depend on each other"
    if any(store.partial for store in p.stores):
        return "the writer picks places by indices that are computed while running"
    if c.ordered and (p.reductions or p.reads() & c.writes()):
        return "the reader's steps depend on each other"
    return None


def _bijection(p: Kernel, c: Kernel) -> Map | str:
    """The producer's axes as maps of the consumer's, when both run over the same points."""
    names = p.writes()
    conflict = _order_conflict(p, c)
    if conflict is not None:
        return conflict
    if _inside_reduction(c, names):
        return "the reader sums or compares many values for each of its own"
    if not _same_style(p, c):
        return OTHER_LANES
    if len(p.reductions) + len(c.reductions) > MAX_REDUCTIONS:
        return TOO_MANY_SUMS
    if p.work + c.work - _number_of_reads(c, names) > MAX_WORK:
        return TOO_MUCH_WORK
    stores = {s.access.buffer: s.access for s in p.stores}
    parts = [s.access.buffer for s in p.stores]
    images: Map | None = None
    for load in _reads_of(c, names):
        if parts.count(load.access.buffer) > 1:
            return IN_PARTS
        if load.index:
            return COMPUTED_INDEX
        if load.mask is not None:
            return PADDED
        found = solve(stores[load.access.buffer], p.axes, load.access)
        if found is None:
            return OTHER_ORDER
        if images is not None and found != images:
            return "the reader needs several values for each of its own"
        images = found
    assert images is not None
    if set(_axes_of(images)) != set(c.axes):
        return "the reader uses each value several times"
    if product([a.extent for a in p.axes]) != product([a.extent for a in c.axes]):
        return "the reader uses only a part of the values"
    return images


def _axes_of(images: Map) -> Iterator[Axis]:
    for image in images.values():
        for axis, _ in image.terms:
            yield axis


def _merged(p: Kernel, c: Kernel, images: Map, dead: set[str]) -> Kernel:
    """One kernel of both, over the axes of the reader, unless the writer is long and keeps its own.

    Joining one reader after the other to a chain then takes linear time.
    """
    back = _inverse(images) if p.work > max(c.work, LONG) else None
    if back is None:
        p = _along(p, images)
    else:
        c = _along(c, back)
    # All loads of a buffer have the same images, however their addresses are written.
    values = {s.access.buffer: s.value for s in p.stores}
    read = c.reads()
    shift = len(p.reductions)

    def leaf(node: Expr) -> Expr | None:
        return values.get(node.access.buffer) if isinstance(node, Load) else None

    own = tuple(s.map(lambda e: rewrite(shift_reduced(e, shift), leaf)) for s in c.stores)
    kept = tuple(s for s in p.stores if s.access.buffer not in dead)
    merged = replace(
        c,
        reductions=p.reductions + c.reductions,
        stores=kept + own,
        sources=tuple(dict.fromkeys(p.sources + c.sources)),
    )
    return _shared(merged.extending(p) if dead <= read else merged)


def _inverse(images: Map) -> Map | None:
    """The axes of the images as maps of the others, where the two differ in names only."""
    back: dict[Axis, Affine] = {}
    for axis, image in images.items():
        if image.offset != 0 or len(image.terms) != 1 or image.terms[0][1] != 1:
            return None
        back[image.terms[0][0]] = Affine(0, ((axis, 1),))
    return back


def _along(kernel: Kernel, images: Map) -> Kernel:
    """The kernel at the points that the images of its axes give."""
    axes = tuple(dict.fromkeys(a for axis in kernel.axes for a, _ in images[axis].terms))
    return replace(
        kernel,
        axes=axes,
        ordered=tuple(a for axis in kernel.ordered for a, _ in images[axis].terms),
        reductions=tuple(substitute_reduce(r, images) for r in kernel.reductions),
        stores=tuple(substitute_store(s, images) for s in kernel.stores),
    )


def _points_read(p: Kernel, reader: Kernel) -> Size | str:
    """How many elements of the producer's result the reader loads, repetitions counted."""
    store = p.stores[0]
    names = {store.access.buffer}
    conflict = _order_conflict(p, reader)
    if conflict is not None:
        return conflict
    nested = _inside_reduction(reader, names)
    if nested and p.reductions:
        return "the reader sums over values that are sums themselves"
    if not _same_style(p, reader):
        return OTHER_LANES
    count = _number_of_reads(reader, names)
    if reader.work + (p.work - 1) * count > MAX_WORK:
        return TOO_MUCH_WORK
    if len(p.reductions) * count + len(reader.reductions) > MAX_REDUCTIONS:
        return TOO_MANY_SUMS
    total: Size = 0
    for load in _reads_of(reader, names):
        if load.index:
            return COMPUTED_INDEX
        if solve(store.access, p.axes, load.access) is None:
            return OTHER_ORDER
        if load.mask is not None and (p.reductions or not _is_free(p)):
            return PADDED
        total = total + product(_space(reader, load))
    return total


def _space(reader: Kernel, load: Load) -> list[Size]:
    """The extents of all loops around a load."""
    extents = [axis.extent for axis in reader.axes]
    for reduce in reader.reductions:
        if load in set(walk(*reduce.operands)):
            extents += [axis.extent for axis in reduce.axes]
            break
    return extents


def _is_free(p: Kernel) -> bool:
    """Whether computing a value again costs no more than loading it."""
    if p.reductions or len(p.stores) != 1:
        return False
    nodes = list(walk(p.stores[0].value))
    return all(
        isinstance(n, Const | Cast | Index | Extent)
        or (isinstance(n, Load) and not n.mask and not n.index)
        for n in nodes
    )


def _inlined(p: Kernel, reader: Kernel) -> Kernel:
    """The reader computing the producer's values itself, one set of reductions for each load."""
    (store,) = p.stores
    reductions = list(reader.reductions)
    replacements: dict[Load, Expr] = {}
    for load in _reads_of(reader, {store.access.buffer}):
        images = solve(store.access, p.axes, load.access)
        assert images is not None
        value = substitute(shift_reduced(store.value, len(reductions)), images)
        reductions += [substitute_reduce(r, images) for r in p.reductions]
        if load.mask is not None and load.other is not None:
            value = _masked(value, load)
        replacements[load] = value

    sources = tuple(dict.fromkeys(p.sources + reader.sources))
    joined = replace(reader, reductions=tuple(reductions), sources=sources)
    return _shared(map_loads(joined, replacements.get))


def _masked(value: Expr, load: Load) -> Expr:
    """A free value that must not be touched where the reader's mask is false."""
    assert load.mask is not None and load.other is not None
    if isinstance(value, Load):
        return replace(value, mask=load.mask, other=load.other)
    return Op("select", (load.mask, value, load.other), dtype_of(value))


def _shared(kernel: Kernel) -> Kernel:
    """The kernel with equal reductions computed once."""
    numbering: dict[int, int] = {}
    kept: list[Reduce] = []
    for position, reduce in enumerate(kernel.reductions):
        if reduce not in kept:
            kept.append(reduce)
        numbering[position] = kept.index(reduce)
    if len(kept) == len(kernel.reductions):
        return kernel

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Reduced):
            return Reduced(numbering[node.position], node.dtype)
        return None

    stores = tuple(s.map(lambda e: rewrite(e, leaf)) for s in kernel.stores)
    return replace(kernel, reductions=tuple(kept), stores=stores)
