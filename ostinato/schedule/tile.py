"""Cut kernels into register tiles: the axis the lanes run along, how many vectors and rows.

`cost` says which way takes the fewest cycles; this changes the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Expr, Index, constant, op, sized
from ostinato.program.kernel import Kernel, Tile
from ostinato.program.nodes import Buffer, Program, map_kernels
from ostinato.schedule.chains import gathers
from ostinato.schedule.cost import Choice, cheapest_shape, groups_of_one_row
from ostinato.schedule.index_maps import Affine, replace_axes, split_axis
from ostinato.schedule.lanes import (
    CLOSE,
    cycles_apart,
    cycles_of_lanes,
    is_far,
    lane_score,
    lane_width,
    loads_to_fill,
)
from ostinato.schedule.matrices import matrix_tile
from ostinato.schedule.operands import (
    accesses,
    depth_of,
    filling_stores,
    is_packable,
    may_be_batch,
    moves_windows,
    neighbour_axes,
    partial_result_stores,
    reads_rows,
    row_axes_of_windows,
    shared_axes,
    typical,
)
from ostinato.schedule.shapes import Rows, has_even_rows, row_axes, rows_across
from ostinato.schedule.sums import ROW_CHOICES
from ostinato.schedule.transposes import (
    is_turned,
    transposed_rows,
    transposition,
    turned_cycles,
    turned_lines,
    turned_tile,
)
from ostinato.sizes.dims import ceildiv, product

# Along so many tiles of rows, a run of all of them and a rest takes little longer than full tiles:
# neighbours in memory are better rows than points of a longer axis that lie apart (input products
# of a recurrence over 47 steps of 65 rows, channels first, take 0.65 of the time).
_FULL_TILES = 4


def tile(program: Program, machine: Machine) -> Program:
    """Give every kernel a `Tile`, padding the axis of the lanes to whole vectors."""

    def change(kernel: Kernel) -> Kernel:
        return tile_kernel(kernel, machine, program.buffers) if kernel.tile is None else kernel

    return program.with_body(map_kernels(program.body, change))


def tile_readers(program: Program, machine: Machine) -> Program:
    """Give a `Tile` to all kernels but copies, whose layout follows from their reader later."""

    def change(kernel: Kernel) -> Kernel:
        if any(program.buffers[name].is_copy for name in kernel.writes()):
            return kernel
        return tile_kernel(kernel, machine, program.buffers)

    return program.with_body(map_kernels(program.body, change))


def tile_kernel(kernel: Kernel, machine: Machine, buffers: Mapping[str, Buffer]) -> Kernel:
    """The kernel with its `Tile`."""
    lane, stored = _lanes(kernel, machine, buffers)
    if lane is None:
        return replace(kernel, tile=Tile(None, 1))
    if stored is not None:
        width = lane_width(kernel, lane, machine)
        rows = transposed_rows(kernel, lane, stored, machine)
        # Computed places are evaluated once for all lanes of a tile.
        at_places = any(load.index for load in kernel.loads())
        vectors = 2 if at_places and typical(lane.extent) % (2 * width) == 0 else 1
        return _split(kernel, lane, Tile(lane, width, vectors, row=stored, rows=rows))
    if _scattered(kernel, lane, machine, buffers):
        return replace(kernel, tile=Tile(None, 1, row=lane, rows=max(ROW_CHOICES)))
    if kernel.reductions:
        for axis in (lane, *(a for a in _lane_axes(kernel) if a != lane and _is_stored(kernel, a))):
            matrix = matrix_tile(kernel, axis, machine, buffers)
            if matrix is not None:
                return _split(kernel, axis, matrix)
        lane, choice = _cheapest_lane(kernel, lane, _lane_axes(kernel), machine, buffers)
        if is_turned(kernel, lane, machine, buffers):
            return _split(kernel, lane, turned_tile(kernel, lane, machine))
        return _split(kernel, lane, _tile_of_sums(kernel, lane, choice, machine, buffers))
    if not kernel.loaded and not any(s.access.stride(lane) in (0, 1) for s in kernel.stores):
        # Storing constants that lie apart one after the other is at least as fast.
        return replace(kernel, tile=Tile(None, 1))
    width = lane_width(kernel, lane, machine)
    extent = lane.extent
    vectors = 2 if not isinstance(extent, int) or extent % (2 * width) == 0 else 1
    return _split(kernel, lane, Tile(lane, width, vectors))


def _is_stored(kernel: Kernel, axis: Axis) -> bool:
    """Whether neighbours along an axis are stored next to each other."""
    return all(store.access.stride(axis) == 1 for store in kernel.stores)


def _lanes(
    kernel: Kernel, machine: Machine, buffers: Mapping[str, Buffer]
) -> tuple[Axis | None, Axis | None]:
    """The axis of the lanes before tiles of sums are compared; rows, if the tile is transposed."""
    candidates = _lane_axes(kernel)
    if any(r.chains > 1 for r in kernel.reductions) or not candidates:
        return None, None
    turned = transposition(kernel, machine)
    if turned is not None:
        return turned
    return max(candidates, key=lambda axis: lane_score(kernel, axis, machine, buffers)), None


def lane_of(kernel: Kernel, machine: Machine, buffers: Mapping[str, Buffer]) -> Axis | None:
    """The axis that lanes of the kernel's tiles will run along; None for scalars."""
    lane, _ = _lanes(kernel, machine, buffers)
    if lane is None or not kernel.reductions or _scattered(kernel, lane, machine, buffers):
        return lane
    return _cheapest_lane(kernel, lane, _lane_axes(kernel), machine, buffers)[0]


def estimated_cycles(kernel: Kernel, machine: Machine, buffers: Mapping[str, Buffer]) -> float:
    """Cycles of loads, stores and multiply-adds of a kernel with the tile that it would have."""
    points = float(prod(typical(axis.extent) for axis in kernel.axes))
    lane, stored = _lanes(kernel, machine, buffers)
    if lane is None:
        return points * _scalar_cycles(kernel, machine)
    extent, width = typical(lane.extent), lane_width(kernel, lane, machine)
    if kernel.reductions and not _scattered(kernel, lane, machine, buffers):
        lane, choice = _cheapest_lane(kernel, lane, _lane_axes(kernel), machine, buffers)
        extent, width = typical(lane.extent), lane_width(kernel, lane, machine)
        if is_turned(kernel, lane, machine, buffers):
            vectors = points / max(extent, 1) * -(-extent // width)
            return vectors * turned_cycles(kernel, lane, machine, buffers)
        if shared_axes(kernel, lane) or row_axes_of_windows(kernel, lane):
            cycles = points / extent * -(-extent // width) * choice.cycles * _terms(kernel)
            return cycles + cycles_apart(kernel, lane, choice.shape, width, machine, buffers)
    vectors = points / max(extent, 1) * -(-extent // width)
    if stored is not None:
        each = dict(machine.transposed_cycles)[machine.transposed_rows]
        cycles = vectors * len(kernel.stores) * each
        return cycles + turned_lines(kernel, stored, machine, buffers) * machine.apart_cycles
    cycles, filling, held = 0.0, filling_stores(kernel, lane), _held(kernel, lane, width)
    for access, weight, load in accesses(kernel):
        stride = access.stride(lane)
        if access in held:
            continue
        if load is None and access in filling:
            cycles += weight * loads_to_fill(filling[access]) * machine.load_cycles
            continue
        is_packed = load is not None and is_packable(kernel, load, buffers)
        beside = stride == 0 or is_packed
        cycles += weight * cycles_of_lanes(1 if beside else stride, machine)
    return vectors * cycles


def _held(kernel: Kernel, lane: Axis, width: int) -> set[Access]:
    """The accesses of a kernel without sums that all vectors share, which are loaded once."""
    if kernel.reductions:
        return set()
    own = {lane} if isinstance(lane.extent, int) and lane.extent <= width else set()
    return {
        load.access
        for load in kernel.loads()
        if not load.index and own.issuperset(axis for axis, _ in load.access.terms)
    }


def _scalar_cycles(kernel: Kernel, machine: Machine) -> float:
    """Cycles of a point without lanes, where sums may have chains instead."""
    summed = {axis for r in kernel.reductions if r.chains > 1 for axis in r.axes}
    # Points run along lanes where chains would gather; their partial results pass through a cache.
    each = (
        3 * machine.load_cycles if gathers(kernel, machine) else dict(machine.transposed_cycles)[1]
    )
    cycles = 0.0
    for access, weight, load in accesses(kernel):
        if load is None or not summed:
            cycles += weight * machine.load_cycles
        else:
            near = all(access.stride(axis) in (0, 1) for axis in summed)
            width = machine.vector_bytes // ITEM_BYTES[load.dtype]
            cycles += weight * (machine.load_cycles if near else each) / width
    return cycles


def _terms(kernel: Kernel) -> int:
    """Steps of the loops of all sums."""
    loops = {reduce.axes for reduce in kernel.reductions}
    return sum(typical(product([axis.extent for axis in axes])) for axes in loops)


def _cheapest_lane(
    kernel: Kernel,
    lane: Axis,
    candidates: Sequence[Axis],
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> tuple[Axis, Choice]:
    """The axis whose tiles take the fewest cycles, of those along which sums find neighbours.

    `lane` itself where it is none of these, or where only a run tells the extents.
    """
    best, least = (lane, _choice(kernel, lane, machine, buffers)), float("inf")
    long = [axis for axis in candidates if typical(axis.extent) * 8 >= machine.vector_bytes]
    for axis in _even_axes(kernel, lane, long, buffers):
        choice = best[1] if axis == lane else _choice(kernel, axis, machine, buffers)
        width, extent = lane_width(kernel, axis, machine), typical(axis.extent)
        cycles = choice.cycles * -(-extent // width) / extent
        if cycles < least:
            best, least = (axis, choice), cycles
    return best


def _even_axes(
    kernel: Kernel, lane: Axis, candidates: Sequence[Axis], buffers: Mapping[str, Buffer]
) -> list[Axis]:
    """List `lane` and other axes, if sums find neighbours along each and their costs compare.

    Costs compare where extents are known, except for a batch, which is the same for all.
    """
    unknown = [axis for axis in kernel.axes if not isinstance(axis.extent, int)]
    if not all(may_be_batch(kernel, axis) for axis in unknown):
        return []
    if reads_rows(kernel, lane):
        # Pieces of long sums wait where neighbours along this lane are stored.
        return [lane]
    loads = [load for load in kernel.summed if not is_packable(kernel, load, buffers)]
    if row_axes_of_windows(kernel, lane):
        # Lanes that gather are the last choice.
        near = [a for a in candidates if all(x.access.stride(a) in (0, 1, *CLOSE) for x in loads)]
        return [lane, *(a for a in near if a != lane and row_axes_of_windows(kernel, a))]

    def is_even(axis: Axis) -> bool:
        near = (0, 1, *CLOSE) if moves_windows(kernel, axis) else (0, 1)
        return bool(shared_axes(kernel, axis)) and all(x.access.stride(axis) in near for x in loads)

    even = [axis for axis in candidates if is_even(axis)]
    return [lane, *(axis for axis in even if axis != lane)] if lane in even else []


def _choice(kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]) -> Choice:
    """The cheapest tile of sums with these lanes."""
    shared = shared_axes(kernel, lane)
    row, _ = row_axes(kernel, lane, shared, neighbour_axes(kernel, lane))
    width = lane_width(kernel, lane, machine)
    choices = [Rows(row), *rows_across(row, shared)]
    # Windows of one image overlap; the number of images, often one, only the run tells. So lanes
    # that are as many fill vectors in place of rows.
    windows = row_axes_of_windows(kernel, lane)
    within = tuple(a for a in windows if not may_be_batch(kernel, a))
    windows = within or (windows if isinstance(lane.extent, int) else ())
    vectors = len(kernel.reductions) * typical(lane.extent) / width
    windows = tuple(
        a for a in windows if not _is_one_stream(kernel, lane, a, vectors, machine, buffers)
    )
    choices += [Rows(axis) for axis in reversed(windows)]
    return cheapest_shape(kernel, lane, choices, width, machine, buffers)


def _is_one_stream(
    kernel: Kernel,
    lane: Axis,
    row: Axis,
    vectors: float,
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> bool:
    """Whether rows of a tile would keep weights from being packed that are better read in a row.

    Rows such as heads have weights of their own for the lanes, and share but one element. Without
    them the vectors of sums of one row have to hide the latency of a multiply-add, or to be waited
    for no longer than for weights that no cache holds.
    """
    own = [
        load
        for load in dict.fromkeys(kernel.summed)
        if load.access.stride(lane) != 0
        and load.access.stride(row) != 0
        and is_packable(kernel, load, buffers)
    ]
    size = sum(typical(buffers[x.access.buffer].size) * ITEM_BYTES[x.dtype] for x in own)
    is_far = size > machine.second_level_bytes
    each = machine.packed_cycles[2] if is_far else machine.fma_cycles
    return bool(own) and vectors * each >= machine.fma_latency


def _tile_of_sums(
    kernel: Kernel,
    lane: Axis,
    choice: Choice,
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> Tile:
    shared, beside = shared_axes(kernel, lane), neighbour_axes(kernel, lane)
    width, (_, other) = lane_width(kernel, lane, machine), row_axes(kernel, lane, shared, beside)
    row, across, shape = choice.rows.row, choice.rows.across, choice.shape
    rows = shape.rows // choice.rows.breadth
    tile = Tile(lane, width, shape.vectors, row=row, rows=rows)
    even = has_even_rows(kernel, choice.rows)
    is_better = other is not None and row in beside and other not in beside
    enough = _FULL_TILES * rows if is_better else None
    tile = replace(tile, other=other, enough=enough, held=shape.held, across=across, even=even)
    if row is not None and not shared:
        # Elements that windows share stay in a cache until the next group of lanes.
        near = [a for a in kernel.axes if a != lane and moves_windows(kernel, a)]
        tile = replace(tile, inside=tuple(near))
    elif is_far(kernel, lane, shared, machine):
        tile = replace(tile, inside=shared)
    in_pieces = across is None and (shape.rows > 1 or row is None) and width > 1
    depth = depth_of(kernel, lane, row, machine, buffers) if in_pieces else None
    if depth is not None:
        return replace(tile, depth=depth, kept=partial_result_stores(kernel, lane))
    if row is not None and not tile.inside and _may_be_single(kernel, lane, row, tile):
        groups = groups_of_one_row(kernel, lane, shape, width, machine, buffers)
        tile = replace(tile, groups=groups)
    return tile


def _may_be_single(kernel: Kernel, lane: Axis, row: Axis, tile: Tile) -> bool:
    """Whether a tile of rows of sums may have a single row in a run."""
    is_known = isinstance(row.extent, int) or not isinstance(lane.extent, int)
    loops = {reduce.axes for reduce in kernel.reductions}
    whole = tile.other is None and tile.held is None
    return not is_known and tile.rows > 1 and len(loops) == 1 and whole


def _lane_axes(kernel: Kernel) -> list[Axis]:
    """Axes that lanes may run along; for ordered points, only along neighbours in memory.

    Otherwise the steps, which wait for each other, would wait for scattered elements.
    """
    if not kernel.ordered:
        return list(kernel.axes)
    found = [access for access, _, _ in accesses(kernel)]
    return [
        axis
        for axis in kernel.axes
        if axis not in kernel.ordered and all(access.stride(axis) in (0, 1) for access in found)
    ]


def _scattered(kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]) -> bool:
    """Whether sums over an unknown number of points would gather every element they add.

    Scalars of several rows take no longer then, and no lane is idle where there are few points.
    """
    if not kernel.reductions or isinstance(lane.extent, int) or kernel.ordered:
        return False
    if is_turned(kernel, lane, machine, buffers):
        return False
    inner = [a for a, weight, _ in accesses(kernel) if weight > 1 and a.stride(lane) != 0]
    return bool(inner) and all(access.stride(lane) not in (1, *CLOSE) for access in inner)


def _split(kernel: Kernel, lane: Axis, shape: Tile) -> Kernel:
    """Split the lanes off their axis, and guard the points that padding adds."""
    group = shape.width * shape.vectors
    extent = lane.extent
    if extent == group:
        return replace(kernel, tile=replace(shape, lane=lane))
    inner = Axis(f"{lane.name}v", group)
    exact = isinstance(extent, int) and extent > 0 and extent % group == 0
    limit = None if exact else extent
    if isinstance(extent, int) and extent < group:
        return _padded(kernel, lane, inner, replace(shape, lane=inner, limit=limit))
    outer = Axis(f"{lane.name}o", ceildiv(extent, group))
    point: Expr = op("mul", Index(outer), constant(group, "int64"))
    guard = None if exact else op("lt", op("add", point, Index(inner)), sized(extent))
    divided = split_axis(kernel, lane, outer, inner, guard)
    return replace(divided, tile=replace(shape, lane=inner, block=outer, limit=limit))


def _padded(kernel: Kernel, lane: Axis, inner: Axis, shape: Tile) -> Kernel:
    whole = replace_axes(kernel, {lane: Affine(0, ((inner, 1),))})
    return replace(whole, guard=op("lt", Index(inner), sized(lane.extent)), tile=shape)
