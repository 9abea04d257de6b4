"""Analyses of a kernel's loads and stores: along its lanes, along its rows, between points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import (
    FLOATS,
    ITEM_BYTES,
    Access,
    Axis,
    Expr,
    Index,
    Load,
    Op,
    children,
    dtype_of,
    walk,
)
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Buffer
from ostinato.program.words import BYTES
from ostinato.records import dataclass
from ostinato.schedule.overlaps import overlap
from ostinato.sizes.dims import Size, exact_quotient, is_polynomial, product, terms_of

_BYTES = ("int8", "uint8")
# Element types of images and sequences, whose channels and positions may swap in memory.
TURNED = (*FLOATS, *_BYTES)
# The extent assumed for an axis that is only known at run time. Not a fact about machines:
# sequences are longer, batches and chunks of streams are shorter.
TYPICAL_EXTENT = 64
# Terms of a sum that are loaded at once where terms, and not lanes, are neighbours in memory.
TERMS_ACROSS = 4
# Long sums over rows of memory are added in pieces of this many terms. Not a fact about machines:
# operands of 128 rows of up to 2 KiB stay in any second-level cache until all tiles have read them
# (`benchmarks.bench_training` has such sums).
DEPTH = 128
# The same where a single row of sums reads each row of memory once, in runs too short to be
# prefetched: eight rows are then read from end to end side by side. 512 terms of 2048 columns take
# 0.6 of the time on Zen 3 (`benchmarks.bench_micro`, row `given rows`), those of 512 columns 0.7; 4
# rows are as good, 16 mostly.
RUN_DEPTH = 8
_SHORT_RUN_BYTES = 512
# The same for products of so many rows and columns that the operands of a tile leave the
# second-level cache before the next tile reads them: 100 rows of 3072 terms with 768 sums of each
# take 0.84 of the time in pieces, 32 rows of 8192 terms with 256 sums 0.73, a convolution of
# dilation 12 from 2048 to 256 channels of 33 x 33 pixels 0.47 (`bench_micro`).
LONG_DEPTH = 1024
# Fewer rows fit one tile, which reads nothing again: 8 rows of 4096 terms take twice the time in
# pieces.
_LONG_ROWS = 16
# From so many points on, tiles read a panel so often that it stays in the second-level cache beside
# the next one: products of 1536 terms over 128 rows take 0.98 of the time with panels of 3 vectors,
# not 2, windows of 2304 terms over 1,000 pixels 0.85 with 2 in place of 1, those over 36 pixels
# longer.
MANY_POINTS = 64


def typical(size: Size) -> int:
    """The size, or a typical value of one that only a run tells."""
    return size if isinstance(size, int) else TYPICAL_EXTENT


def estimate(size: Size) -> int:
    """The size, with typical values for symbols."""
    return sum(count * TYPICAL_EXTENT ** len(monomial) for monomial, count in terms_of(size))


def is_packable(kernel: Kernel, load: Load, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a reduction's operand can be laid out in the order in which it is read."""
    axes = [axis for axis, _ in load.access.terms]
    if load.mask is not None or load.index or not kernel.own_axes.issuperset(axes):
        return False
    buffer = buffers[load.access.buffer]
    if buffer.is_copy:
        return True
    return buffer.kind == "constant" and all(isinstance(axis.extent, int) for axis in axes)


def accesses(kernel: Kernel) -> Iterator[tuple[Access, float, Load | None]]:
    """Yield every access, how often it happens per point, and the load if it is one of a sum."""
    inner: dict[Expr, float] = {}
    once: set[Load] = set()
    for reduce in kernel.reductions:
        trips = 1.0
        for axis in reduce.axes:
            trips *= typical(axis.extent)
        inner.update(dict.fromkeys(reduce.nodes, trips))
        once.update(reduce.loads)
    for load in kernel.loads():
        if load in inner and load not in once:
            continue
        yield load.access, inner.get(load, 1.0), load if load in inner else None
    for store in kernel.stores:
        yield store.access, 1.0, None


def loaded_by_lanes(kernel: Kernel, lane: Axis) -> list[Load]:
    """The loads of the sums that differ by lane: mostly weights."""
    return [load for load in kernel.summed if load.access.stride(lane) != 0]


def widening_by_lanes(kernel: Kernel, lane: Axis) -> tuple[int, int]:
    """Count the scales that the terms of all sums share, and the operations that widen a term."""
    scales: set[Load] = set()
    steps: set[Expr] = set()
    for reduce in kernel.reductions:
        varying: set[Expr] = set()
        for node in reduce.nodes:
            if isinstance(node, Load):
                own = node.access.stride(lane) != 0
                if own and reduce.axes and node.access.stride(reduce.axes[-1]) == 0:
                    scales.add(node)
                elif own:
                    varying.add(node)
            elif any(part in varying for part in children(node)):
                varying.add(node)
                steps.add(node)
    return len(scales), len(steps)


def products_of_a_term(kernel: Kernel) -> int:
    """Count the products of words that a term of a sum adds up itself; the most of all sums."""
    return max((sum(is_inner_product(n) for n in r.nodes) for r in kernel.reductions), default=0)


def is_inner_product(node: Expr) -> bool:
    """Whether a node, in the operands of a sum, adds products of words."""
    return isinstance(node, Op) and node.name == "dot"


def shared_axes(kernel: Kernel, lane: Axis) -> tuple[Axis, ...]:
    """The parallel axes along which the loads that differ by lane do not change."""
    loads = loaded_by_lanes(kernel, lane)
    return tuple(
        axis
        for axis in kernel.axes
        if axis != lane and loads and not any(_differ(load, axis) for load in loads)
    )


def is_turnable(load: Load, axis: Axis) -> bool:
    """Whether neighbours along an axis can be loaded at once and transposed in registers.

    load: of floats, or of the first byte of words, which are neighbours then.
    """
    if load.mask is not None or load.index or load.dtype not in ("float32", *_BYTES):
        return False
    return load.access.stride(axis) == (1 if load.dtype == "float32" else BYTES)


def loads_across(kernel: Kernel, lane: Axis, buffers: Mapping[str, Buffer]) -> list[Load]:
    """The loads of the sums whose lanes are no neighbours, and that cannot be packed."""
    return [
        load
        for load in kernel.summed
        if load.access.stride(lane) not in (0, 1) and not is_packable(kernel, load, buffers)
    ]


def row_axes_of_windows(kernel: Kernel, lane: Axis) -> tuple[Axis, ...]:
    """The axes whose points gain from being rows of a tile, where `shared_axes` has none.

    Their points share a part of their loads, such as the weights of a depthwise convolution; or
    their windows overlap, as those of a pool; or the kernel stores neighbours along them, and not
    along lanes. Where lanes gather at computed places that differ by row, the gathers take all the
    time.
    """
    if kernel.ordered or not kernel.reductions or shared_axes(kernel, lane):
        return ()
    loads = kernel.summed
    gathered = [load for load in loads if load.index and _differ(load, lane)]

    def gains(axis: Axis) -> bool:
        shares = any(not _differ(load, axis) for load in loads)
        stores = [s for s in kernel.stores if s.access.stride(lane) not in (0, 1)]
        beside = any(store.access.stride(axis) == 1 for store in stores)
        takes_time = any(_differ(load, axis) for load in gathered)
        lines = overlap(kernel, axis, lane) is not None
        return beside or (not takes_time and (shares or lines or rows_overlap(kernel, axis)))

    others = [axis for axis in kernel.axes if axis != lane and axis.extent != 1]
    return tuple(axis for axis in others if gains(axis))


def _differ(load: Load, axis: Axis) -> bool:
    """Whether points along an axis load different elements, by strides or by computed positions."""
    if not load.index and load.mask is None:
        return load.access.stride(axis) != 0
    own = [node for node in walk(load) if isinstance(node, Load | Index)]
    return any(
        node.axis == axis if isinstance(node, Index) else node.access.stride(axis) != 0
        for node in own
    )


def neighbour_axes(kernel: Kernel, lane: Axis) -> set[Axis]:
    """The axes, other than that of the lanes, along which sums read neighbours, either way."""
    axes = [axis for axis in kernel.axes if axis != lane]
    return {a for load in kernel.summed for a in axes if load.access.stride(a) in (1, -1)}


def loads_of_a_row(kernel: Kernel, lane: Axis, row: Axis) -> int:
    """Count the elements a row loads, for all lanes, per step of the sums that run together."""
    counts: dict[tuple[Axis, ...], dict[Load, None]] = {}
    for reduce in kernel.reductions:
        for load in reduce.loads:
            if load.access.stride(lane) == 0 != load.access.stride(row):
                counts.setdefault(reduce.axes, {})[load] = None
    return max((len(loads) for loads in counts.values()), default=1)


def rows_overlap(kernel: Kernel, row: Axis) -> bool:
    """Whether a row reads elements that the next row reads some steps later: a moving window."""
    return any(_overlaps(kernel, row, reduce.axes[-1]) for reduce in kernel.reductions)


def may_be_batch(kernel: Kernel, axis: Axis) -> bool:
    """Whether an axis may be a batch: only a run tells its extent, and no window moves along it."""
    extent = axis.extent
    return not isinstance(extent, int) and is_polynomial(extent) and not moves_windows(kernel, axis)


def rows_that_share(kernel: Kernel, row: Axis, copies: int) -> int | None:
    """The distance of the nearest earlier row that reads elements of this row.

    That is within `copies` unrolled steps of the innermost loop. None where rows that share nothing
    lie between any two. Rows of a window with a dilation of three share with the third row before.
    """
    apart = []
    for axis in {r.axes[-1] for r in kernel.reductions}:
        for node in kernel.summed:
            steps, each = node.access.stride(row), node.access.stride(axis)
            if isinstance(steps, int) and isinstance(each, int) and steps and each:
                common = gcd(steps, each)
                steps, each = abs(steps) // common, abs(each) // common
            elif (moved := exact_quotient(steps, each)) is not None:
                steps, each = moved, 1
            few = min(copies, axis.extent) if isinstance(axis.extent, int) else 0
            if isinstance(steps, int) and isinstance(each, int) and 0 < abs(steps) < few:
                apart.append(each)
    return min(apart, default=None)


def moves_windows(kernel: Kernel, axis: Axis) -> bool:
    """Whether windows of neighbours along an axis overlap, along any axis of the sums."""
    return any(_overlaps(kernel, axis, a) for reduce in kernel.reductions for a in reduce.axes)


def _overlaps(kernel: Kernel, axis: Axis, summed: Axis) -> bool:
    """Whether a point reads elements that the next one along `axis` reads some steps later."""
    extent = summed.extent if isinstance(summed.extent, int) else 0
    for node in kernel.summed:
        moved = exact_quotient(node.access.stride(axis), node.access.stride(summed))
        if isinstance(moved, int) and 0 < abs(moved) < extent:
            return True
    return False


def partial_result_stores(kernel: Kernel, lane: Axis) -> tuple[int, ...]:
    """For each sum, the store where its partial results can wait; none if there is no need.

    It is a place that only this kernel uses, and that it writes last anyway.
    """
    loops = {reduce.axes for reduce in kernel.reductions}
    if len(loops) != 1 or any(r.combine != "sum" for r in kernel.reductions):
        return ()
    (axes,) = loops
    terms = product([axis.extent for axis in axes])
    if isinstance(terms, int) and terms <= DEPTH:
        return ()
    read = {load.access.buffer for load in kernel.loads()}
    found: list[int] = []
    for reduce in kernel.reductions:
        for number, store in enumerate(kernel.stores):
            plain = not store.partial and dtype_of(store.value) == reduce.dtype
            own = store.access.buffer not in read and store.access.stride(lane) == 1
            if plain and own and number not in found and reduce.dtype in FLOATS:
                found.append(number)
                break
        else:
            return ()
    return tuple(found)


def reads_rows(kernel: Kernel, lane: Axis) -> bool:
    """Whether the terms of long sums are rows of memory along which points read."""
    is_single = all(len(reduce.axes) == 1 for reduce in kernel.reductions)
    pieces = is_single and partial_result_stores(kernel, lane)
    return bool(pieces) and bool(neighbour_axes(kernel, lane))


def _reads_runs(
    kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]
) -> bool:
    """Whether tiles of a single row of sums read short runs of longer rows of memory."""
    run = machine.accumulators * machine.vector_bytes
    if run >= _SHORT_RUN_BYTES or any(len(reduce.axes) != 1 for reduce in kernel.reductions):
        return False

    def is_row(load: Load) -> bool:
        item, size = ITEM_BYTES[load.dtype], buffers[load.access.buffer].size
        apart = load.access.stride(kernel.reductions[0].axes[0])
        is_near = isinstance(size, int) and size * item <= machine.near_bytes
        is_plain = load.mask is None and not load.index and not is_packable(kernel, load, buffers)
        is_apart = isinstance(apart, int) and min(apart, typical(lane.extent)) * item > run
        return is_plain and is_apart and not is_near and load.access.stride(lane) == 1

    return all(is_row(load) for load in loaded_by_lanes(kernel, lane))


def depth_of(
    kernel: Kernel, lane: Axis, row: Axis | None, machine: Machine, buffers: Mapping[str, Buffer]
) -> int | None:
    """How many steps of the sums' outermost axis all points add before the next ones.

    None where each point adds all of its terms. The order of the terms of a sum stays: partial
    results wait where results are stored.
    """
    if not partial_result_stores(kernel, lane):
        return None
    if row is None:
        return RUN_DEPTH if _reads_runs(kernel, lane, machine, buffers) else None
    if row in neighbour_axes(kernel, lane) and all(len(r.axes) == 1 for r in kernel.reductions):
        return DEPTH
    shared, lanes = shared_axes(kernel, lane), loaded_by_lanes(kernel, lane)
    is_constant = all(
        buffers[load.access.buffer].kind == "constant" and is_packable(kernel, load, buffers)
        for load in lanes
    )
    is_one = len(kernel.reductions) == 1 and not widening_by_lanes(kernel, lane)[1]
    if not is_one or row not in shared or not is_constant:
        return None
    (reduce,) = kernel.reductions
    rows = product([axis.extent for axis in shared])
    inner = product([axis.extent for axis in reduce.axes[1:]])
    terms = inner * reduce.axes[0].extent
    if not (isinstance(rows, int) and isinstance(inner, int) and isinstance(terms, int)):
        return None
    if rows < (_LONG_ROWS if rows == row.extent else MANY_POINTS) or terms < 2 * LONG_DEPTH:
        return None
    is_long = rows * terms * ITEM_BYTES[reduce.dtype] > machine.far_bytes
    is_deep = 4 * machine.vector_bytes * terms > machine.paired_bytes
    if not (is_long or is_deep):
        return None
    steps = max(1, LONG_DEPTH // inner)
    met = [_bytes_of_a_step(load, reduce.axes[0]) for load in kernel.summed if load not in lanes]
    if sum(met) * steps > machine.far_bytes:
        # Each term then lies in pages of its own; the loads alternate between the pages.
        near = machine.panel_bytes // sum(met)
        steps = max(1, min(near, machine.followed_pages // inner))
    return steps


def _bytes_of_a_step(load: Load, summed: Axis) -> int:
    """Bytes of the lines that all points and inner terms read per step of a sum's outermost axis.

    0 where steps are neighbours in memory: what is prefetched comes in time. A dilated convolution
    of 2048 channels of 33 x 33 pixels takes 0.70 of the time with pieces of 32 channels in place of
    256, whose lines leave the second-level cache, and 0.87 of that with 3 to 8 channels
    (`benchmarks.bench_micro`).
    """
    item, step = ITEM_BYTES[load.dtype], typical(load.access.stride(summed))
    if abs(step) * item < LINE_BYTES:
        return 0
    others = [(axis.extent, stride) for axis, stride in load.access.terms if axis != summed]
    run = max((typical(extent) for extent, stride in others if stride == 1), default=1)
    lines = 1 + (run * item - 1) / LINE_BYTES
    count = product([extent for extent, stride in others if stride != 1])
    return int(min(typical(count) * lines * LINE_BYTES, abs(step) * item))


def neighbouring_stores(kernel: Kernel) -> list[list[Store]]:
    """The stores of a point, grouped by those that write adjacent elements."""
    # Where a point reads what it writes, the order of its stores matters.
    if len(kernel.stores) == 1 or kernel.ordered or not kernel.reads().isdisjoint(kernel.writes()):
        return [[store] for store in kernel.stores]
    groups: list[list[Store]] = []
    ends: dict[Access, list[Store]] = {}
    for store in kernel.stores:
        access = store.access
        group = ends.pop(Access(access.buffer, access.offset - 1, access.terms), None)
        if group is None:
            group = []
            groups.append(group)
        group.append(store)
        ends.setdefault(access, group)
    return groups


def fill_memory(stores: Sequence[Store], lane: Axis) -> bool:
    """Whether adjacent stores of a point, 2^n or 3 of them, leave no gap between lanes."""
    count = len(stores)
    plain = all(store.mask is None and not store.index for store in stores)
    is_shuffled = count == 3 or (count > 1 and count & (count - 1) == 0)
    return plain and is_shuffled and stores[0].access.stride(lane) == count


def filling_stores(kernel: Kernel, lane: Axis) -> dict[Access, int]:
    """Stores of a point that fill memory together with adjacent ones, and how many these are."""
    groups = [group for group in neighbouring_stores(kernel) if fill_memory(group, lane)]
    return {store.access: len(group) for group in groups for store in group}


@dataclass(frozen=True)
class Panel:
    """Operands that are read together: same axes around them, same element type.

    inner: the axes of their sums along which they differ; scales of weights do not.
    """

    outer: tuple[Axis, ...]
    block: Axis | None
    lane: Axis
    inner: tuple[Axis, ...]
    loads: tuple[Load, ...]
