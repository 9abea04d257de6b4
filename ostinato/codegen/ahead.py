"""Prefetch the next panel of weights while the tiles of a group of lanes still read this one.

Weights that are not in a cache arrive at the pace of memory in the first tile of each group, and
from a cache in all others. So each tile prefetches its part of the next panel, spread over its
sums:

    panel of group b      | step 0 | step 1 | step 2 | ..      all of it read by every tile
    panel of group b + 1  | 0 1 2  | 0 1 2  | 0 1 2  | ..      lines fetched by tiles 0, 1, 2

A group of a single tile reads its panel once, at the pace of memory: it prefetches what it reads a
few steps later. Where only a run tells how many tiles there are, each of the first ones fetches a
line.

Rows of an image whose channels are neighbours lie a line or more apart. Each tile prefetches what
the rows of the next one read: hardware prefetchers do not follow such a pattern. Nor do they follow
short rows of several sums, one loop after the other, or short rows that are transposed in
registers, as the keys of attention: there each term fetches a line of some of the next lanes.

Nothing is computed with what is fetched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ostinato.codegen.expressions import Expressions
from ostinato.codegen.primitives import MEMORY
from ostinato.codegen.sizes import Sizes
from ostinato.codegen.writer import Value, Writer, integer
from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Load, dtype_of, walk
from ostinato.program.kernel import Kernel, Tile
from ostinato.program.nodes import Buffer
from ostinato.records import dataclass
from ostinato.schedule.operands import typical
from ostinato.sizes.dims import Size, ceildiv, minimum, product

# The distance at which a stream that is read once is prefetched: what memory delivers within its
# latency, a tenth of a microsecond at 25 GB/s, and some more. Layers of `benchmarks.bench_networks`
# with 512 channels of 2 x 2 pixels take 0.7 of the time that they take without, about the same from
# 2 to 16 KiB.
STREAM_BYTES = 4096
# Into the second-level cache: a panel may be larger than the first-level one.
_LOCALITY = integer(2, "i32")
_FIRST = integer(3, "i32")
_READ, _DATA = integer(0, "i32"), integer(1, "i32")
# A sum of fewer terms is done before memory has answered: a tenth of a microsecond, 4 to 8 cycles
# a term.
_LONG_SUM = 64
# The share of a loop's cycles that its tile may spend on reading the second-level cache and,
# counted half, on waiting for what it fetches: beyond, prefetching costs more than it gains. A
# recurrence of four gates of 512 to 1024 units in tiles of 4 rows takes 0.8 to 0.9 of the time
# without (batches of 16 and 32), one of three gates in tiles of 8 rows 1.05, 128 rows by 1024 x
# 4096 1.04 and 48 rows 0.98.
_MOST_BUSY = 0.35


@dataclass(frozen=True)
class _Panel:
    """Packed operands: the bytes read per step of the outermost axis of a sum, and in total."""

    access: Access
    step_bytes: int
    bytes: int


class Ahead:
    """Writes the prefetches of one kernel.

    Weights are prefetched if they no longer are in the second-level cache. Prefetching weights that
    are costs a recurrent layer of 256 over 100 steps 5 % (`python -m benchmarks.versions`).
    """

    def __init__(
        self,
        w: Writer,
        x: Expressions,
        sizes: Sizes,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        machine: Machine,
    ) -> None:
        self._w, self._x, self._sizes = w, x, sizes
        self._kernel, self._buffers = kernel, buffers
        loops = {reduce.axes for reduce in kernel.reductions}
        self._terms = sum(typical(product([axis.extent for axis in axes])) for axes in loops)
        self._machine = machine
        self._far, self._near = machine.far_bytes, machine.first_level_bytes
        summed = {load.access.buffer: ITEM_BYTES[load.dtype] for load in kernel.summed}
        self._summed_bytes = sum(buffers[name].size * item for name, item in summed.items())

    def write(self, tile: Tile, rows: int, axes: Sequence[Axis], positions: Sequence[int]) -> None:
        """Prefetch a tile's part of what a step of `axes[0]` reads in the next group."""
        is_known = all(isinstance(axis.extent, int) for axis in tile.inside)
        tiles = _tiles(tile)
        # Where few rows share a panel, prefetching takes as long as reading it.
        is_shared = rows == tile.rows > 1 and tiles > 1
        if not tile.inside or not (is_known or is_shared):
            return
        saved = dict(self._x.place)
        self._x.place.update({axis: (integer(0), 0) for axis in axes[1:]})
        for panel in self._panels(tile, axes, positions):
            if tiles > 1 and self._busy(tile, tiles, panel, axes, positions) > _MOST_BUSY:
                continue
            lines = -(-panel.step_bytes // (LINE_BYTES * tiles)) if is_known else 1
            distance = integer(STREAM_BYTES)
            if tiles > 1:
                first = self._w.mul(self._number(tile), integer(lines * LINE_BYTES))
                distance = self._w.add(first, self._next(tile, panel))
            if not is_known:
                # Once all of the panel is fetched, further tiles fetch their own place, which is
                # cached.
                fetch = self._w.compare("icmp", "slt", first, integer(panel.step_bytes), 1)
                distance = self._w.select(fetch, distance, integer(0))
            own = self._x.addresses.of(panel.access, 0, 0)
            address = self._w.pointer(own, distance, "i8")
            for line in range(lines):
                place = self._w.pointer(address, integer(line * LINE_BYTES), "i8")
                self._w.call("void", "llvm.prefetch.p0", place, _READ, _LOCALITY, _DATA)
        self._x.place.clear()
        self._x.place.update(saved)

    def write_rows(
        self, tile: Tile, rows: int, axes: Sequence[Axis], positions: Sequence[int]
    ) -> None:
        """Prefetch the rows of the next tile, where each row has lines of its own.

        Steps of `axes[0]` read neighbours then: of the steps that share a line, each fetches a
        row's.
        """
        if tile.row is None or tile.across is not None or rows < 2:
            return
        operands = [e for p in positions for e in self._kernel.reductions[p].operands]
        for load in dict.fromkeys(node for node in walk(*operands) if isinstance(node, Load)):
            if not self._has_lines_of_rows(load, tile.row, axes):
                continue
            if len(axes) > 1 or self._is_short_stream(load, rows, axes[0], positions):
                self._write_row(load, tile.row, rows, axes)

    def write_lanes(self, tile: Tile, rows: int, positions: Sequence[int], axis: Axis) -> None:
        """Prefetch short rows along `axis` that the next lanes read and that are transposed.

        Of the terms that share a line, each fetches that of as many lanes. One query and the keys
        of 64 channels take 0.7 to 0.9 of the time so (row `one query` of `benchmarks.bench_micro`).
        """
        is_group = tile.row == tile.block
        if tile.lane is None or tile.block is None or (tile.rows > 1 and not is_group):
            return
        lanes = tile.width * tile.vectors * (rows if is_group else 1)
        operands = [e for p in positions for e in self._kernel.reductions[p].operands]
        for load in dict.fromkeys(node for node in walk(*operands) if isinstance(node, Load)):
            stride, each = load.access.stride(tile.lane), LINE_BYTES // ITEM_BYTES[load.dtype]
            if lanes % each == 0 and self._has_short_rows(load, stride, lanes):
                start, copy = self._x.place[axis]
                place = self._x.addresses.of(load.access, 0, 0)
                number = self._w.binary("and", start, integer(each - 1))
                for first in range(lanes, 2 * lanes, each):
                    lane = self._w.add(number, integer(first + copy))
                    away = self._w.mul(lane, self._sizes.value(stride))
                    line = self._w.pointer(place, away, MEMORY[load.dtype])
                    self._w.call("void", "llvm.prefetch.p0", line, _READ, _FIRST, _DATA)

    def _has_short_rows(self, load: Load, stride: Size, lanes: int) -> bool:
        """Whether rows of this and the next `lanes` lanes stay in the first-level cache.

        Rows that are in it anyway are not prefetched.
        """
        if not isinstance(stride, int) or stride in (0, 1):
            return False
        size, item = self._buffers[load.access.buffer].size, ITEM_BYTES[load.dtype]
        is_near = isinstance(size, int) and size * item <= self._near
        is_short = lanes * self._terms * item <= self._machine.block_bytes
        return is_short and not is_near and self._machine.lines_stay(2 * lanes, stride * item)

    def write_results(self, tile: Tile, rows: int) -> None:
        """Prefetch what stores behind long sums read, and rows that each step writes elsewhere.

        That is where each row has a line or more. Lines that are written are prefetched into the
        second-level cache: those of several results, a row of each apart, would evict each other in
        the first. Steps of four gates of 128 units and a batch of 64 that keep six results for
        their gradient take 0.8 of the time.
        """
        if tile.lane is None or self._terms < _LONG_SUM:
            return
        summed = {node for r in self._kernel.reductions for node in walk(*r.operands)}
        plain = (x for x in self._kernel.loads() if x.mask is None and not x.index)
        found = [
            (load.access, _FIRST)
            for load in plain
            if load not in summed and self._is_far(load.access, ITEM_BYTES[load.dtype], rows)
        ]
        found += [
            (store.access, _LOCALITY)
            for store in self._kernel.stores
            if not store.partial
            and self._is_of_a_step(store.access, rows)
            and self._is_far(store.access, ITEM_BYTES[dtype_of(store.value)], rows)
        ]
        for access, cache in found:
            if access.stride(tile.lane) != 1:
                continue
            for row, number in itertools.product(range(rows), range(tile.vectors)):
                place = self._x.addresses.of(access, row, number)
                self._w.call("void", "llvm.prefetch.p0", place, _READ, cache, _DATA)

    def _is_far(self, access: Access, item: int, rows: int) -> bool:
        """Whether a buffer exceeds the first-level cache, as those that grow with steps may."""
        size = self._buffers[access.buffer].size
        if isinstance(size, int):
            return size * item > self._near
        return self._is_of_a_step(access, rows)

    def _is_of_a_step(self, access: Access, rows: int) -> bool:
        """Whether each step of a loop around the kernel accesses other rows of a buffer.

        Hardware prefetchers follow a single row from step to step.
        """
        return rows > 1 and not self._kernel.own_axes.issuperset(axis for axis, _ in access.terms)

    def _has_lines_of_rows(self, load: Load, row: Axis, axes: Sequence[Axis]) -> bool:
        """Whether rows of a load that exceeds the first-level cache lie a line apart or more."""
        stride, item = load.access.stride(row), ITEM_BYTES[load.dtype]
        plain = load.mask is None and not load.index and not self._x.by_lanes(load)
        apart = isinstance(stride, int) and stride * item >= LINE_BYTES
        size = self._buffers[load.access.buffer].size
        leaves = isinstance(size, int) and size * item > self._near
        known = all(isinstance(axis.extent, int) for axis in axes)
        near = load.access.stride(axes[0]) == 1
        return plain and apart and leaves and known and near

    def _is_short_stream(self, load: Load, rows: int, axis: Axis, positions: Sequence[int]) -> bool:
        """Whether a loop reads short rows that have left the second-level cache after other loops.

        Prefetchers follow longer rows, and the rows of a single loop. Products of 1600 rows by four
        matrices of 256 x 256 take 0.8 of the time, 0.95 with AVX2.
        """
        size, machine = self._summed_bytes, self._machine
        leaves = isinstance(size, int) and size > machine.second_level_bytes
        is_alone = len(positions) == len(self._kernel.reductions)
        row_bytes = _extent(axis) * ITEM_BYTES[load.dtype]
        return leaves and not is_alone and rows * row_bytes <= machine.block_bytes

    def _write_row(self, load: Load, row: Axis, rows: int, axes: Sequence[Axis]) -> None:
        saved = dict(self._x.place)
        (start, _), (step, plus) = saved[row], saved[axes[0]]
        elements = LINE_BYTES // ITEM_BYTES[load.dtype]
        number = self._w.binary("and", self._w.add(step, integer(plus)), integer(elements - 1))
        self._x.place.update({axis: (integer(0), 0) for axis in axes[1:]})
        self._x.place[row] = (self._w.add(start, self._w.add(number, integer(rows))), 0)
        around = [axis for axis in axes[1:-1] if load.access.stride(axis) != 0]
        for point in itertools.product(*(range(_extent(axis)) for axis in around)):
            numbers = zip(around, point, strict=True)
            self._x.place.update({axis: (integer(0), number) for axis, number in numbers})
            place = self._x.addresses.of(load.access, 0, 0)
            self._w.call("void", "llvm.prefetch.p0", place, _READ, _FIRST, _DATA)
        self._x.place.clear()
        self._x.place.update(saved)

    def _busy(
        self,
        tile: Tile,
        tiles: int,
        panel: _Panel,
        axes: Sequence[Axis],
        positions: Sequence[int],
    ) -> float:
        """Cycles of a loop's panel loads and half of its prefetches, over its multiply-adds'."""
        terms = len(positions) * typical(product([axis.extent for axis in axes[1:]]))
        machine = self._machine
        reads = panel.step_bytes / machine.vector_bytes * machine.packed_cycles[1]
        products = tile.height * tile.vectors * terms * machine.fma_cycles
        return (1 + 0.5 / tiles) * reads / products

    def _next(self, tile: Tile, panel: _Panel) -> Value:
        """The distance in bytes to the panel that is read next."""
        if tile.serpentine is None:
            return integer(panel.bytes)
        place, _ = self._x.place[tile.serpentine]
        is_odd = self._w.convert("trunc", place, "i1")
        return self._w.select(is_odd, integer(-panel.bytes), integer(panel.bytes))

    def _panels(
        self, tile: Tile, axes: Sequence[Axis], positions: Sequence[int]
    ) -> Iterator[_Panel]:
        operands = [e for p in positions for e in self._kernel.reductions[p].operands]
        seen: set[str] = set()
        for load in walk(*operands):
            if not isinstance(load, Load) or load.access.buffer in seen or tile.block is None:
                continue
            step, whole = load.access.stride(axes[0]), load.access.stride(tile.block)
            buffer, item = self._buffers[load.access.buffer], ITEM_BYTES[load.dtype]
            is_far = isinstance(buffer.size, int) and buffer.size * item > self._far
            if (
                buffer.padded
                and is_far
                and isinstance(step, int)
                and isinstance(whole, int)
                and step
                and whole
            ):
                seen.add(load.access.buffer)
                yield _Panel(load.access, step * item, whole * item)

    def _number(self, tile: Tile) -> Value:
        """The number of this tile in its group of lanes, or in the chunk that all groups share."""
        number = integer(0)
        for position, axis in enumerate(_passing(tile)):
            place = self._w.add(self._x.place[axis][0], integer(self._x.place[axis][1]))
            extent = self._sizes.value(axis.extent)
            if position == 0 and tile.chunk is not None:
                extent = integer(tile.chunk)
                place = self._w.binary("urem", place, extent)
            count = self._sizes.value(_tiles_along(tile, axis))
            if axis == tile.row:
                place = self._w.binary("udiv", self._w.mul(place, count), extent)
            number = self._w.add(self._w.mul(number, count), place)
        return number


def _passing(tile: Tile) -> list[Axis]:
    """The axes along which tiles run before the next group of lanes begins, outermost first."""
    axes = [axis for axis in tile.inside if axis not in (tile.row, tile.across)]
    return axes if tile.row is None else [*axes, tile.row]


def _tiles_along(tile: Tile, axis: Axis) -> Size:
    """How many tiles of a chunk, or of all points, lie along an axis."""
    extent = axis.extent
    if tile.chunk is not None and axis == _passing(tile)[0]:
        extent = minimum(extent, tile.chunk)
    return ceildiv(extent, tile.rows) if axis == tile.row else extent


def _extent(axis: Axis) -> int:
    assert isinstance(axis.extent, int)
    return axis.extent


def _tiles(tile: Tile) -> int:
    """How many tiles read a panel, typically where only a run tells."""
    axes = [axis for axis in tile.inside if axis != tile.across]
    return prod(typical(_tiles_along(tile, axis)) for axis in axes)
