"""Whether two kernels can be joined, and the kernel that they become.

Refusals say why not. `fuse` decides which pairs are tried.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import TypeAlias

from ostinato.program.expr import (
    Access,
    Axis,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Load,
    Op,
    Reduced,
    constant,
    dtype_of,
    rewriter,
    walk,
)
from ostinato.program.kernel import Kernel, Reduce, Store, map_loads, with_sums
from ostinato.program.nodes import Buffer
from ostinato.program.words import first_of_word
from ostinato.schedule.index_maps import (
    Affine,
    Map,
    is_one_to_one,
    shifter,
    solve,
    substitute,
    substitute_access,
    substitute_kernel,
    substitute_reduce,
    substitute_stores,
)
from ostinato.sizes.dims import Size, exact_quotient, is_at_most, is_nonnegative, product

_Place: TypeAlias = "tuple[str, Size, frozenset[tuple[Axis, Size]]]"

# Half of the smallest file of vector registers (AVX2 has 16): each sum of a single row and vector
# then has a register, with as many left for operands. The same on all machines, so that a model has
# the same kernels everywhere.
MAX_REDUCTIONS = 8
# A joined kernel has at most this many operations and loads per point. Joining saves a store and a
# load for each vector of the value between, up to 20 cycles where that leaves the caches; this many
# operations take several hundred. LLVM takes more than linear time for larger functions, and
# kernels that are cut in the same way share one (`benchmarks.bench_depth` measures both).
MAX_WORK = 512
# Writers of at least so many expressions are not rebuilt for each reader that joins: below,
# rebuilding takes about as long as the rest of joining two kernels.
LONG = 32

IN_PARTS = "the value is made part by part, by several kernels or stores"
APART = "the reader needs several long sums, which load nothing in common"
# More sums than these gain nothing in one kernel where they load nothing in common: alone, each has
# all registers for its tile, and its weights stay in a cache. Sums of few terms, or of few points,
# which fill no tiles, do gain: they save their stores. 3 to 8 sums of 128 or 512 terms take 1.0 to
# 1.5 of the time in one kernel with AVX-512, and up to 1.8 with AVX2, at 8,192 points or more, and
# 0.9 to 1.0 at fewer (products of a batch whose results are added, by turns).
MOST_APART = 2
LONG_TERMS = 128
MANY_POINTS = 1024
OTHER_LANES = "one sums along the lanes of a register, the other one sum per lane"
TOO_MANY_SUMS = f"together they keep more than {MAX_REDUCTIONS} sums, too many for the registers"
TOO_MUCH_WORK = f"together they are more than {MAX_WORK} operations, too many for one kernel"
COMPUTED_INDEX = "the reader picks values by indices that are computed while running"
PADDED = "the reader pads the value"
READ_AGAIN = "several readers would each load the same weights"
TELLS_SIZE = "the writer computes a size of the reader"
AS_WORDS = "the reader loads four bytes at once"
OTHER_ORDER = "the reader takes the values apart in another way than the writer lays them out"


def _reads_of(kernel: Kernel, names: Set[str]) -> list[Load]:
    if len(names) == 1:
        return list(kernel.loads_from(*names))
    return [load for load in kernel.loads() if load.access.buffer in names]


def _number_of_reads(kernel: Kernel, names: Set[str]) -> int:
    """Count the loads that `_reads_of` finds, without a walk of the kernel."""
    return sum(kernel.loaded_from.get(name, 0) for name in names)


def _inside_reduction(kernel: Kernel, names: Set[str]) -> bool:
    return any(isinstance(n, Load) and n.access.buffer in names for n in walk(*kernel.operands))


def _loads_words(kernel: Kernel, names: Set[str]) -> bool:
    """Whether sums of the kernel multiply words of neighbouring bytes of these buffers."""
    firsts = filter(None, map(first_of_word, kernel.operands))
    return any(first.access.buffer in names for first in firsts)


def _in_chains(kernel: Kernel) -> bool:
    return any(r.chains > 1 for r in kernel.reductions)


def _same_style(p: Kernel, c: Kernel) -> bool:
    return not (p.reductions and c.reductions and _in_chains(p) != _in_chains(c))


def _order_conflict(p: Kernel, c: Kernel) -> str | None:
    """Say why two kernels whose points may match cannot be one because of an order, or None."""
    if p.writes() & c.sizes:
        return TELLS_SIZE
    if p.ordered:
        return "the writer's steps depend on each other"
    if p.stores_partly:
        return "the writer picks places by indices that are computed while running"
    if c.ordered and (p.reductions or p.reads() & c.writes()):
        return "the reader's steps depend on each other"
    return None


def bijection(p: Kernel, c: Kernel) -> Map | str:
    """Map the producer's axes to the consumer's, where both run over the same points.

    Otherwise say why there is no such map.
    """
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
    images: Map | None = None
    # The addresses written at the points of the images, each solved for once.
    written: set[_Place] = set()
    for load in _reads_of(c, names):
        if load.index:
            return COMPUTED_INDEX
        if load.mask is not None:
            return PADDED
        if _place(load.access) in written:
            continue
        found = next((f for _, f in _written(p, load)), None)
        if found is None:
            return IN_PARTS if _parts(p)[load.access.buffer] > 1 else OTHER_ORDER
        if images is not None and found != images:
            return "the reader needs several values for each of its own"
        images = found
        stored = (s.access for s in p.stores if s.access.buffer in c.loaded_from)
        written |= {_place(substitute_access(access, found)) for access in stored}
    assert images is not None
    if set(_axes_of(images)) != set(c.axes):
        return "the reader uses each value several times"
    return images if is_one_to_one(images) else "the reader uses only a part of the values"


def _place(access: Access) -> _Place:
    """A key of an address that does not depend on the order of its terms."""
    return access.buffer, access.offset, frozenset(access.terms)


def _parts(p: Kernel) -> Mapping[str, int]:
    """Count the stores to each buffer."""
    return Counter([store.access.buffer for store in p.stores])


def _written(p: Kernel, load: Load) -> Iterator[tuple[Store, Map]]:
    """The store that writes what is loaded, and the producer's axes as maps of the reader's."""
    for store in p.stores:
        if store.access.buffer == load.access.buffer:
            images = solve(store.access, p.axes, load.access)
            if images is not None:
                yield store, images


def _axes_of(images: Map) -> Iterator[Axis]:
    for image in images.values():
        for axis, _ in image.terms:
            yield axis


def merged(p: Kernel, c: Kernel, images: Map, dead: set[str]) -> Kernel:
    """Merge two kernels, over the axes of the reader; a long writer keeps its own axes.

    So joining one reader after the other to a chain takes linear time.
    """
    back = _inverse(images) if len(p.nodes) > max(len(c.nodes), LONG) else None
    if back is None:
        writers = _writers(p, c)
        p = _along(p, images)
    else:
        c = _along(c, back)
        writers = _writers(p, c)
    read = c.reads()
    shift = len(p.reductions)

    def leaf(node: Expr) -> Expr | None:
        number = writers.get(node) if isinstance(node, Load) else None
        return None if number is None else p.stores[number].value

    shifted, answered = shifter(shift), rewriter(leaf)
    own = tuple(s.map(shifted).map(answered) for s in c.stores)
    kept = tuple(s for s in p.stores if s.access.buffer not in dead)
    merged = replace(
        c,
        reductions=p.reductions + c.reductions,
        stores=kept + own,
        sources=tuple(dict.fromkeys(p.sources + c.sources)),
    )
    return _shared(merged.extending(p) if dead <= read else merged)


def _writers(p: Kernel, c: Kernel) -> dict[Load, int]:
    """Map each load of the reader to the store of the writer that has its value."""
    places = {_place(store.access): number for number, store in enumerate(p.stores)}
    found = {}
    for load in _reads_of(c, p.writes()):
        number = places.get(_place(load.access))
        if number is None:
            number = p.stores.index(next(store for store, _ in _written(p, load)))
        found[load] = number
    return found


def _inverse(images: Map) -> Map | None:
    """Invert images that only rename axes; None for others."""
    back: dict[Axis, Affine] = {}
    for axis, image in images.items():
        if image.offset != 0 or len(image.terms) != 1 or image.terms[0][1] != 1:
            return None
        back[image.terms[0][0]] = Affine(0, ((axis, 1),))
    return back


def _along(kernel: Kernel, images: Map) -> Kernel:
    """The kernel at the points that the images of its axes give."""
    axes = tuple(dict.fromkeys(a for axis in kernel.axes for a, _ in images[axis].terms))
    ordered = tuple(a for axis in kernel.ordered for a, _ in images[axis].terms)
    return replace(substitute_kernel(kernel, images), axes=axes, ordered=ordered)


def in_parts(p: Kernel, c: Kernel) -> Kernel:
    """The reader with a store for each of the stores that interleave a value it reads.

    p: b[2i] = f(i), b[2i + 1] = g(i)    c: y[j] = h(b[j])
    becomes y[2i] = h(b[2i]), y[2i + 1] = h(b[2i + 1]), whose loads p can answer one by one.
    """
    if c.reductions or c.ordered or c.guard is not None or _order_conflict(p, c) is not None:
        return c
    several = [name for name, count in _parts(p).items() if count > 1]
    parted = {name: way for name in several if (way := _interleaving(p, name))}
    loads = _reads_of(c, parted.keys()) if parted else ()
    ways = (_interleaved(load, *parted[load.access.buffer]) for load in loads)
    found = next(filter(None, ways), None)
    if found is None:
        return c
    axis, count = found
    if p.work + count * (c.work - _number_of_reads(c, parted.keys())) > MAX_WORK:
        return c
    assert isinstance(axis.extent, int)
    part = Axis(f"{axis.name}p", axis.extent // count)
    images = [{axis: Affine(number, ((part, count),))} for number in range(count)]
    split = replace(
        c,
        axes=tuple(part if a == axis else a for a in c.axes),
        stores=tuple(s for image in images for s in substitute_stores(c.stores, image)),
    )
    return in_parts(p, split)


def _interleaving(p: Kernel, name: str) -> tuple[Access, set[Size]] | None:
    """One of several stores of a buffer that differ in their offsets alone, and these offsets."""
    accesses = [s.access for s in p.stores if s.access.buffer == name]
    if any(a.terms != accesses[0].terms for a in accesses):
        return None
    return accesses[0], {access.offset for access in accesses}


def _interleaved(load: Load, access: Access, offsets: Set[Size]) -> tuple[Axis, int] | None:
    """An axis of the load along which elements come from the stores in turn, if there is one."""
    for axis, step in load.access.terms:
        for _, stride in access.terms:
            count = exact_quotient(stride, step)
            if not isinstance(count, int) or not 1 < count <= len(offsets):
                continue
            if not isinstance(axis.extent, int) or axis.extent % count:
                continue
            first = {o for o in offsets if o - step not in offsets}
            if {o + n * step for o in first for n in range(count)} == offsets:
                return axis, count
    return None


def points_read(p: Kernel, reader: Kernel) -> Size | str:
    """Count the elements of the producer's result that the reader loads, repetitions included."""
    store = p.stores[0]
    names = {store.access.buffer}
    conflict = _order_conflict(p, reader)
    if conflict is not None:
        return conflict
    nested = _inside_reduction(reader, names)
    if nested and p.reductions and not _is_written_out(p, reader):
        return "the reader sums over values that are sums themselves"
    # Words of computed bytes would take four loads, four computations and three shifts each.
    if nested and not is_free(p) and _loads_words(reader, names):
        return AS_WORDS
    if not _same_style(p, reader):
        return OTHER_LANES
    count, work = _number_of_reads(reader, names), p.work
    if nested and p.reductions:
        work = _work_written_out(p)
    if reader.work + (work - 1) * count > MAX_WORK:
        return TOO_MUCH_WORK
    if not nested and len(p.reductions) * count + len(reader.reductions) > MAX_REDUCTIONS:
        return TOO_MANY_SUMS
    total: Size = 0
    images: list[Map] = []
    for load in _reads_of(reader, names):
        if load.index:
            return COMPUTED_INDEX
        image = solve(store.access, p.axes, load.access)
        if image is None:
            return OTHER_ORDER
        images.append(image)
        if load.mask is not None and (p.reductions or not is_free(p)):
            return PADDED
        total = total + product(_space(reader, load))
    if len(images) > MOST_APART and _are_apart(p, images):
        return APART
    return total


def _work_written_out(p: Kernel) -> int:
    """Loads and operations of a point of a kernel with the terms of its sum written out.

    Four bytes of a word are one load.
    """
    (reduce,) = p.reductions
    terms = product([axis.extent for axis in reduce.axes])
    assert isinstance(terms, int)
    return terms * (len(reduce.loads) + 1) + p.work


def _is_written_out(p: Kernel, reader: Kernel) -> bool:
    """Whether sums of the reader can have that of a kernel as an expression in their terms.

    Products of words are added in any order. Sums of the reader are of products too: such a term
    has weights of its own, which rows of a tile share.
    """
    if len(p.reductions) != 1 or len(p.stores) != 1 or p.reductions[0].step != "dot":
        return False
    is_known = all(isinstance(axis.extent, int) for axis in p.summed_axes)
    return is_known and all(reduce.factor is not None for reduce in reader.reductions)


def _are_apart(p: Kernel, images: list[Map]) -> bool:
    """Whether the sums of a kernel are long, many, and load nothing in common at these points."""
    if all(_are_fewer(r.axes, LONG_TERMS) for r in p.reductions) or _are_fewer(p.axes, MANY_POINTS):
        return False
    loads = {n for r in p.reductions for n in walk(*r.operands) if isinstance(n, Load)}
    for load in loads:
        places = {substitute_access(load.access, image) for image in images}
        if len(places) < len(images):
            return False
    return True


def reads_again(p: Kernel, readers: Iterable[Kernel], buffers: Mapping[str, Buffer]) -> bool:
    """Whether readers that compute a kernel's values load more than the store and load they save.

    A product of many rows loads its weights once. Readers of a row each, such as the steps of an
    unrolled loop, would load all of them.
    """
    (store,) = p.stores
    names = {store.access.buffer}
    loads = [load for reader in readers for load in _reads_of(reader, names)]
    images = [image for load in loads if (image := solve(store.access, p.axes, load.access))]
    more: Size = 0
    for load in {n for r in p.reductions for n in walk(*r.operands) if isinstance(n, Load)}:
        if buffers[load.access.buffer].kind == "constant":
            axes = [axis for axis, _ in load.access.terms]
            parts = [_volume({a for axis in axes for a in _along_of(axis, i)}) for i in images]
            more = more + sum(parts) - _volume(axes)
    return not is_at_most(more, 2 * _volume(p.axes))


def _along_of(axis: Axis, images: Map) -> Iterable[Axis]:
    """The axes of a reader that move along an axis of the producer, or of its sums."""
    return (a for a, _ in images[axis].terms) if axis in images else (axis,)


def _volume(axes: Iterable[Axis]) -> Size:
    return product([axis.extent for axis in axes])


def _are_fewer(axes: tuple[Axis, ...], number: int) -> bool:
    """Whether the axes are known to have fewer points."""
    return is_nonnegative(number - 1 - _volume(axes))


def _space(reader: Kernel, load: Load) -> list[Size]:
    """The extents of all loops around a load."""
    extents = [axis.extent for axis in reader.axes]
    for reduce in reader.reductions:
        if load in set(walk(*reduce.operands)):
            extents += [axis.extent for axis in reduce.axes]
            break
    return extents


def is_free(p: Kernel) -> bool:
    """Whether computing a value again costs no more than loading it."""
    if p.reductions or len(p.stores) != 1:
        return False
    nodes = list(walk(p.stores[0].value))
    return all(
        isinstance(n, Const | Cast | Index | Extent)
        or (isinstance(n, Load) and not n.mask and not n.index)
        for n in nodes
    )


def inlined(p: Kernel, reader: Kernel) -> Kernel:
    """Let the reader compute the producer's values, with one set of reductions for each load."""
    (store,) = p.stores
    reductions = list(reader.reductions)
    replacements: dict[Load, Expr] = {}
    if p.reductions and _inside_reduction(reader, p.writes()):
        p = _written_out(p)
        (store,) = p.stores
    for load in _reads_of(reader, {store.access.buffer}):
        images = solve(store.access, p.axes, load.access)
        assert images is not None
        value = substitute(shifter(len(reductions))(store.value), images)
        reductions += [substitute_reduce(r, images) for r in p.reductions]
        if load.mask is not None and load.other is not None:
            value = _masked(value, load)
        replacements[load] = value

    sources = tuple(dict.fromkeys(p.sources + reader.sources))
    joined = replace(reader, reductions=tuple(reductions), sources=sources)
    return _shared(map_loads(joined, replacements.get))


def _written_out(p: Kernel) -> Kernel:
    """The kernel with its sum of products of words as one expression."""
    (reduce,) = p.reductions
    extents = [axis.extent for axis in reduce.axes if isinstance(axis.extent, int)]
    total: Expr = constant(0, reduce.dtype)
    for place in itertools.product(*(range(extent) for extent in extents)):
        at = {axis: Affine(n, ()) for axis, n in zip(reduce.axes, place, strict=True)}
        operands = [substitute(operand, at) for operand in reduce.operands]
        total = Op(reduce.step, (*operands, total), reduce.dtype)

    def leaf(node: Expr) -> Expr | None:
        return total if isinstance(node, Reduced) else None

    stores = tuple([store.map(rewriter(leaf)) for store in p.stores])
    return replace(p, reductions=(), stores=stores)


def _masked(value: Expr, load: Load) -> Expr:
    """Mask a free value where the reader's mask is false: what it reads must not be touched."""
    assert load.mask is not None and load.other is not None
    if isinstance(value, Load):
        return replace(value, mask=load.mask, other=load.other)
    return Op("select", (load.mask, value, load.other), dtype_of(value))


def _shared(kernel: Kernel) -> Kernel:
    """Compute equal reductions of a kernel once."""
    numbering: dict[int, int] = {}
    kept: list[Reduce] = []
    for position, reduce in enumerate(kernel.reductions):
        if reduce not in kept:
            kept.append(reduce)
        numbering[position] = kept.index(reduce)
    if len(kept) == len(kernel.reductions):
        return kernel
    return with_sums(kernel, tuple(kept), numbering)
