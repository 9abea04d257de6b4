"""One native function for each kernel: loops over blocks and rows, register tiles inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from ostinato.codegen import safepoints
from ostinato.codegen.expressions import Expressions
from ostinato.codegen.primitives import ELEMENT, Primitives
from ostinato.codegen.safepoints import Safepoints
from ostinato.codegen.sizes import Sizes
from ostinato.codegen.transposed_store import is_transposed, store_rows
from ostinato.codegen.writer import LoopState, Value, Writer, integer, is_constant, vector
from ostinato.program.expr import Axis, Reduced, walk
from ostinato.program.nodes import Buffer, Kernel, Reduce, Store, Tile, identity
from ostinato.schedule.cost import sums_at_once
from ostinato.schedule.share import Part
from ostinato.schedule.times import bounded_product, kernel_time, point_time, store_time, term_time
from ostinato.sizes.dims import Size, ceildiv, floordiv

# An innermost loop is unrolled to at most this many multiply-adds, and this many copies.
UNROLL_OPERATIONS = 64
UNROLL = 4


@dataclass(frozen=True)
class _Piece:
    """Some terms of long sums.

    start: the first of them. terms: how many; None for all that are left. follows: for each lane,
    whether there are terms before it.
    """

    start: Value
    terms: int | None
    follows: Value


@dataclass(frozen=True)
class Signature:
    """How a kernel's function is called: pointers of these buffers, the symbols, outer indices."""

    name: str
    buffers: tuple[str, ...]
    outer: tuple[Axis, ...]


def signature(kernel: Kernel) -> Signature:
    """Parameters of the kernel's function."""
    own = set(kernel.axes) | {axis for r in kernel.reductions for axis in r.axes}
    used: dict[Axis, None] = {}
    accesses = [load.access for load in kernel.loads()] + [s.access for s in kernel.stores]
    buffers = tuple(dict.fromkeys(access.buffer for access in accesses))
    for access in accesses:
        used.update((axis, None) for axis, _ in access.terms)
    for node in walk(*kernel.expressions()):
        axis = getattr(node, "axis", None)
        if axis is not None:
            used[axis] = None
    if kernel.tile is not None and kernel.tile.serpentine is not None:
        used[kernel.tile.serpentine] = None
    outer = sorted((axis for axis in used if axis not in own), key=str)
    return Signature(f"kernel.{kernel.name}", buffers, tuple(outer))


def is_long(time: Size) -> bool:
    """Whether a kernel of this `kernel_time` may take long, so that its function has safepoints.

    It then takes a `%Poll` besides, which is null in a run whose sizes make it short, and returns
    whether it stopped.
    """
    return not isinstance(time, int) or time >= safepoints.LIMIT


def _neighbours(kernel: Kernel, stores: Sequence[Store]) -> list[list[Store]]:
    """The stores of a point, those together that write elements next to each other."""
    groups: list[list[Store]] = []
    # Where a point reads what it writes, the order of its stores matters.
    alone = bool(kernel.ordered) or not kernel.reads().isdisjoint(kernel.writes())
    for store in stores:
        before = replace(store.access, offset=store.access.offset - 1)
        group = next((g for g in groups if g[-1].access == before and not alone), None)
        if group is None:
            groups.append([store])
        else:
            group.append(store)
    return groups


class KernelEmitter:
    """Writes the function of one kernel.

    part: how threads divide it. Its function then also takes a thread's number and how many there
        are, and computes that thread's share.
    """

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        symbols: Sequence[str],
        declarations: set[str],
        byte_dots: bool,
        part: Part | None = None,
    ) -> None:
        self.signature = signature(kernel)
        self._part = part
        self._w = Writer(declarations)
        self._piece: _Piece | None = None
        time = kernel_time(kernel, safepoints.LIMIT)
        self._safepoints = Safepoints(self._w, is_optional=not isinstance(time, int))
        # Whether a loop that is written now may need safepoints; what a point and a step of a
        # reduction take.
        self._asks = self._is_long = is_long(time)
        self._point_time = point_time(kernel, safepoints.LIMIT)
        self._step_time = 0
        self._kernel = kernel
        self._tile = kernel.tile or Tile(None, 1)
        self._sizes = Sizes(symbols, declarations)
        self._primitives = Primitives(self._w, byte_dots)
        pointers = {n: Value(f"%b{i}", "ptr") for i, n in enumerate(self.signature.buffers)}
        self._x = Expressions(self._w, self._sizes, pointers, buffers)
        self._x.lane, self._x.width, self._x.row = self._tile.lane, self._tile.width, self._tile.row
        for i, axis in enumerate(self.signature.outer):
            self._x.place[axis] = (Value(f"%a{i}", "i64"), 0)

    def text(self) -> str:
        """The whole function."""
        if self._part is not None:
            self._find_share(self._part)
        self._either_row()
        parameters = [f"ptr noalias %b{i}" for i in range(len(self.signature.buffers))]
        parameters += ["ptr noalias readonly %symbols"]
        parameters += [f"i64 %a{i}" for i in range(len(self.signature.outer))]
        parameters += [] if self._part is None else ["i64 %share", "i64 %shares"]
        parameters += ["ptr noalias %poll"] if self._is_long else []
        type_, result = ("i1", "i1 false") if self._is_long else ("void", "void")
        return (
            f'define internal {type_} @"{self.signature.name}"({", ".join(parameters)}) #0 {{\n'
            f"start:\n{self._sizes.text()}\n  br label %entry\nentry:\n"
            f"{self._w.text()}\n  ret {result}\n{self._safepoints.ending('i1 true')}}}\n"
        )

    # The share of a thread

    def _find_share(self, part: Part) -> None:
        """Pieces are dealt out as evenly as they can be, neighbours together, most to thread 0."""
        pieces, unit = self._sizes.value(part.pieces), integer(part.unit)
        share, shares = Value("%share", "i64"), Value("%shares", "i64")
        up = self._w.sub(shares, integer(1))
        ends = [self._w.mul(pieces, n) for n in (share, self._w.add(share, integer(1)))]
        dealt = [self._w.binary("udiv", self._w.add(end, up), shares) for end in ends]
        first, last = (self._w.mul(end, unit) for end in dealt)
        self._own = first, last

    def _shared(self, axis: Axis, start: Value, stop: Value) -> tuple[Value, Value]:
        """What of a range along an axis belongs to this thread; it may end before it starts."""
        if self._part is None or axis != self._part.axis:
            return start, stop
        first, last = self._own
        start = first if start.text == "0" else self._w.call("i64", "llvm.smax.i64", start, first)
        return start, self._w.call("i64", "llvm.smin.i64", stop, last)

    # Loops around the tile

    @contextmanager
    def _loop(
        self, axis: Axis, start: Value, stop: Value, step: int, rows: int = 1
    ) -> Iterator[LoopState]:
        """A loop along an axis of points, `rows` at a time."""
        inside = [a.extent for a in self._kernel.axes if a != axis and a not in self._x.place]
        time = bounded_product([*inside, rows, self._point_time], safepoints.LIMIT)
        with self._watched(start, stop, step, time) as loop:
            yield loop

    @contextmanager
    def _watched(
        self, start: Value, stop: Value, step: int, time: Size, carried: Sequence[Value] = ()
    ) -> Iterator[LoopState]:
        """A loop, with safepoints if it is the outermost one whose iterations are surely short.

        time: what an iteration takes. Safepoints of iterations that are too short are shared by
        several: those are a loop inside.
        """
        if not self._asks or not isinstance(time, int) or time >= safepoints.LIMIT:
            with self._w.loop(start, stop, step, carried) as loop:
                yield loop
            return
        self._asks = False
        count = safepoints.GRAIN // time
        if count <= 1:
            with self._w.loop(start, stop, step, carried) as loop:
                self._safepoints.write(integer(time))
                yield loop
        else:
            with self._w.loop(start, stop, step * count, carried) as group:
                self._safepoints.write(integer(time * count))
                end = self._w.add(group.index, integer(step * count))
                end = self._w.call("i64", "llvm.smin.i64", end, stop)
                with self._w.loop(group.index, end, step, group.carried) as loop:
                    yield loop
                group.results = loop.carried
            loop.carried = group.carried
        self._asks = True

    def _either_row(self) -> None:
        """All points; rows along the longer of two axes, where only a run tells which it is."""
        row, other = self._tile.row, self._tile.other
        if row is not None and self._tile.groups > 1:
            self._one_row_or_more(row)
            return
        if row is None or other is None:
            self._all(row)
            return
        left, right = self._sizes.value(row.extent), self._sizes.value(other.extent)
        is_longer = self._w.compare("icmp", "sge", left, right, 1)
        for axis, holds in (
            (row, is_longer),
            (other, self._w.binary("xor", is_longer, Value("true", "i1"))),
        ):
            with self._w.when(holds), self._x.scope():
                self._all(axis)

    def _one_row_or_more(self, row: Axis) -> None:
        """All points; a single row has several groups of lanes at once in its place."""
        extent = self._sizes.value(row.extent)
        tile, alone = self._tile, self._w.compare("icmp", "eq", extent, integer(1), 1)
        with self._w.when(alone), self._x.scope():
            start, stop = self._shared(row, integer(0), integer(1))
            with ExitStack() as stack:
                if self._part is not None and self._part.axis == row:
                    own = self._w.compare("icmp", "slt", start, stop, 1)
                    stack.enter_context(self._w.when(own))
                self._x.place[row] = (integer(0), 0)
                self._tile = replace(tile, row=tile.block, rows=tile.groups)
                self._x.rows_along(tile.block)
                special = {tile.lane, tile.block, row}
                self._nest([a for a in self._kernel.axes if a not in special], self._groups)
        del self._x.place[row]
        self._tile = tile
        with self._w.when(self._w.binary("xor", alone, Value("true", "i1"))), self._x.scope():
            self._all(row)

    def _groups(self) -> None:
        """Full groups of lanes, several at once as if they were rows, then the last one."""
        tile = self._tile
        assert tile.block is not None
        if tile.limit is None:
            self._rows(tile.block.extent)
            return
        full = floordiv(tile.limit, tile.width * tile.vectors)
        if full != 0:
            self._rows(full)
        self._last_group(full, lambda: self._points(1))

    def _all(self, row: Axis | None) -> None:
        tile = self._tile = replace(self._tile, row=row, other=None)
        self._x.rows_along(row)
        special = {tile.lane, tile.block, row, *tile.inside}
        self._nest([a for a in self._kernel.axes if a not in special], self._pieces)

    def _nest(self, axes: Sequence[Axis], inside: Callable[[], None]) -> None:
        if not axes:
            inside()
            return
        start, stop = self._shared(axes[0], integer(0), self._sizes.value(axes[0].extent))
        with self._loop(axes[0], start, stop, 1) as loop, self._x.scope():
            self._x.place[axes[0]] = (loop.index, 0)
            self._nest(axes[1:], inside)

    def _pieces(self) -> None:
        """All terms of the sums, or one piece of them after the other, each for all points."""
        depth = self._tile.depth
        if depth is None:
            self._blocks()
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

    def _piece_from(self, start: Value, terms: int | None) -> _Piece:
        some = self._w.compare("icmp", "sgt", start, integer(0), 1)
        return _Piece(start, terms, self._w.splat(some, self._tile.width))

    def _blocks(self) -> None:
        """Full groups of lanes, then the group that the axis does not fill."""
        tile = self._tile
        group = tile.width * tile.vectors
        if tile.block is None:
            self._guarded(integer(0), tile.limit, self._inside)
            return
        if tile.limit is None:
            self._each_block(tile.block, self._sizes.value(tile.block.extent))
            return
        full = floordiv(tile.limit, group)
        if full != 0:
            self._each_block(tile.block, self._sizes.value(full))
        self._last_group(full, self._inside)

    def _last_group(self, full: Size, inside: Callable[[], None]) -> None:
        """The group of lanes behind the full ones that the axis does not fill, if there is one."""
        tile = self._tile
        assert tile.block is not None and tile.limit is not None
        group = tile.width * tile.vectors
        rest = tile.limit - full * group
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
            self._guarded(self._w.mul(last, integer(group)), tile.limit, inside)

    def _each_block(self, block: Axis, stop: Value) -> None:
        start, stop = self._shared(block, integer(0), stop)
        with self._loop(block, start, stop, 1) as loop, self._x.scope():
            self._x.place[block] = (self._in_serpentine(loop.index, start, stop, 1), 0)
            self._inside()

    def _in_serpentine(self, index: Value, start: Value, stop: Value, step: int) -> Value:
        """The index, counted from the end in every other step of the loop around."""
        axis = self._tile.serpentine
        if axis is None:
            return index
        odd = self._w.emit("i1", f"trunc i64 {self._x.place[axis][0].text} to i1")
        last = self._w.add(start, self._w.binary("sub", stop, integer(step)))
        return self._w.select(odd, self._w.binary("sub", last, index), index)

    def _guarded(self, first: Value, limit: Size | None, inside: Callable[[], None]) -> None:
        """Run with masks that leave out the lanes from `limit` on."""
        if limit is None:
            inside()
            return
        tile = self._tile
        stop = self._sizes.value(limit)
        self._x.masks, self._x.alive = [], []
        for number in range(tile.vectors):
            start = self._w.add(first, integer(number * tile.width))
            left = self._w.sub(stop, start)
            known = int(left.text) if is_constant(left) else None
            self._x.alive.append(None if known is None else min(max(known, 0), tile.width))
            wide = self._w.splat(left, tile.width)
            steps = ", ".join(f"i64 {i}" for i in range(tile.width))
            text = f"<{steps}>" if tile.width > 1 else "0"
            lanes = Value(text, vector("i64", tile.width))
            self._x.masks.append(self._w.compare("icmp", "slt", lanes, wide, tile.width))
        inside()
        self._x.masks = None

    def _inside(self) -> None:
        """All points of a group of lanes."""
        row = self._tile.row
        rows = (lambda: self._points(1)) if row is None else (lambda: self._rows(row.extent))
        self._nest([a for a in self._tile.inside if a != row], rows)

    def _rows(self, extent: Size) -> None:
        """Full tiles of so many rows, then smaller ones for what is left."""
        tile = self._tile
        assert tile.row is not None
        done: Size = 0
        for rows in (tile.rows, *(n for n in (4, 2, 1) if n < tile.rows)):
            left = extent - done
            if isinstance(left, int):
                if left <= 0:
                    return
                # What is left of a known extent is one tile of exactly that many rows.
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
            self._points(rows)

    # One tile

    def _points(self, rows: int) -> None:
        with self._x.scope():
            self._x.reduced = {}
            if self._asks:
                # The reductions take as long as a run says, or too long.
                points = rows * self._tile.vectors * self._tile.width
                self._safepoints.write(integer(points * store_time(self._kernel)))
            self._reductions(rows)
            if self._piece is not None and self._piece.terms is not None:
                self._keep(rows)
                return
            by_point, by_row = list(self._kernel.stores), []
            if rows > 1 and self._x.masks is None and not self._kernel.ordered:
                tile = self._tile
                by_row = [s for s in by_point if is_transposed(s, tile.lane, tile.row, tile.width)]
                by_point = [s for s in by_point if s not in by_row]
            groups = _neighbours(self._kernel, by_point)
            for row in range(rows):
                for number in range(self._tile.vectors):
                    if self._kernel.ordered:
                        # No store may come before what another one of this point reads.
                        for store in by_point:
                            for expr in store.expressions():
                                self._x.value(expr, row, number)
                    for stores in groups:
                        self._x.store_together(stores, row, number)
            for store in by_row:
                for number in range(self._tile.vectors):
                    store_rows(self._w, self._x, store, rows, number)

    def _keep(self, rows: int) -> None:
        """Store partial results."""
        for position, number in enumerate(self._tile.kept):
            access = self._kernel.stores[number].access
            store = Store(access, Reduced(position, self._kernel.reductions[position].dtype))
            for row in range(rows):
                for vector_number in range(self._tile.vectors):
                    self._x.store(store, row, vector_number)

    def _reductions(self, rows: int) -> None:
        groups: dict[tuple[tuple[Axis, ...], int], list[int]] = {}
        for position, reduce in enumerate(self._kernel.reductions):
            groups.setdefault((reduce.axes, reduce.chains), []).append(position)
        for (axes, chains), positions in groups.items():
            if chains > 1:
                self._in_chains(axes, chains, positions)
                continue
            count = sums_at_once(len(positions), rows * self._tile.vectors, self._tile.held)
            for first in range(0, len(positions), count):
                self._in_order(axes, positions[first : first + count], rows)

    def _in_order(self, axes: Sequence[Axis], positions: list[int], rows: int) -> None:
        """Every lane of every row accumulates its own elements, one after the other."""
        width = self._tile.width
        slots = [
            (position, row, number)
            for position in positions
            for row in range(rows)
            for number in range(self._tile.vectors)
        ]
        initial = [
            self._primitives.splat_literal(
                identity(self._kernel.reductions[p]).value, self._kernel.reductions[p].dtype, width
            )
            for p, _, _ in slots
        ]
        if self._piece is not None:
            accesses = [self._kernel.stores[n].access for n in self._tile.kept]
            initial = [
                self._x.load_where(self._piece.follows, accesses[p], value, row, number)
                for (p, row, number), value in zip(slots, initial, strict=True)
            ]

        def step(accumulators: list[Value]) -> list[Value]:
            return [
                self._accumulate(self._kernel.reductions[p], value, row, number)
                for (p, row, number), value in zip(slots, accumulators, strict=True)
            ]

        self._step_time = self._time_of_step(positions, rows * self._tile.vectors * width)
        final = self._reduce_nest(axes, initial, step)
        self._x.reduced.update(zip(slots, final, strict=True))

    def _time_of_step(self, positions: Sequence[int], lanes: int) -> int:
        """What a term of these reductions takes for all lanes."""
        return lanes * sum(term_time(self._kernel, self._kernel.reductions[p]) for p in positions)

    def _time_inside(self, axes: Sequence[Axis], count: int = 1) -> Size:
        """What `count` iterations take around loops along these axes of a reduction."""
        return bounded_product(
            [*(a.extent for a in axes), count, self._step_time], safepoints.LIMIT
        )

    def _accumulate(self, reduce: Reduce, value: Value, row: int, number: int) -> Value:
        operands = [self._x.lanes(e, row, number) for e in reduce.operands]
        return self._combine(reduce, value, operands, self._x.width)

    def _combine(self, reduce: Reduce, value: Value, operands: list[Value], lanes: int) -> Value:
        if reduce.factor is not None:
            return self._primitives.emit(
                reduce.step, [*operands, value], reduce.dtype, reduce.dtype, lanes
            )
        name = {"sum": "add", "prod": "mul"}.get(reduce.combine, reduce.combine)
        return self._primitives.emit(name, [value, *operands], reduce.dtype, reduce.dtype, lanes)

    def _reduce_nest(
        self,
        axes: Sequence[Axis],
        accumulators: list[Value],
        step: Callable[[list[Value]], list[Value]],
    ) -> list[Value]:
        if not axes:
            return step(accumulators)
        axis, rest = axes[0], axes[1:]
        extent = axis.extent
        start, stop = integer(0), self._sizes.value(extent)
        most = max(1, min(UNROLL, UNROLL_OPERATIONS // len(accumulators)))
        if self._piece is not None:
            start = self._piece.start
            if self._piece.terms is not None:
                stop = self._w.add(start, integer(self._piece.terms))
                return self._counted(axis, start, stop, most, accumulators, rest, step)
        if rest or self._piece is not None or not isinstance(extent, int):
            return self._counted(axis, start, stop, 1, accumulators, rest, step)
        factor = min(most, max(1, extent))
        # A loop that would run once is none.
        whole = extent - extent % factor if extent >= 2 * factor else 0
        accumulators = self._counted(axis, start, integer(whole), factor, accumulators, rest, step)
        with self._x.scope():
            for position in range(whole, extent):
                self._x.place[axis] = (integer(position), 0)
                with self._x.scope():
                    accumulators = step(accumulators)
        return accumulators

    def _counted(
        self,
        axis: Axis,
        start: Value,
        stop: Value,
        factor: int,
        accumulators: list[Value],
        rest: Sequence[Axis],
        step: Callable[[list[Value]], list[Value]],
    ) -> list[Value]:
        if stop == start:
            return accumulators
        time = self._time_inside(rest, factor)
        with self._watched(start, stop, factor, time, accumulators) as loop, self._x.scope():
            values = loop.carried
            for copy in range(factor):
                self._x.place[axis] = (loop.index, copy)
                with self._x.scope():
                    values = self._reduce_nest(rest, values, step)
            loop.results = values
        return loop.carried

    # Reductions along lanes

    def _in_chains(self, axes: Sequence[Axis], chains: int, positions: list[int]) -> None:
        """Lanes run along the last reduced axis; their partial results are combined in a tree."""
        reductions = [self._kernel.reductions[p] for p in positions]
        outer, last = axes[:-1], axes[-1]
        initial = [
            self._primitives.splat_literal(identity(r).value, r.dtype, chains) for r in reductions
        ]
        self._step_time = self._time_of_step(positions, chains)
        with self._x.lanes_along(last, chains):
            final = self._reduce_nest_chains(outer, last, chains, initial, reductions)
        for position, reduce, value in zip(positions, reductions, final, strict=True):
            self._x.reduced[position, 0, 0] = self._tree(reduce, value, chains)

    def _reduce_nest_chains(
        self,
        outer: Sequence[Axis],
        last: Axis,
        chains: int,
        accumulators: list[Value],
        reductions: list[Reduce],
    ) -> list[Value]:
        if outer:
            stop = self._sizes.value(outer[0].extent)
            time = self._time_inside([*outer[1:], last])
            with (
                self._watched(integer(0), stop, 1, time, accumulators) as loop,
                self._x.scope(),
            ):
                self._x.place[outer[0]] = (loop.index, 0)
                loop.results = self._reduce_nest_chains(
                    outer[1:], last, chains, loop.carried, reductions
                )
            return loop.carried
        full = floordiv(last.extent, chains) * chains
        stop = self._sizes.value(full)
        with (
            self._watched(integer(0), stop, chains, self._step_time, accumulators) as loop,
            self._x.scope(),
        ):
            self._x.place[last] = (loop.index, 0)
            loop.results = (
                [
                    self._accumulate(r, a, 0, 0)
                    for r, a in zip(reductions, loop.carried, strict=True)
                ]
                if full != 0
                else loop.carried
            )
        accumulators = loop.carried
        if last.extent - full == 0:
            return accumulators
        return self._chain_rest(last, full, chains, accumulators, reductions)

    def _chain_rest(
        self,
        last: Axis,
        full: Size,
        chains: int,
        accumulators: list[Value],
        reductions: list[Reduce],
    ) -> list[Value]:
        """The last elements, fewer than there are chains: the others keep what they have."""
        left = self._sizes.value(last.extent - full)
        steps = ", ".join(f"i64 {i}" for i in range(chains))
        lanes = Value(f"<{steps}>", vector("i64", chains))
        with self._x.scope():
            self._x.place[last] = (self._sizes.value(full), 0)
            mask = self._w.compare("icmp", "slt", lanes, self._w.splat(left, chains), chains)
            known = int(left.text) if is_constant(left) else None
            self._x.masks, self._x.alive = [mask], [known]
            updated = [
                self._w.select(mask, self._accumulate(r, a, 0, 0), a)
                for r, a in zip(reductions, accumulators, strict=True)
            ]
            self._x.masks = None
        return updated

    def _tree(self, reduce: Reduce, value: Value, chains: int) -> Value:
        element = ELEMENT[reduce.dtype]
        name = {"sum": "add", "prod": "mul"}.get(reduce.combine, reduce.combine)
        while chains > 1:
            chains //= 2
            type_ = vector(element, chains)
            halves = [
                self._half(value, range(start, start + chains), type_, chains)
                for start in (0, chains)
            ]
            value = self._primitives.emit(name, halves, reduce.dtype, reduce.dtype, chains)
        return value

    def _half(self, value: Value, lanes: range, type_: str, count: int) -> Value:
        if count == 1:
            return self._w.emit(type_, f"extractelement {value.type} {value.text}, i64 {lanes[0]}")
        picks = ", ".join(f"i32 {i}" for i in lanes)
        return self._w.emit(
            type_,
            f"shufflevector {value.type} {value.text}, {value.type} poison, "
            f"<{count} x i32> <{picks}>",
        )
