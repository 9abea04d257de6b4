"""Estimated cycles of a kernel by how it is cut into registers, from the record of the machine.

Nothing is measured while compiling. Results do not depend on the estimate, only times do.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Axis, Load, dtype_of, walk
from ostinato.program.nodes import Buffer, Kernel, Store
from ostinato.records import dataclass
from ostinato.schedule.half_fields import HALVES
from ostinato.schedule.lanes import LINE_BYTES, cycles_of_lanes
from ostinato.schedule.operands import (
    MANY_POINTS,
    depth_of,
    is_packable,
    loaded_by_lanes,
    loads_of_a_row,
    moves_windows,
    reads_rows,
    row_axes_of_windows,
    rows_that_share,
    shared_axes,
    typical,
    widening_by_lanes,
)
from ostinato.schedule.shapes import (
    Rows,
    Shape,
    has_even_rows,
    row_tiles,
    sums_at_once,
    tiles_of_any,
)
from ostinato.sizes.dims import product

# How many rows a kernel of several sums is taken to have where only a run tells: a batch. Smaller
# ones are cut into heights of `REST_ROWS`; a single row has its own way (`groups_of_one_row`).
TYPICAL_BATCH = 16
# Heights of tiles: what is left of an axis is cut into tiles of `REST_ROWS`, or of exactly what is
# left where its extent is known. There a single sum per point has registers for more rows.
ROW_CHOICES = (1, 2, 3, 4, 5, 6, 8)
MORE_ROWS = (7, 10, 12, 14)
# Several loops may compute this many times as many partial results as there are registers: what one
# of them leaves goes to the stack until the stores read it.
MOST_HELD = 3
# The share of the cycles of loads that is not hidden behind multiply-adds, what panels beyond the
# first-level cache cost in each step of a loop, and the most of it. All three are fitted to
# `benchmarks.bench_micro` and the rows of `benchmarks.bench_ops`.
LOADS_IN_THE_WAY = 0.25
EVICTED = 0.75
MOST_EVICTED = 1.0
# How much longer panels take that leave the second-level cache until the next tile reads them,
# since the next panel is fetched beside them: 1024 channels of 6 x 6 pixels take half the time with
# panels of 1 vector, not 3, and 512 of 7 x 7 pixels 0.9 of it.
CROWDED = 2.0
# What stores compute from several sums takes half of the registers: cycles of a partial result that
# waits on the stack meanwhile. Four gates of 64 units take 1.07 of the time with tiles of 6 rows in
# place of 4.
SPILL_CYCLES = 4.0
# Cycles of each line that has left the first-level cache when the next tile writes on in it: 32
# filters of 3 x 3 over 3 channels take 1.0 ms for 304 x 304 results, whose planes have four places
# in a way of the cache, and 2.5 ms for 320 x 320, whose planes have one.
WRITTEN_AGAIN = 16.0
# Bytes in place of floats, and the registers of a scale if fields become floats: its own, those of
# its offsets, that of a word (`schedule.float_fields`).
SHARE_OF_BYTES = 0.25
OF_A_SCALE = 4
# The share of registers for the words of two terms and partial results (`schedule.half_fields`):
# with more, some go to the stack, which takes 1.5 times as long where it begins between two lines.
OF_WORDS = 0.75


@dataclass(frozen=True)
class Choice:
    """A tile of sums, and the cycles of a step of the sums for each vector of results."""

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
    """The tile of the kernel's sums that takes the fewest cycles for each vector of results."""
    best = Choice(choices[0], Shape(), float("inf"))
    for rows in choices:
        model = _Sums(kernel, lane, rows, width, machine, buffers)
        for shape in model.shapes():
            cost = model.cost(shape)
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

    A tile for a batch is narrow. For one row its sums are so few that each multiply-add waits for
    the one before; groups of lanes are then what rows are otherwise. 1 if there are enough sums.
    Those of operands that stay as they are lie beside each other: the values of row `open queries`
    of `benchmarks.bench_micro` take 0.85 of the time with four in place of two.
    """
    chains = len(kernel.reductions) * shape.vectors
    groups = round(machine.fma_latency / (chains * machine.fma_cycles))
    if any(is_packable(kernel, load, buffers) for load in kernel.summed):
        groups = min(groups, machine.most_groups)
    fits = groups * shape.vectors * width <= typical(lane.extent)
    return groups if groups > 1 and fits else 1


@dataclass(frozen=True)
class _WindowLoads:
    """What a step of all sums loads where rows share a part of it only.

    shared: vectors that the rows of a tile share. own_cycles: of the loads for each row and vector.
    scalars: elements of each row.
    """

    shared: int
    own_cycles: float
    scalars: int


def _window_loads(
    kernel: Kernel,
    lane: Axis,
    rows: Sequence[Axis],
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> _WindowLoads | None:
    """The loads of a kernel that has `row_axes_of_windows`, in tiles of these rows."""
    if not row_axes_of_windows(kernel, lane):
        return None
    own_cycles, shared, scalars = 0.0, 0, 0
    for load in kernel.summed:
        stride = load.access.stride(lane)
        moves = any(load.access.stride(axis) != 0 for axis in rows)
        if stride == 0:
            scalars += moves
        elif not moves and is_packable(kernel, load, buffers):
            shared += 1
        else:
            own_cycles += cycles_of_lanes(stride, machine)
    return _WindowLoads(shared, own_cycles, scalars)


class _Sums:
    """The sums of a kernel with lanes, and rows that share what lanes load, along two axes."""

    def __init__(
        self,
        kernel: Kernel,
        lane: Axis,
        choice: Rows,
        width: int,
        machine: Machine,
        buffers: Mapping[str, Buffer],
    ) -> None:
        self._breadth, outer, self._width = choice.breadth, choice.row, width
        row = choice.across or outer
        self._row, self._machine = row, machine
        self._outer = outer
        groups = Counter(reduce.axes for reduce in kernel.reductions)
        self._loops = len(groups)
        self._sums, self._together = len(kernel.reductions), max(groups.values())
        depth = None
        if choice.across is None:
            depth = depth_of(kernel, lane, row, machine, buffers)
        self._in_pieces = depth is not None and reads_rows(kernel, lane)
        self._depth = max(typical(product([axis.extent for axis in axes])) for axes in groups)
        if depth is not None:
            inner = kernel.reductions[0].axes[1:]
            self._depth = depth * typical(product([axis.extent for axis in inner]))
        self._needed = -(-typical(lane.extent) // width)
        self._is_known_lane = isinstance(lane.extent, int)
        self._rows = self._breadth * (1 if outer is None else typical(outer.extent))
        self._sharing = typical(product([axis.extent for axis in shared_axes(kernel, lane)]))
        often = self._sharing >= MANY_POINTS
        self._staying_bytes = machine.paired_bytes if often else machine.panel_bytes
        self._is_known = outer is not None and isinstance(outer.extent, int)
        self._is_even = has_even_rows(kernel, choice)
        self._is_several = row is not None and self._sums > 1 and len(groups) == 1
        self._scales, self._widening = widening_by_lanes(kernel, lane)
        loads = loaded_by_lanes(kernel, lane)
        self._share = _share_of_bytes(loads) if self._widening else 1.0
        self._held: tuple[int | None, ...] = (None,)
        if self._is_several:
            self._held = None, machine.vector_registers // 2, machine.accumulators
        self._has_fields = machine.merges_bits and self._share == SHARE_OF_BYTES
        if self._has_fields and self._rows == 1:
            self._held = None, machine.accumulators // (1 + OF_A_SCALE)
        is_one_stream = all(is_packable(kernel, load, buffers) for load in loads)
        self._has_words = is_one_stream and all(load.dtype == HALVES for load in loads)
        self._load_cycles = machine.packed_cycles if is_one_stream else machine.strided_cycles
        rows_of = [axis for axis in (outer, choice.across) if axis is not None]
        self._window = _window_loads(kernel, lane, rows_of, machine, buffers)
        self._apart_cycles = 0.0
        if self._window is None and moves_windows(kernel, lane):
            # Windows overlap, so that `relayout` cannot bring these lanes together in a copy.
            found = [x for x in dict.fromkeys(loads) if not is_packable(kernel, x, buffers)]
            strides = [x.access.stride(lane) for x in found]
            self._apart_cycles = sum(cycles_of_lanes(s, machine) for s in strides if s != 1)
        self._row_loads = 1 if row is None else loads_of_a_row(kernel, lane, row)
        copies = machine.unroll
        apart = (rows_that_share(kernel, a, copies) for a in rows_of)
        self._apart = min((n for n in apart if n is not None), default=None)
        # A scatter keeps its addresses in two vectors.
        scatters = row is not None and any(
            s.access.stride(lane) not in (0, 1) and s.access.stride(row) != 1 for s in kernel.stores
        )
        self._addresses = 2 if scatters else 0
        summed = set(walk(*(operand for r in kernel.reductions for operand in r.operands)))
        outside = [load.access.stride(lane) for load in kernel.loads() if load not in summed]
        self._gathers = sum(stride not in (0, 1) for stride in outside)
        across = [s for s in kernel.stores if s.access.stride(lane) not in (0, 1)]
        self._runs = [self._run(store) for store in across]
        self._places = [_places(store, lane, machine) for store in across]
        # Tiles of many shapes leave rows for the same lower ones.
        self._steps: dict[Shape, float] = {}
        self._stores: dict[int, float] = {}

    def shapes(self) -> Iterator[Shape]:
        """All shapes of which a loop's partial results stay in registers."""
        more = MORE_ROWS if self._is_known and self._together == 1 else ()
        widths = range(1, min(self._needed, self._machine.accumulators) + 1)
        heights: Iterable[int] = (*ROW_CHOICES, *more)
        if self._breadth > 1:
            heights = range(self._breadth, self._machine.accumulators + 1, self._breadth)
        for rows, vectors, held in itertools.product(heights, widths, self._held):
            shape = Shape(vectors, rows, held)
            if rows <= self._rows and self._fits(shape):
                yield shape

    def _fits(self, shape: Shape) -> bool:
        registers, rows, vectors = self._machine.vector_registers, shape.rows, shape.vectors
        # What a loop has summed up waits on the stack while the loops behind it run.
        waits = self._loops > 1 and rows > 1
        sums = self._together if waits else self._sums
        # Scales of weights, which do not change with the terms, stay in registers. What comes with
        # them pays where nothing else is loaded as often.
        scales = self._scales * (OF_A_SCALE if self._has_fields and self._rows == 1 else 1)
        accumulators = sums * shape.block + scales * vectors
        if waits and self._sums * shape.block > MOST_HELD * registers:
            return False
        at_once = sums_at_once(sums, shape.block, shape.held)
        # Words of two terms stay in registers until the second one.
        words = at_once * vectors if self._has_words and shape.block > 1 else 0
        if words and at_once * shape.block + words >= registers * OF_WORDS:
            return False
        if shape.held is not None:
            few = accumulators <= MOST_HELD * registers
            fits = few and at_once < sums and at_once * shape.block <= shape.held
            return fits and self._has_room_for_rows(shape, at_once)
        if self._machine.loads_operands and accumulators > 1:
            # What lanes load stays in registers beside what is loaded last.
            operands = 1 if rows == 1 else self._together * vectors
            return accumulators + operands + 1 + self._addresses <= registers
        budget = self._machine.accumulators
        if accumulators > max(budget, sums):
            return False
        # What lanes load stays in registers until all rows have met it, one after the other.
        operands = self._together * vectors + 1
        if sums > 1 and rows > 1 and accumulators + operands > registers:
            return False
        return self._has_room_for_rows(shape, sums)

    def _has_room_for_rows(self, shape: Shape, sums: int) -> bool:
        """Whether what rows keep fits into the registers beside so many sums at once.

        What neighbouring rows share stays there beside the accumulators, and so does what the terms
        to come of each row are multiplied by, if products take it from a lane.
        """
        rows, breadth, apart = shape.rows, self._breadth, self._apart
        overlaps = apart is not None and (breadth > 1 or apart == 1 or rows > apart)
        stays = overlaps or (self._machine.lane_operands and rows > 1)
        shared = rows if breadth == 1 else rows - rows // breadth
        if apart is not None and breadth == 1 and not self._machine.lane_operands:
            shared = rows - apart + 1
        taken = sums * (shape.block + shape.vectors) + shared + self._addresses
        return not stays or taken <= self._machine.vector_registers or shape.block == 1

    def cost(self, shape: Shape) -> float:
        """Cycles of a step of the sums, for each vector of results."""
        each = self._step(shape) / shape.rows
        if self._is_known or self._is_several:
            # Where only a run tells, a step of several sums is that of a batch.
            rows = self._rows if self._is_known else min(self._rows, TYPICAL_BATCH)
            tiles = tiles_of_any(rows, shape.rows)
            if self._is_known:
                tiles = row_tiles(rows, shape.rows, self._is_even)
            steps = (n * self._step(Shape(shape.vectors, r, shape.held)) for n, r in tiles)
            each = sum(steps) / rows
        # Where only a run tells how many lanes there are, the last group is half empty on average.
        unused = -self._needed % shape.vectors
        padding = 1 + (unused if self._is_known_lane else (shape.vectors - 1) / 2) / self._needed
        # A single row meets each panel once in a step: panels that fit the cache can still be
        # there in the next one.
        excess = self._panel_bytes(shape) / self._machine.resident_bytes - 1
        evicted = min(EVICTED * max(excess, 0.0), MOST_EVICTED) if self._rows == 1 else 0.0
        return each / shape.vectors * padding * (1 + evicted)

    def _panel_bytes(self, shape: Shape) -> int:
        """Bytes that lanes load for a tile, shared by all its rows."""
        count = self._together if self._window is None else self._window.shared
        return int(count * shape.vectors * self._machine.vector_bytes * self._depth * self._share)

    def _step(self, shape: Shape) -> float:
        """Cycles of a step of the sums of one tile, with its share of the stores."""
        if shape not in self._steps:
            self._steps[shape] = self._new_step(shape)
        return self._steps[shape]

    def _new_step(self, shape: Shape) -> float:
        machine, panel = self._machine, self._panel_bytes(shape)
        level = (panel > machine.near_bytes) + (panel > self._staying_bytes)
        load = machine.load_cycles if self._rows == 1 else self._load_cycles[level]
        if self._sharing > shape.rows and panel > machine.paired_bytes:
            load *= CROWDED
        sums = sums_at_once(self._together, shape.block, shape.held)
        loops = -(-self._together // sums)
        row_loads = shape.rows * -(-self._row_loads // loops) * machine.broadcast_loads
        loads = sums * shape.vectors * load + row_loads * machine.load_cycles
        loads += self._loads_again(shape, sums) * machine.load_cycles
        loads += shape.vectors * self._apart_cycles
        if self._in_pieces:
            # Lines of the rows have left the first-level cache when the next tile reads them.
            item = machine.vector_bytes // self._width
            lines = 1 + (shape.rows - 1) * item / LINE_BYTES
            loads += lines * machine.strided_cycles[1]
        if self._window is not None:
            loads = self._window.shared * shape.vectors * load
            loads += shape.block * self._window.own_cycles
            loads += shape.rows * self._window.scalars * machine.load_cycles
        widening = shape.vectors * self._widening / max(loops, 1)
        products = (sums * shape.block + widening) * machine.fma_cycles
        stores = shape.vectors * (self._store_cycles(shape.rows) + self._written_again(shape))
        waiting = self._sums * shape.block - machine.vector_registers // 2
        stores += SPILL_CYCLES * max(waiting, 0) if self._is_several else 0
        longest = max(products, loads, machine.fma_latency)
        return loops * (longest + LOADS_IN_THE_WAY * loads) + stores / max(self._depth, 1)

    def _loads_again(self, shape: Shape, sums: int) -> int:
        """Loads of lanes for all rows but the first, where registers do not hold them so long.

        With 16 registers of 32 bytes, 3 rows of 4 vectors take 1.25 times as long as 4 rows of 3.
        """
        machine, operands = self._machine, sums * shape.vectors
        if machine.lane_operands or machine.loads_operands:
            return 0
        stays = sums * shape.block + operands + 1 <= machine.vector_registers
        return 0 if stays else operands * (shape.rows - 1)

    def _store_cycles(self, rows: int) -> float:
        """Cycles beyond one store, and one load beside the sums, for one vector of every row."""
        if rows not in self._stores:
            self._stores[rows] = self._new_store_cycles(rows)
        return self._stores[rows]

    def _new_store_cycles(self, rows: int) -> float:
        cycles = dict(self._machine.transposed_cycles)
        total = self._gathers * rows * cycles[1]
        for known in self._runs:
            run = left = known or rows
            each = 0.0
            while left:
                count = min(self._machine.transposed_rows, 1 << (left.bit_length() - 1))
                each += count * cycles[count]
                left -= count
            total += rows // run * each
        return total

    def _written_again(self, shape: Shape) -> float:
        """Cycles for one vector of every row: lines evicted before lanes have filled them."""
        lines, lanes = 0.0, shape.vectors * self._width
        ways = self._machine.near_bytes // self._machine.page_bytes
        for run, places in zip(self._runs, self._places, strict=True):
            rows = run or shape.rows
            if places is None or lanes <= places * ways:
                continue
            if rows * self._machine.vector_bytes < LINE_BYTES * self._width:
                lines += self._width * shape.rows / rows
        return lines * WRITTEN_AGAIN

    def _run(self, store: Store) -> int | None:
        """How many rows of a tile are neighbours in memory; None for all."""
        if self._row is None or store.access.stride(self._row) != 1:
            return 1
        if self._breadth == 1 or self._outer is None:
            return None
        return None if store.access.stride(self._outer) == self._breadth else self._breadth


def _places(store: Store, lane: Axis, machine: Machine) -> int | None:
    """How many lines that lanes store have a place in a way of the first-level cache.

    A way is as large as a page: what lies pages apart has one place. None where only the run tells.
    """
    stride, page = store.access.stride(lane), machine.page_bytes
    if not isinstance(stride, int):
        return None
    apart = abs(stride) * ITEM_BYTES[dtype_of(store.value)]
    return min(page // gcd(apart, page), page // LINE_BYTES)


def _share_of_bytes(loads: Sequence[Load]) -> float:
    """The bytes of weights in those of the floats that their lanes become: scales are floats."""
    sizes = [ITEM_BYTES[load.dtype] for load in loads]
    return min(sizes) / max(4, *sizes)
