"""Estimate the cycles of tiles of sums, from what they load, add up and store.

Nothing is measured while compiling. Results do not depend on the estimate, only times do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import lru_cache

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.records import dataclass
from ostinato.schedule.operands import MANY_POINTS
from ostinato.schedule.shapes import Shape, row_tiles, sums_at_once, tiles_of_any

# The rows assumed for a kernel of several sums where only a run tells how many there are: a batch.
# Smaller batches are divided into heights of `REST_ROWS`; a single row has a variant of its own
# (`groups_of_one_row`).
_TYPICAL_BATCH = 16
# Heights of tiles: the rest of an axis is divided into tiles of `REST_ROWS`, or is one tile where
# its extent is known. There a single sum per point has registers for more rows.
ROW_CHOICES = (1, 2, 3, 4, 5, 6, 8)
_MORE_ROWS = (7, 10, 12, 14)
# Several loops may compute this many times as many partial results as there are registers: those of
# one loop are spilled to the stack until the stores read them.
_MOST_HELD = 3
# The share of the cycles of loads that multiply-adds do not hide, the cost of panels beyond the
# first-level cache in each step of a loop, and its maximum. All three are fitted to
# `benchmarks.bench_micro` and the rows of `benchmarks.bench_ops`.
_LOADS_IN_THE_WAY = 0.25
_EVICTED = 0.75
_MOST_EVICTED = 1.0
# How much longer panels take that leave the second-level cache before the next tile reads them,
# since the next panel is prefetched beside them: 1024 channels of 6 x 6 pixels take half the time
# with panels of 1 vector, not 3, and 512 of 7 x 7 pixels 0.9 of it.
_CROWDED = 2.0
# Cycles for each line that has left the first-level cache when the next tile continues to write it:
# 32 filters of 3 x 3 over 3 channels take 1.0 ms for 304 x 304 results, whose planes have four
# places in a way of the cache, and 2.5 ms for 320 x 320, whose planes have one.
_WRITTEN_AGAIN = 16.0
# Operations that follow the products of words of a term: what zero points contribute is subtracted,
# the sum is converted, scaled, and joins that of the terms (`definitions.bytes_in_blocks`).
_BEHIND_PRODUCTS = 4
# Bytes relative to floats, and the registers of a scale if fields become floats: its own, those of
# its offsets, that of a word (`schedule.float_fields`).
SHARE_OF_BYTES = 0.25
OF_A_SCALE = 4
# The share of registers for the words of two terms and partial results (`schedule.half_fields`):
# with more, some are spilled to the stack, which takes 1.5 times as long where it begins between
# two lines.
_OF_WORDS = 0.75


@dataclass(frozen=True)
class WindowLoads:
    """The loads of a step of all sums where rows share only a part of them.

    shared: vectors that the rows of a tile share. own_cycles: of the loads for each row and vector.
    scalars: elements of each row.
    lines: of a window, and by how many those of two rows differ, where rows load them together.
    """

    shared: int
    own_cycles: float
    scalars: int
    lines: tuple[int, int] | None = None

    def loaded(self, rows: int) -> float:
        """The own loads of `rows` rows, counted in rows: fewer where rows load lines together."""
        if self.lines is None:
            return rows
        lines, step = self.lines
        return (step * (rows - 1) + lines) / lines


@dataclass(frozen=True)
class Sums:
    """The quantities on which the cost of tiles of sums depends; equal kernels have equal records.

    sums, together: reductions of the kernel, and of its largest loop. loops: how many there are.
    depth: steps of a loop whose operands are read again. in_pieces: whether partial results wait in
        memory between pieces.
    rows, breadth, needed: rows, points of each that a tile has across, and vectors along the lanes.
    sharing: points that share what lanes load. meets: whether a store computes from several sums.
    scales, widening: as from `widening_by_lanes`; share: of the bytes of floats.
    inner: products of words that a term adds up before it joins its sum; 0 for most sums.
    takes_apart: whether halves of words are extracted for each product, as no instruction takes
        bytes.
    held: candidates for the accumulator budget of a loop. row_loads, scalars: elements of each row.
    apart: as from `rows_that_share`. apart_cycles: of lanes that are not neighbours.
    addresses: vectors of them. gathers: loads beside the sums. runs, places: of stores across the
        lanes, how many rows are neighbours and how many lines have a place in a cache.
    """

    machine: Machine
    width: int
    sums: int
    together: int
    loops: int
    depth: int
    in_pieces: bool
    rows: int
    breadth: int
    needed: int
    is_known: bool
    is_known_lane: bool
    is_even: bool
    is_several: bool
    meets: bool
    sharing: int
    scales: int
    widening: float
    share: float
    inner: int
    held: tuple[int | None, ...]
    has_fields: bool
    has_words: bool
    takes_apart: bool
    is_one_stream: bool
    window: WindowLoads | None
    apart_cycles: float
    row_loads: int
    apart: int | None
    addresses: int
    gathers: int
    runs: tuple[int | None, ...]
    places: tuple[int | None, ...]
    # Tiles of many shapes leave the same rest of rows for lower tiles.
    _steps: dict[Shape, float] = field(default_factory=dict, compare=False)
    _stores: dict[int, float] = field(default_factory=dict, compare=False)

    def shapes(self) -> Iterator[Shape]:
        """Yield all shapes whose partial results stay in registers within a loop."""
        more = _MORE_ROWS if self.is_known and self.together == 1 else ()
        widths = range(1, min(self.needed, self.machine.accumulators) + 1)
        heights: Iterable[int] = (*ROW_CHOICES, *more)
        if self.breadth > 1:
            heights = range(self.breadth, self.machine.accumulators + 1, self.breadth)
        for rows, vectors, held in itertools.product(heights, widths, self.held):
            shape = Shape(vectors, rows, held)
            if rows <= self.rows and self._fits(shape):
                yield shape

    def _fits(self, shape: Shape) -> bool:
        registers, rows, vectors = self.machine.vector_registers, shape.rows, shape.vectors
        # The sums of a loop wait on the stack while the loops behind it run.
        waits = self.loops > 1 and rows > 1
        sums = self.together if waits else self.sums
        # Scales of weights, which do not change with the terms, stay in registers. The registers of
        # fields pay where nothing else is loaded as often.
        scales = self.scales * (OF_A_SCALE if self.has_fields and self.rows == 1 else 1)
        # A term that is a sum has a register of its own.
        each = 2 if self.inner else 1
        accumulators = each * sums * shape.block + scales * vectors
        if waits and self.sums * shape.block > _MOST_HELD * registers:
            return False
        at_once = sums_at_once(sums, shape.block, shape.held)
        # Words of two terms stay in registers until the second term.
        words = at_once * vectors if self.has_words and shape.block > 1 else 0
        if words and at_once * shape.block + words >= registers * _OF_WORDS:
            return False
        if shape.held is not None:
            few = accumulators <= _MOST_HELD * registers
            fits = few and at_once < sums and at_once * shape.block <= shape.held
            return fits and self._has_room_for_rows(shape, at_once)
        if self.window is not None and self.window.lines is not None and rows > 1:
            # All vectors of a line, and their factor. Each line has code of its own.
            return rows <= max(ROW_CHOICES) and accumulators + vectors + 1 <= registers
        if self.machine.loads_operands and accumulators > 1:
            # What lanes load stays in registers beside the last row's operand.
            operands = 1 if rows == 1 else self.together * vectors
            return accumulators + operands + 1 + self.addresses <= registers
        budget = self.machine.accumulators
        if accumulators > max(budget, sums):
            return False
        # What lanes load stays in registers until all rows have used it, one after the other.
        operands = self.together * vectors + 1
        if self.takes_apart and rows > 1 and accumulators + 2 * operands + 1 > registers:
            return False
        # LLVM accumulates in the register of an operand that has no further use: each sum takes two
        # registers. 12 to 100 rows with 8 sums take 0.7 of the time with 6 rows of a tile in place
        # of more, narrow weights 0.7 as well (`benchmarks.versions --onnx`).
        moves = sums * shape.block == rows > 1 and self.machine.elements_take_registers
        if moves and accumulators + rows + operands > registers:
            return False
        if sums > 1 and rows > 1 and accumulators + operands > registers:
            return False
        return self._has_room_for_rows(shape, sums)

    def _has_room_for_rows(self, shape: Shape, sums: int) -> bool:
        """Whether the operands of rows fit into the registers beside this many sums at once.

        Operands that neighbouring rows share stay there beside the accumulators, and so do the
        factors of each row's next terms, if products take them from a lane.
        """
        rows, breadth, apart = shape.rows, self.breadth, self.apart
        overlaps = apart is not None and (breadth > 1 or apart == 1 or rows > apart)
        stays = overlaps or (self.machine.lane_operands and rows > 1)
        shared = rows if breadth == 1 else rows - rows // breadth
        if apart is not None and breadth == 1 and not self.machine.lane_operands:
            shared = rows - apart + 1
        taken = sums * (shape.block + shape.vectors) + shared + self.addresses
        return not stays or taken <= self.machine.vector_registers or shape.block == 1

    def cost(self, shape: Shape) -> float:
        """Cycles of a step of the sums, per vector of results."""
        each = self._step(shape) / shape.rows
        if self.is_known or self.is_several:
            # Where only a run tells the number of rows, a kernel of several sums is taken to have a
            # batch.
            rows = self.rows if self.is_known else min(self.rows, _TYPICAL_BATCH)
            tiles = tiles_of_any(rows, shape.rows)
            if self.is_known:
                tiles = row_tiles(rows, shape.rows, self.is_even)
            steps = (n * self._step(Shape(shape.vectors, r, shape.held)) for n, r in tiles)
            each = sum(steps) / rows
        # Where only a run tells how many lanes there are, half of the last group is idle on
        # average.
        unused = -self.needed % shape.vectors
        padding = 1 + (unused if self.is_known_lane else (shape.vectors - 1) / 2) / self.needed
        # A single row reads each panel once in a step: panels that fit the cache can still be there
        # in the next step.
        excess = self._panel_bytes(shape) / self.machine.resident_bytes - 1
        evicted = min(_EVICTED * max(excess, 0.0), _MOST_EVICTED) if self.rows == 1 else 0.0
        return each / shape.vectors * padding * (1 + evicted)

    def _panel_bytes(self, shape: Shape) -> int:
        """Bytes that lanes load for a tile, shared by all its rows."""
        count = self.together if self.window is None else self.window.shared
        count *= max(self.inner, 1)
        return int(count * shape.vectors * self.machine.vector_bytes * self.depth * self.share)

    def _staying_bytes(self) -> int:
        """Bytes of a panel that stay in a cache until the next tile reads them."""
        often = self.sharing >= MANY_POINTS
        return self.machine.paired_bytes if often else self.machine.panel_bytes

    def _step(self, shape: Shape) -> float:
        """Cycles of a step of the sums of one tile, with its share of the stores."""
        if shape not in self._steps:
            self._steps[shape] = self._new_step(shape)
        return self._steps[shape]

    def _new_step(self, shape: Shape) -> float:
        machine, panel = self.machine, self._panel_bytes(shape)
        near = machine.near_bytes * machine.panel_share
        level = (panel > near) + (panel > self._staying_bytes())
        cycles = machine.packed_cycles if self.is_one_stream else machine.strided_cycles
        load = machine.load_cycles if self.rows == 1 else cycles[level]
        if self.sharing > shape.rows and panel > machine.paired_bytes:
            load *= _CROWDED
        sums = sums_at_once(self.together, shape.block, shape.held)
        loops = -(-self.together // sums)
        row_loads = shape.rows * -(-self.row_loads // loops) * machine.broadcast_loads
        loads = sums * max(self.inner, 1) * shape.vectors * load + row_loads * machine.load_cycles
        loads += self._loads_again(shape, sums) * machine.load_cycles
        loads += shape.vectors * self.apart_cycles
        if self.in_pieces:
            # Lines of the rows have left the first-level cache when the next tile reads them.
            item = machine.vector_bytes // self.width
            lines = 1 + (shape.rows - 1) * item / LINE_BYTES
            loads += lines * machine.strided_cycles[1]
        if self.window is not None:
            loads = self.window.shared * shape.vectors * load
            own = self.window.loaded(shape.rows) * shape.vectors
            loads += own * self.window.own_cycles
            loads += shape.rows * self.window.scalars * machine.load_cycles
        widening = shape.vectors * self.widening / max(loops, 1)
        terms = self.inner + _BEHIND_PRODUCTS if self.inner else 1
        products = (sums * shape.block * terms + widening) * machine.fma_cycles
        stores = shape.vectors * (self._store_cycles(shape.rows) + self._written_again(shape))
        if self.meets and self.is_several:
            # Values that stores compute from several sums take half of the registers.
            waiting = self.sums * shape.block - machine.vector_registers // 2
            stores += machine.waiting_cycles * max(waiting, 0)
        # Products of a term wait for each other.
        longest = max(products, loads, max(self.inner, 1) * machine.fma_latency)
        return loops * (longest + _LOADS_IN_THE_WAY * loads) + stores / max(self.depth, 1)

    def _loads_again(self, shape: Shape, sums: int) -> int:
        """Count the lanes' loads for all rows but the first, where registers do not hold them.

        With 16 registers of 32 bytes, 3 rows of 4 vectors take 1.25 times as long as 4 rows of 3.
        """
        machine, operands = self.machine, sums * shape.vectors
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
        cycles = dict(self.machine.transposed_cycles)
        total = self.gathers * rows * cycles[1]
        for known in self.runs:
            run = left = known or rows
            each = 0.0
            while left:
                count = min(self.machine.transposed_rows, 1 << (left.bit_length() - 1))
                each += count * cycles[count]
                left -= count
            total += rows // run * each
        return total

    def _written_again(self, shape: Shape) -> float:
        """Cycles, for one vector of every row, of lines that are evicted before lanes fill them."""
        lines, lanes = 0.0, shape.vectors * self.width
        ways = self.machine.near_bytes // self.machine.page_bytes
        for run, places in zip(self.runs, self.places, strict=True):
            rows = run or shape.rows
            if places is None or lanes <= places * ways:
                continue
            if rows * self.machine.vector_bytes < LINE_BYTES * self.width:
                lines += self.width * shape.rows / rows
        return lines * _WRITTEN_AGAIN


# Most kernels of a network, and most layouts of their buffers, occur several times.
@lru_cache(maxsize=1024)
def cheapest(sums: Sums) -> tuple[Shape, float]:
    """The shape that takes the fewest cycles, and these; infinitely many where none fits.

    Among equals the one of more rows, where rows share what they load, which `Sums.cost` leaves
    out: 3 x 3 filters from 32 to 64 channels of 48 x 48 pixels take 0.84 of the time with 4 rows of
    2 vectors, in place of 2 rows of 4, with AVX2 (`benchmarks.versions`, row `two convs 3x3 32to64
    48x48`).
    """
    best, least = Shape(), float("inf")
    for shape in sums.shapes():
        cost = sums.cost(shape)
        is_taller = sums.apart is not None and shape.rows > best.rows
        if cost < least - 1e-9 or (is_taller and cost < least + 1e-9):
            best, least = shape, min(cost, least)
    return best, least
