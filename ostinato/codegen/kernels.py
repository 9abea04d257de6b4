"""One native function for each kernel: loops over blocks and rows, register tiles inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce

from ostinato.codegen import safepoints
from ostinato.codegen.carried import carried_loads, stored_last
from ostinato.codegen.function import KernelFunction
from ostinato.codegen.points import Points
from ostinato.codegen.reductions import LONG, Piece
from ostinato.codegen.writer import LoopState, Value, Writer, integer
from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Load
from ostinato.program.kernel import Kernel, Tile
from ostinato.program.nodes import Buffer
from ostinato.schedule.shapes import REST_ROWS, row_tiles
from ostinato.schedule.share import Part
from ostinato.schedule.times import bounded_product, point_time
from ostinato.sizes.dims import Size, ceildiv, floordiv, minimum


class KernelEmitter:
    """Writes the function of one kernel.

    is_watched: whether it may have safepoints. numbers: symbols that are parameters.
    part: how threads divide it. Its function then also takes a thread's number and how many there
        are, and computes that thread's share.
    """

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        symbols: Sequence[str],
        declarations: set[str],
        machine: Machine,
        part: Part | None = None,
        is_watched: bool = True,
        numbers: Sequence[str] = (),
    ) -> None:
        self._part = part
        self._function = KernelFunction(
            kernel, buffers, symbols, declarations, machine, is_watched, numbers
        )
        self._w, self._x = self._function.w, self._function.x
        self._sizes, self._points = self._function.sizes, Points(self._function)
        self._point_time = point_time(kernel, safepoints.LIMIT)
        self._kernel = kernel
        self._tile = kernel.tile or Tile(None, 1)
        self._piece: Piece | None = None
        self._chunk: tuple[Axis, Value, Value] | None = None

    def text(self) -> str:
        """The whole function."""
        with ExitStack() as stack:
            first = self._read_by_all_points()
            if (some := self._has_points(is_needed=bool(first))) is not None:
                stack.enter_context(self._w.when(some))
            if self._part is not None:
                self._find_share(self._part)
            for load in first:
                self._x.value(load)
            self._points.matrices.begin()
            self._either_row()
            self._points.matrices.end()
        return self._function.text([] if self._part is None else ["i64 %share", "i64 %shares"])

    def _has_points(self, is_needed: bool) -> Value | None:
        """Whether there is a point at all; None where it is known, or loops around none are fast.

        A loop around an empty one would run all its steps, were they 2**50.
        """
        extents = [axis.extent for axis in self._kernel.axes]
        unknown = [extent for extent in extents if not isinstance(extent, int)]
        long = [extent for extent in extents if isinstance(extent, int) and extent > LONG]
        if not unknown or (len(unknown) + len(long) < 2 and not is_needed):
            return None
        found = [
            self._w.compare("icmp", "sgt", self._sizes.value(extent), integer(0), 1)
            for extent in dict.fromkeys(unknown)
        ]
        return reduce(lambda a, b: self._w.binary("and", a, b), found)

    def _read_by_all_points(self) -> list[Load]:
        """Loads that are the same at all points, to be hoisted: LLVM leaves them in loops.

        Not in kernels with sums, which need the registers; there scalars that stores use are loaded
        once for each tile.
        """
        written = self._kernel.writes()

        def is_same(load: Load) -> bool:
            access, size = load.access, self._function.buffers[load.access.buffer].size
            is_there = isinstance(access.offset, int) and isinstance(size, int) and size > 0
            moves = access.terms or load.index or load.mask is not None
            return is_there and not moves and access.buffer not in written

        return [] if self._kernel.reductions else [x for x in self._kernel.loads() if is_same(x)]

    # The share of a thread

    def _find_share(self, part: Part) -> None:
        pieces, unit = self._sizes.value(part.pieces), integer(part.unit)
        ends = dealt(self._w, pieces, Value("%share", "i64"), Value("%shares", "i64"))
        first, last = (self._w.mul(end, unit) for end in ends)
        self._own = first, last

    def _shared(self, axis: Axis, start: Value, stop: Value) -> tuple[Value, Value]:
        """The part of a range along an axis that is this thread's; it may end before it starts."""
        if self._chunk is not None and axis == self._chunk[0]:
            start, stop = self._within(start, stop, *self._chunk[1:])
        if self._part is not None and axis == self._part.axis:
            start, stop = self._within(start, stop, *self._own)
        return start, stop

    def _within(self, start: Value, stop: Value, first: Value, last: Value) -> tuple[Value, Value]:
        start = first if start.text == "0" else self._w.call("i64", "llvm.smax.i64", start, first)
        return start, self._w.call("i64", "llvm.smin.i64", stop, last)

    # Loops around the tile

    @contextmanager
    def _loop(
        self,
        axis: Axis,
        start: Value,
        stop: Value,
        step: int,
        rows: int = 1,
        carried: Sequence[Value] = (),
    ) -> Iterator[LoopState]:
        """A loop along an axis of points, `rows` at a time."""
        inside = [a.extent for a in self._kernel.axes if a != axis and a not in self._x.place]
        time = bounded_product([*inside, rows, self._point_time], safepoints.LIMIT)
        with self._function.loops.loop(start, stop, step, time, carried) as loop:
            yield loop

    def _either_row(self) -> None:
        """Write all points; rows run along the longer of two axes, where only a run tells which."""
        row, other = self._tile.row, self._tile.other
        if row is not None and self._tile.groups > 1:
            self._one_row_or_more(row)
            return
        if row is None or other is None:
            self._all(row)
            return
        enough = self._tile.enough
        least = other.extent if enough is None else minimum(other.extent, enough)
        left, right = self._sizes.value(row.extent), self._sizes.value(least)
        is_longer = self._w.compare("icmp", "sge", left, right, 1)
        for axis, holds in (
            (row, is_longer),
            (other, self._w.binary("xor", is_longer, Value("true", "i1"))),
        ):
            with self._w.when(holds), self._x.scope():
                self._all(axis)

    def _one_row_or_more(self, row: Axis) -> None:
        """Write all points; where there is a single row, several groups of lanes take its place."""
        extent = self._sizes.value(row.extent)
        tile, alone = self._tile, self._w.compare("icmp", "eq", extent, integer(1), 1)
        with self._w.when(alone), self._x.scope():
            start, stop = self._shared(row, integer(0), integer(1))
            with ExitStack() as stack:
                if self._part is not None and self._part.axis == row:
                    own = self._w.compare("icmp", "slt", start, stop, 1)
                    stack.enter_context(self._w.when(own))
                self._x.place[row] = (integer(0), 0)
                self._tile = replace(tile, row=tile.block, rows=tile.groups, chunk=None)
                self._x.rows_along(tile.block)
                special = {tile.lane, tile.block, row}
                self._nest([a for a in self._kernel.axes if a not in special], self._groups)
        del self._x.place[row]
        self._tile = tile
        with self._w.when(self._w.binary("xor", alone, Value("true", "i1"))), self._x.scope():
            self._all(row)

    def _groups(self) -> None:
        """Write full groups of lanes, several at once as if they were rows, then the last one."""
        tile = self._tile
        assert tile.block is not None
        if tile.limit is None:
            self._rows(tile.block.extent)
            return
        full = floordiv(tile.limit, tile.width * tile.vectors)
        if full != 0:
            self._rows(full)
        self._last_group(full, lambda: self._tiles(1))

    def _all(self, row: Axis | None) -> None:
        tile = self._tile = replace(self._tile, row=row, other=None)
        self._x.rows_along(row, tile.across)
        special = {tile.lane, tile.block, row, tile.across, *tile.inside}
        self._nest([a for a in self._kernel.axes if a not in special], self._pieces)

    def _nest(self, axes: Sequence[Axis], inside: Callable[[], None]) -> None:
        if not axes:
            inside()
            return
        axis, rest = axes[0], axes[1:]
        start, stop = self._shared(axis, integer(0), self._sizes.value(axis.extent))
        kept = []
        if not rest:
            kept = carried_loads(self._kernel, axis, self._tile, self._function.buffers)
            self._points.later = frozenset(stored_last(self._kernel, axis, kept))
        with self._x.scope():
            self._x.place[axis] = (start, 0)
            first = [self._x.value(load) for load, _ in kept]
        with self._loop(axis, start, stop, 1, carried=first) as loop, self._x.scope():
            self._x.place[axis] = (loop.index, 0)
            for (load, _), value in zip(kept, loop.carried, strict=True):
                self._x.know(load, value)
            self._nest(rest, inside)
            loop.results = [self._points.stored[store] for _, store in kept]
        for (_, store), value in zip(kept, loop.carried, strict=True):
            if store in self._points.later:
                self._function.stores.put(store, value)

    def _pieces(self) -> None:
        """Write all terms of the sums, or piece after piece of them, each for all points."""
        depth = self._tile.depth
        if depth is None:
            self._chunks()
            return
        extent = self._kernel.reductions[0].axes[0].extent
        before = self._sizes.value(ceildiv(extent, depth) * depth - depth)
        last = self._w.call("i64", "llvm.smax.i64", before, integer(0))
        with self._w.loop(integer(0), last, depth) as loop, self._x.scope():
            self._piece = self._piece_from(loop.index, depth)
            self._blocks()
        self._piece = self._piece_from(last, None)
        self._blocks()
        self._piece = None

    def _piece_from(self, start: Value, terms: int | None) -> Piece:
        some = self._w.compare("icmp", "sgt", start, integer(0), 1)
        return Piece(start, terms, self._w.splat(some, self._tile.width))

    def _chunks(self) -> None:
        """Write all groups of lanes for some points, then for the next ones."""
        length, axis = self._tile.chunk, self._inside_axis()
        if length is None or axis is None:
            self._blocks()
            return
        assert axis != self._tile.row or length % self._tile.rows == 0, "a tile leaves its chunk"
        with self._w.loop(integer(0), self._sizes.value(axis.extent), length) as loop:
            self._chunk = axis, loop.index, self._w.add(loop.index, integer(length))
            self._blocks()
            self._chunk = None

    def _inside_axis(self) -> Axis | None:
        """The outermost axis that passes before the next group of lanes begins."""
        tile = self._tile
        axes = [axis for axis in tile.inside if axis not in (tile.row, tile.across)]
        return axes[0] if axes else tile.row

    def _blocks(self) -> None:
        """Write full groups of lanes, then the group that the axis does not fill."""
        tile = self._tile
        group = tile.width * tile.vectors
        if tile.limit is None:
            if tile.block is None:
                self._inside()
            else:
                self._each_block(tile.block, self._sizes.value(tile.block.extent))
            return
        if tile.block is None:
            self._partly(self._sizes.value(tile.limit), self._inside)
            return
        full = floordiv(tile.limit, group)
        rest = self._left(full)
        # A tile of fewer vectors takes less time.
        needs_all = not isinstance(rest, int) or rest > group - tile.width
        if needs_all and self._points.sums_are_padded():
            self._each_block(tile.block, self._sizes.value(tile.block.extent), full)
            return
        if full != 0:
            self._each_block(tile.block, self._sizes.value(full))
        self._last_group(full, self._inside)

    def _last_group(self, full: Size, inside: Callable[[], None]) -> None:
        """Write the group of lanes behind the full ones, which the axis does not fill, if any."""
        tile = self._tile
        assert tile.block is not None and tile.limit is not None
        rest = self._left(full)
        if rest == 0:
            return
        last = self._sizes.value(full)
        with ExitStack() as stack:
            if not isinstance(rest, int):
                some = self._w.compare("icmp", "sgt", self._sizes.value(rest), integer(0), 1)
                stack.enter_context(self._w.when(some))
            if self._part is not None and self._part.axis == tile.block:
                start, stop = self._shared(tile.block, last, self._w.add(last, integer(1)))
                stack.enter_context(self._w.when(self._w.compare("icmp", "slt", start, stop, 1)))
            stack.enter_context(self._x.scope())
            self._x.place[tile.block] = (last, 0)
            left = self._sizes.value(rest)
            if isinstance(rest, int) or tile.vectors == 1 or self._points.matrices.operands:
                self._partly(left, inside)
                return
            # Only a run tells how many vectors have a lane.
            assert tile.lane is not None
            self._tile = replace(tile, vectors=1)
            for start in map(integer, range(0, tile.vectors * tile.width, tile.width)):
                with self._w.when(self._w.compare("icmp", "sgt", left, start, 1)), self._x.scope():
                    self._x.place[tile.lane] = (start, 0)
                    self._partly(self._w.sub(left, start), inside)
            del self._x.place[tile.lane]
            self._tile = tile

    def _left(self, full: Size) -> Size:
        """How many lanes remain behind `full` full groups."""
        tile = self._tile
        assert tile.limit is not None
        return tile.limit - full * (tile.width * tile.vectors)

    def _each_block(self, block: Axis, stop: Value, full: Size | None = None) -> None:
        """Write groups of lanes: `full` are full and the last one may not be; None if all are."""
        start, stop = self._shared(block, integer(0), stop)
        with self._loop(block, start, stop, 1) as loop, self._x.scope():
            number = self._in_serpentine(loop.index, start, stop, 1)
            self._x.place[block] = (number, 0)
            if full is None:
                self._inside()
                return
            is_full = self._w.compare("icmp", "slt", number, self._sizes.value(full), 1)
            with self._points.either(is_full, self._sizes.value(self._left(full))):
                self._inside()

    def _in_serpentine(self, index: Value, start: Value, stop: Value, step: int) -> Value:
        """The index, counted from the end in every other step of the loop around."""
        axis = self._tile.serpentine
        if axis is None:
            return index
        odd = self._w.convert("trunc", self._x.place[axis][0], "i1")
        last = self._w.add(start, self._w.binary("sub", stop, integer(step)))
        return self._w.select(odd, self._w.binary("sub", last, index), index)

    def _partly(self, rest: Value, inside: Callable[[], None]) -> None:
        """Write a group of which only `rest` lanes exist."""
        whole = self._tile
        with self._points.first_lanes(rest, whole) as self._tile:
            inside()
        self._tile = whole

    def _inside(self) -> None:
        """Write all points of a group of lanes."""
        row = self._tile.row
        rows = (lambda: self._tiles(1)) if row is None else (lambda: self._rows(row.extent))
        self._nest([a for a in self._tile.inside if a not in (row, self._tile.across)], rows)

    def _rows(self, extent: Size) -> None:
        """Write full tiles of rows, then smaller ones for the rest, or tiles that are even.

        Where an axis is divided, its parts end where full tiles do.
        """
        tile = self._tile
        assert tile.row is not None
        divided = tile.chunk is not None or (self._part is not None and self._part.axis == tile.row)
        done: Size = 0
        if tile.even and isinstance(extent, int) and not divided:
            for count, rows in row_tiles(extent, tile.rows, even=True):
                self._row_tiles(tile.row, done, done + count * rows, rows)
                done += count * rows
            return
        for rows in (tile.rows, *(n for n in REST_ROWS if n < tile.rows)):
            left = extent - done
            if isinstance(left, int):
                if left <= 0:
                    return
                # The rest of a known extent is one tile of exactly that many rows.
                rows = min(rows, left) if rows == tile.rows else left
            stop = done + floordiv(left, rows) * rows
            if stop != done:
                self._row_tiles(tile.row, done, stop, rows)
            done = stop

    def _row_tiles(self, row: Axis, start: Size, stop: Size, rows: int) -> None:
        first, last = self._shared(row, self._sizes.value(start), self._sizes.value(stop))
        with self._loop(row, first, last, rows, rows) as loop, self._x.scope():
            index = loop.index
            if row == self._tile.block:
                index = self._in_serpentine(index, first, last, rows)
            self._x.place[row] = (index, 0)
            self._tiles(rows)

    def _tiles(self, rows: int) -> None:
        """Write one tile of `rows` rows."""
        self._points.write(self._tile, rows * self._tile.breadth, self._piece)


def dealt(w: Writer, pieces: Value, share: Value, shares: Value) -> tuple[Value, Value]:
    """The first of a thread's pieces, and where they end.

    They are dealt out as evenly as possible, neighbours together, most to thread 0.
    """
    up = w.sub(shares, integer(1))
    ends = [w.mul(pieces, n) for n in (share, w.add(share, integer(1)))]
    first, last = (w.binary("udiv", w.add(end, up), shares) for end in ends)
    return first, last
