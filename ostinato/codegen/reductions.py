"""The reductions of a tile: one after the other in every lane, or in chains along lanes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from ostinato.codegen import safepoints
from ostinato.codegen.ahead import Ahead
from ostinato.codegen.function import KernelFunction
from ostinato.codegen.primitives import ELEMENT
from ostinato.codegen.writer import LoopState, Value, integer, is_constant, vector
from ostinato.program.expr import FLOATS, ITEM_BYTES, Axis, Expr, Index, Load, walk
from ostinato.program.kernel import Reduce, Tile, identity
from ostinato.records import dataclass
from ostinato.schedule.operands import TERMS_ACROSS, is_inner_product
from ostinato.schedule.shapes import sums_at_once
from ostinato.schedule.times import bounded_product, term_time
from ostinato.sizes.dims import Size, floordiv

# This many steps of an empty loop take less than a millisecond.
LONG = 1 << 20

# An innermost loop is unrolled to at most this many multiply-adds, and `Machine.unroll` copies: the
# loop's own three instructions are then a fraction of it, and longer code only takes longer to
# compile (`benchmarks.bench_micro` against `benchmarks.bench_compile`).
_UNROLL_OPERATIONS = 64
# Where a CPU runs ahead of branches, the loop's instructions take no time: many sums keep it busy,
# and few of them wait for each other. Loops have two copies there (with one, row `conv2d 1x1
# 256to64` of `benchmarks.bench_micro` takes 1.04 of the time), unless more copies leave no loop, as
# along the taps of a window, which share loads.
_COPIES_AHEAD = 2
# The same where the operands of rows are loaded four terms at once: three copies would be worth
# less.
_UNROLL_OPERATIONS_IN_LANES = 96


# Registers for each vector of lanes of a window: the three that its taps share, and two taps.
_OF_A_WINDOW = 5

# Where blocks are short and rows share loads, this many multiply-adds hide a branch. Fewer or more
# of them take longer (`benchmarks.bench_wasm`: the denoiser and df_dec, in wasmtime).
_ROWS_OF_A_BLOCK = 3

# Fields of a word, at most: of two bits each.
_MOST_FIELDS = 16


@dataclass(frozen=True)
class Piece:
    """Some terms of long sums.

    start: the first of them. terms: how many; None for all that remain. follows: for each lane,
    whether there are terms before the piece.
    """

    start: Value
    terms: int | None
    follows: Value


class Reductions:
    """Writes the reductions of a kernel's tiles; `Expressions.reduced` then has their results."""

    def __init__(self, function: KernelFunction) -> None:
        self._kernel, self._w, self._x = function.kernel, function.w, function.x
        self._sizes, self._primitives = function.sizes, function.primitives
        self._loops, self._unroll = function.loops, function.machine.unroll
        self._in_lanes = function.machine.lane_operands
        self._elements_take_registers = function.machine.elements_take_registers
        self._fetches = function.machine.fetches
        self._short_blocks = function.machine.short_blocks
        self._registers, self._scratch = function.machine.vector_registers, function.scratch
        # Ends a block between groups of sums of a term, given the sums so far.
        self._end_block: Callable[[list[Value]], None] | None = None
        self._unrolled = _UNROLL_OPERATIONS_IN_LANES if self._in_lanes else _UNROLL_OPERATIONS
        self._tile = Tile(None, 1)
        self._piece: Piece | None = None
        buffers, machine = function.buffers, function.machine
        self._ahead = Ahead(
            function.w, function.x, function.sizes, function.kernel, buffers, machine
        )
        # The reductions being written, along which axes, and the time of a step.
        self._positions: Sequence[int] = ()
        self._axes: Sequence[Axis] = ()
        # The partial results of the loops being written and, by loop and reduction, operands loaded
        # before it.
        self._slots: list[tuple[int, int, int]] = []
        self._before: dict[Axis, dict[int, list[Expr]]] = {}
        self._step_time = 0
        self._rows = 1

    def write(self, tile: Tile, rows: int, piece: Piece | None) -> None:
        """Write all reductions of one tile of `rows` rows, or a piece of them."""
        self._tile, self._piece = tile, piece
        # Between pieces nothing is stored but partial results.
        if self._fetches and (piece is None or piece.terms is None):
            self._ahead.write_results(tile, rows)
        groups: dict[tuple[tuple[Axis, ...], int], list[int]] = {}
        for position, reduce in enumerate(self._kernel.reductions):
            groups.setdefault((reduce.axes, reduce.chains), []).append(position)
        block, total = rows * tile.vectors, len(self._kernel.reductions)
        crowded = rows > 1 and total * block + tile.vectors >= self._registers
        written = 0
        for (axes, chains), positions in groups.items():
            if chains > 1:
                self._in_chains(axes, chains, positions)
                written += len(positions)
                continue
            count = sums_at_once(len(positions), block, tile.held)
            for first in range(0, len(positions), count):
                together = positions[first : first + count]
                self._in_order(axes, together, rows)
                written += len(together)
                if crowded and written < total:
                    self._put_aside(together, rows)

    def _in_order(self, axes: Sequence[Axis], positions: list[int], rows: int) -> None:
        """Let every lane of every row accumulate its own elements, one after the other."""
        width = self._tile.width
        slots = [
            (position, row, number)
            for row in range(rows)
            for position in positions
            for number in range(self._tile.vectors)
        ]
        if rows < len(positions) * self._tile.vectors and self._takes_registers(positions):
            # Operands of few rows stay in registers, and each vector of weights is used with all of
            # them.
            slots.sort(key=lambda slot: (slot[0], slot[2]))
        initial = [
            self._primitives.splat_literal(
                identity(self._kernel.reductions[p]).value, self._kernel.reductions[p].dtype, width
            )
            for p, _, _ in slots
        ]
        if self._piece is not None:
            accesses = [self._kernel.stores[n].access for n in self._tile.kept]
            initial = [
                self._x.loads.load_where(self._piece.follows, accesses[p], value, row, number)
                for (p, row, number), value in zip(slots, initial, strict=True)
            ]

        group = self._sums_of_a_block(len(slots), rows)

        within = [
            (node, p)
            for p in positions
            for node in self._kernel.reductions[p].nodes
            if is_inner_product(node)
        ]

        def step(accumulators: list[Value]) -> list[Value]:
            values = list(accumulators)
            # Sums within the terms advance together: all of them share the weights of a product.
            for node, position in within:
                for p, row, number in slots:
                    if p == position:
                        self._x.lanes(node, row, number)
            for place, (p, row, number) in enumerate(slots):
                if self._end_block is not None and place and place % group == 0:
                    self._end_block(values)
                reduce = self._kernel.reductions[p]
                values[place] = self._accumulate(reduce, values[place], row, number)
            return values

        self._positions, self._axes = positions, axes
        self._step_time = self._time_of_step(positions, rows * self._tile.vectors * width)
        self._before = {
            axis: self._known_outside(positions, axes[number:]) for number, axis in enumerate(axes)
        }
        self._slots, self._rows = slots, rows
        final = self._reduce_nest(axes, initial, step)
        self._x.reduced.update(zip(slots, final, strict=True))

    def _put_aside(self, positions: Sequence[int], rows: int) -> None:
        """Spill sums to the stack until they are stored.

        LLVM may otherwise keep them in registers, and spill those of the next loop.
        """
        width, reductions = self._tile.width, self._kernel.reductions
        for slot in itertools.product(positions, range(rows), range(self._tile.vectors)):
            dtype, value = reductions[slot[0]].dtype, self._x.reduced[slot]
            if dtype not in FLOATS:
                continue
            place = self._scratch(ITEM_BYTES[dtype] * width)
            # A volatile store keeps the value in memory.
            self._w.line(f"store volatile {value.type} {value.text}, ptr {place.text}")
            load = f"load {value.type}, ptr {place.text}"
            self._x.later[slot] = partial(self._w.emit, value.type, load)

    def _takes_registers(self, positions: Sequence[int]) -> bool:
        """Whether the operand of a row takes a register: dots read none from memory."""
        dots = {"dot", "dot_pairs"} >= {self._kernel.reductions[p].step for p in positions}
        return dots or self._elements_take_registers

    def _is_of_fields(self, axis: Axis) -> bool:
        """Whether an axis counts fields of a word, at positions known while compiling."""
        operands = [e for p in self._positions for e in self._kernel.reductions[p].operands]
        is_short = isinstance(axis.extent, int) and axis.extent <= _MOST_FIELDS
        return is_short and Index(axis) in set(walk(*operands))

    def _known_outside(
        self, positions: Sequence[int], axes: Sequence[Axis]
    ) -> dict[int, list[Expr]]:
        """By reduction, loads of lanes that are the same in all steps of a loop, such as scales."""
        found: dict[int, list[Expr]] = {}
        for position in positions:
            operands = self._kernel.reductions[position].operands
            loads = [node for node in walk(*operands) if isinstance(node, Load)]
            found[position] = [
                load
                for load in loads
                if self._x.by_lanes(load)
                and load.mask is None
                and not load.index
                and not any(load.access.stride(axis) != 0 for axis in axes)
            ]
        return found

    def _load_before(self, axis: Axis) -> None:
        """Load before a loop what its steps share; the values are known while it is in scope."""
        for position, row, number in self._slots:
            for load in self._before[axis][position]:
                self._x.lanes(load, row, number)

    def _time_of_step(self, positions: Sequence[int], lanes: int) -> int:
        """Time of a term of these reductions for all lanes."""
        return lanes * sum(term_time(self._kernel, self._kernel.reductions[p]) for p in positions)

    def _time_inside(self, axes: Sequence[Axis], count: int = 1) -> Size:
        """Time of `count` iterations around loops along these axes of a reduction."""
        return bounded_product(
            [*(a.extent for a in axes), count, self._step_time], safepoints.LIMIT
        )

    def _accumulate(self, reduce: Reduce, value: Value, row: int, number: int) -> Value:
        operands = [self._x.lanes(e, row, number) for e in reduce.operands]
        return self.combine(reduce, value, operands, self._x.width)

    def combine(self, reduce: Reduce, value: Value, operands: list[Value], lanes: int) -> Value:
        """Add one more term to a sum, made of the operands of a reduction."""
        if reduce.factor is not None:
            return self._primitives.emit(
                reduce.step, [*operands, value], reduce.dtype, reduce.dtype, lanes
            )
        name = reduce.operator
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
        self._load_before(axis)
        extent = axis.extent
        start, stop = integer(0), self._stop(axis, rest)
        most = TERMS_ACROSS if self._tile.turned else self._copies(extent, len(accumulators))
        # Pieces are steps of the outermost axis.
        piece = self._piece if axis == self._axes[0] else None
        if piece is not None:
            start = piece.start
            if piece.terms is not None:
                terms = piece.terms
                stop = self._w.add(start, integer(terms))
                # Copies of the loop's body leave no rest here.
                factor = 1 if rest else next(n for n in range(most, 0, -1) if terms % n == 0)
                return self._counted(axis, start, stop, factor, accumulators, rest, step)
        if rest and isinstance(extent, int) and self._is_of_fields(axis):
            with self._x.scope():
                for position in range(extent):
                    self._x.place[axis] = (integer(position), 0)
                    with self._x.point():
                        accumulators = self._reduce_nest(rest, accumulators, step)
            return accumulators
        if rest or piece is not None or not isinstance(extent, int):
            return self._counted(axis, start, stop, 1, accumulators, rest, step)
        factor = min(most, max(1, extent))
        if self._is_of_fields(axis):
            factor = max(1, extent)
        # Terms that are loaded together must all exist.
        if self._short_blocks and extent >= 2 * factor and not self._tile.turned:
            return self._counted(axis, start, stop, factor, accumulators, rest, step)
        # A loop of one step is written without a loop, unless terms are loaded together.
        is_loop = extent >= 2 * factor or self._tile.turned
        whole = extent - extent % factor if is_loop else 0
        accumulators = self._counted(axis, start, integer(whole), factor, accumulators, rest, step)
        with self._x.scope(), self._window(axis, extent - whole):
            for copy in range(extent - whole):
                self._x.place[axis] = (integer(whole), copy)
                with self._x.point():
                    accumulators = step(accumulators)
        return accumulators

    def _window(self, axis: Axis, count: int) -> AbstractContextManager[None]:
        """Write so many taps in one block; they share loads if there are registers for that."""
        left = self._registers - len(self._slots)
        shares = left >= _OF_A_WINDOW * self._tile.vectors
        return self._x.loads.window(axis, count) if shares else nullcontext()

    def _copies(self, extent: Size, sums: int) -> int:
        """The number of copies of the innermost loop with `sums` sums, at most."""
        copies = max(1, min(self._unroll, self._unrolled // max(sums, 1)))
        is_loop = not isinstance(extent, int) or extent >= 2 * copies
        if is_loop and not self._in_lanes and not self._short_blocks:
            return min(copies, _COPIES_AHEAD)
        return copies

    def _stop(self, axis: Axis, inside: Sequence[Axis]) -> Value:
        """Where a loop along an axis ends: at once, if a loop inside of it has no step."""
        stop = self._sizes.value(axis.extent)
        if isinstance(axis.extent, int) and axis.extent <= LONG:
            return stop
        for extent in dict.fromkeys(a.extent for a in inside if not isinstance(a.extent, int)):
            some = self._w.compare("icmp", "sgt", self._sizes.value(extent), integer(0), 1)
            stop = self._w.select(some, stop, integer(0))
        return stop

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
        with self._loops.loop(start, stop, factor, time, accumulators) as loop, self._x.scope():
            values = loop.carried
            left = 0
            if is_constant(start) and is_constant(stop):
                left = (int(stop.text) - int(start.text)) % factor
            if self._short_blocks and not rest:
                self._end_block = self._block_ends(loop, self._w.add(stop, integer(-left)), factor)
            with (
                self._x.loads.together(axis, factor, self._tile.turned)
                if (self._in_lanes or self._tile.turned) and not rest
                else self._window(axis, factor)
                if not rest
                else nullcontext()
            ):
                for copy in range(factor):
                    self._x.place[axis] = (loop.index, copy)
                    with self._x.point():
                        if self._fetches and len(rest) == len(self._axes) - 1:
                            sums = self._axes, self._positions
                            self._ahead.write(self._tile, self._rows, *sums)
                            self._ahead.write_rows(self._tile, self._rows, *sums)
                        if self._fetches and self._tile.turned and not rest:
                            self._ahead.write_lanes(self._tile, self._rows, self._positions, axis)
                        values = self._reduce_nest(rest, values, step)
                    if self._end_block is None or copy == factor - 1:
                        continue
                    if copy + 1 == left:
                        following = self._w.add(loop.index, integer(left))
                        goes_on = self._w.compare("icmp", "ne", following, stop, 1)
                        loop.leave_unless(goes_on, values)
                    else:
                        self._end_block(values)
            self._end_block = None
            loop.results = values
        return loop.carried

    def _sums_of_a_block(self, sums: int, rows: int) -> int:
        """How many of a term's multiply-adds stand between two branches where blocks are short.

        Those of one row each load an operand, for which registers are left beside the sums.
        """
        if rows == 1:
            return max(1, self._registers - sums - 1)
        return -(-_ROWS_OF_A_BLOCK // self._tile.vectors) * self._tile.vectors

    def _block_ends(
        self, loop: LoopState, whole: Value, factor: int
    ) -> Callable[[list[Value]], None]:
        """Return what writes branches out of a loop that no run takes, but that LLVM cannot refute.

        All sums so far must then be computed at that place, since the branch would carry them out.
        The loop's index is compared with multiples of its step behind `whole`, the end of its full
        iterations.
        """
        beyond = itertools.count(factor, factor)

        def end_block(values: list[Value]) -> None:
            last = self._w.add(whole, integer(next(beyond)))
            loop.leave_unless(self._w.compare("icmp", "ne", loop.index, last, 1), list(values))

        return end_block

    # Reductions along lanes

    def _in_chains(self, axes: Sequence[Axis], chains: int, positions: list[int]) -> None:
        """Let lanes run along the last reduced axis; combine their partial results in a tree."""
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
            stop = self._stop(outer[0], [*outer[1:], last])
            time = self._time_inside([*outer[1:], last])
            with (
                self._loops.loop(integer(0), stop, 1, time, accumulators) as loop,
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
            self._loops.loop(integer(0), stop, chains, self._step_time, accumulators) as loop,
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
        """Add the last elements, fewer than there are chains, to the first chains."""
        left = self._sizes.value(last.extent - full)
        steps = ", ".join(f"i64 {i}" for i in range(chains))
        lanes = Value(f"<{steps}>", vector("i64", chains))
        with self._x.scope():
            self._x.place[last] = (self._sizes.value(full), 0)
            mask = self._w.compare("icmp", "slt", lanes, self._w.splat(left, chains), chains)
            known = int(left.text) if is_constant(left) else None
            self._x.masks, self._x.alive, self._x.left = [mask], [known], [left]
            updated = [
                self._w.select(mask, self._accumulate(r, a, 0, 0), a)
                for r, a in zip(reductions, accumulators, strict=True)
            ]
            self._x.masks = None
        return updated

    def _tree(self, reduce: Reduce, value: Value, chains: int) -> Value:
        element = ELEMENT[reduce.dtype]
        name = reduce.operator
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
            return self._w.extracted(value, type_, lanes[0])
        picks = ", ".join(f"i32 {i}" for i in lanes)
        return self._w.emit(
            type_,
            f"shufflevector {value.type} {value.text}, {value.type} poison, "
            f"<{count} x i32> <{picks}>",
        )
