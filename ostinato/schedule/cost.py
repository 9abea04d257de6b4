"""Estimate the cycles of a kernel for each way to tile it, from the record of the machine.

Nothing is measured while compiling. Results do not depend on the estimate, only times do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import gcd

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import ITEM_BYTES, Axis, Load, Reduced, dtype_of, walk
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Buffer
from ostinato.records import dataclass
from ostinato.schedule.half_fields import HALF
from ostinato.schedule.lanes import cycles_of_lanes, cycles_of_taps
from ostinato.schedule.operands import (
    depth_of,
    is_packable,
    loaded_by_lanes,
    loads_of_a_row,
    moves_windows,
    products_of_a_term,
    reads_rows,
    row_axes_of_windows,
    rows_that_share,
    shared_axes,
    typical,
    widening_by_lanes,
)
from ostinato.schedule.overlaps import overlap
from ostinato.schedule.shapes import Rows, Shape, has_even_rows
from ostinato.schedule.sums import OF_A_SCALE, SHARE_OF_BYTES, Sums, WindowLoads, cheapest
from ostinato.sizes.dims import product


@dataclass(frozen=True)
class Choice:
    """A tile of sums, and the cycles of a step of the sums per vector of results."""

    rows: Rows
    shape: Shape
    cycles: float


def cheapest_shape(
    kernel: Kernel,
    lane: Axis,
    choices: Sequence[Rows],
    width: int,
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> Choice:
    """Find the tile of the kernel's sums that takes the fewest cycles per vector of results."""
    best = Choice(choices[0], Shape(), float("inf"))
    for rows in choices:
        shape, cost = cheapest(_sums(kernel, lane, rows, width, machine, buffers))
        if cost < best.cycles - 1e-9:
            best = Choice(rows, shape, cost)
    return best


def groups_of_one_row(
    kernel: Kernel,
    lane: Axis,
    shape: Shape,
    width: int,
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> int:
    """Choose how many groups of lanes a run with a single row computes together.

    A tile for a batch is narrow: with one row it has so few sums that each multiply-add waits for
    the one before. Groups of lanes then take the place of rows. 1 if there are enough sums.
    Operands that are not packed gain from groups too, as these are neighbours in memory: the values
    of row `open queries` of `benchmarks.bench_micro` take 0.85 of the time with four groups in
    place of two.
    """
    chains = len(kernel.reductions) * shape.vectors
    groups = round(machine.fma_latency / (chains * machine.fma_cycles))
    if any(is_packable(kernel, load, buffers) for load in kernel.summed):
        groups = min(groups, machine.most_groups)
    fits = groups * shape.vectors * width <= typical(lane.extent)
    return groups if groups > 1 and fits else 1


def _window_loads(
    kernel: Kernel,
    lane: Axis,
    rows: Sequence[Axis],
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> WindowLoads | None:
    """The loads of a kernel that has `row_axes_of_windows`, in tiles of these rows."""
    if not row_axes_of_windows(kernel, lane):
        return None
    own_cycles, shared, scalars = 0.0, 0, 0
    taps = kernel.reductions[0].axes[-1]
    for load in kernel.summed:
        stride = load.access.stride(lane)
        moves = any(load.access.stride(axis) != 0 for axis in rows)
        if stride == 0:
            scalars += moves
        elif not moves and is_packable(kernel, load, buffers):
            shared += 1
        else:
            own_cycles += cycles_of_taps(load, lane, taps, machine)
    found = overlap(kernel, rows[0], lane) if len(rows) == 1 else None
    if found is None:
        return WindowLoads(shared, own_cycles, scalars)
    # Each row uses a line with taps of its own.
    scalars = len(kernel.summed) - 1
    return WindowLoads(shared, own_cycles, scalars, (found.taps, found.step))


def _sums(
    kernel: Kernel,
    lane: Axis,
    choice: Rows,
    width: int,
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> Sums:
    """Describe a kernel's sums for the cost model, with these lanes and rows."""
    outer, breadth = choice.row, choice.breadth
    row = choice.across or outer
    groups = Counter(reduce.axes for reduce in kernel.reductions)
    sums = len(kernel.reductions)
    pieces = None if choice.across else depth_of(kernel, lane, row, machine, buffers)
    rows = breadth * (1 if outer is None else typical(outer.extent))
    is_several = row is not None and max(groups.values()) > 1
    inner = products_of_a_term(kernel)
    scales, widening = (0, 0) if inner else widening_by_lanes(kernel, lane)
    loads = loaded_by_lanes(kernel, lane)
    share = _share_of_bytes(loads) if widening else 1.0
    has_fields = machine.merges_bits and share == SHARE_OF_BYTES
    is_one_stream = all(is_packable(kernel, load, buffers) for load in loads)
    rows_of = [axis for axis in (outer, choice.across) if axis is not None]
    window = _window_loads(kernel, lane, rows_of, machine, buffers)
    has_apart = window is None and moves_windows(kernel, lane)
    apart = (rows_that_share(kernel, a, machine.unroll) for a in rows_of)
    across = [s for s in kernel.stores if s.access.stride(lane) not in (0, 1)]
    return Sums(
        machine=machine,
        width=width,
        sums=sums,
        together=max(groups.values()),
        loops=len(groups),
        depth=_depth(kernel, pieces),
        in_pieces=pieces is not None and reads_rows(kernel, lane),
        rows=rows,
        breadth=breadth,
        needed=-(-typical(lane.extent) // width),
        is_known=outer is not None and isinstance(outer.extent, int),
        is_known_lane=isinstance(lane.extent, int),
        is_even=has_even_rows(kernel, choice),
        is_several=is_several,
        meets=any(len(_sums_of(store)) > 1 for store in kernel.stores),
        sharing=typical(product([axis.extent for axis in shared_axes(kernel, lane)])),
        scales=scales,
        widening=widening,
        share=share,
        inner=inner,
        held=_held(machine, has_fields and rows == 1, is_several),
        has_fields=has_fields,
        has_words=is_one_stream and all(load.dtype == HALF for load in loads),
        takes_apart=machine.byte_dots == "none" and any(r.step == "dot" for r in kernel.reductions),
        is_one_stream=is_one_stream,
        window=window,
        apart_cycles=_apart_cycles(kernel, lane, machine, buffers) if has_apart else 0.0,
        row_loads=1 if row is None else loads_of_a_row(kernel, lane, row),
        apart=min((n for n in apart if n is not None), default=None),
        addresses=_addresses(across, row),
        gathers=_gathers(kernel, lane),
        runs=tuple([_run(store, choice) for store in across]),
        places=tuple([_places(store, lane, machine) for store in across]),
    )


def _held(machine: Machine, has_fields: bool, is_several: bool) -> tuple[int | None, ...]:
    """Candidates for the accumulator budget of a loop; None for all registers there are."""
    if has_fields:
        return None, machine.accumulators // (1 + OF_A_SCALE)
    if is_several:
        return None, machine.vector_registers // 2, machine.accumulators
    return (None,)


def _sums_of(store: Store) -> set[int]:
    """The sums from which a store computes its value."""
    return {node.position for node in walk(store.value) if isinstance(node, Reduced)}


def _depth(kernel: Kernel, pieces: int | None) -> int:
    """A bound of the terms a tile adds up at a time; `pieces` are those of the sums' first axis."""
    if pieces is not None:
        return pieces * typical(product([axis.extent for axis in kernel.reductions[0].axes[1:]]))
    return max(typical(product([axis.extent for axis in r.axes])) for r in kernel.reductions)


def _apart_cycles(
    kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]
) -> float:
    """Cycles to load the lanes of windows that are no neighbours.

    Windows overlap, so that `relayout` cannot bring these lanes together in a copy.
    """
    loads = dict.fromkeys(loaded_by_lanes(kernel, lane))
    strides = [x.access.stride(lane) for x in loads if not is_packable(kernel, x, buffers)]
    return sum(cycles_of_lanes(stride, machine) for stride in strides if stride != 1)


def _addresses(across: Sequence[Store], row: Axis | None) -> int:
    """The vectors that addresses take: a scatter keeps its own in two."""
    return 2 if row is not None and any(s.access.stride(row) != 1 for s in across) else 0


def _gathers(kernel: Kernel, lane: Axis) -> int:
    """Count the loads, beside those of the sums, whose lanes are no neighbours."""
    summed = set(walk(*kernel.operands))
    strides = [load.access.stride(lane) for load in kernel.loads() if load not in summed]
    return sum(stride not in (0, 1) for stride in strides)


def _run(store: Store, choice: Rows) -> int | None:
    """How many rows of a tile a store writes next to each other; None for all."""
    row = choice.across or choice.row
    if row is None or store.access.stride(row) != 1:
        return 1
    if choice.breadth == 1 or choice.row is None:
        return None
    return None if store.access.stride(choice.row) == choice.breadth else choice.breadth


def _places(store: Store, lane: Axis, machine: Machine) -> int | None:
    """How many places a way of the first-level cache has for the lines that lanes store.

    A way is as large as a page: lines that are pages apart take the same place. None where only the
    run tells.
    """
    stride, page = store.access.stride(lane), machine.page_bytes
    if not isinstance(stride, int):
        return None
    apart = abs(stride) * ITEM_BYTES[dtype_of(store.value)]
    return min(page // gcd(apart, page), page // LINE_BYTES)


def _share_of_bytes(loads: Sequence[Load]) -> float:
    """The weights' bytes over those of the floats that lanes compute with; scales are floats."""
    sizes = [ITEM_BYTES[load.dtype] for load in loads]
    return min(sizes) / max(4, *sizes)
