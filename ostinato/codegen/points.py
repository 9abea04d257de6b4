"""The points of one tile: its reductions, then its stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ostinato.codegen.function import KernelFunction
from ostinato.codegen.matrices import MatrixSums
from ostinato.codegen.overlapping import OverlappingSums
from ostinato.codegen.pairs import PairedSums
from ostinato.codegen.reductions import Piece, Reductions
from ostinato.codegen.transposed_store import is_transposed, neighbouring_rows, store_rows
from ostinato.codegen.writer import Value, integer, is_constant, vector
from ostinato.program.expr import Load, Reduced
from ostinato.program.kernel import Store, Tile
from ostinato.schedule.operands import neighbouring_stores
from ostinato.schedule.times import store_time

# Up to this many values of a tile have the definition of a scalar function each. Larger tiles call
# it: a call takes as long as a few of the 20 to 40 instructions, which LLVM takes 1 ms for
# (`benchmarks.bench_compile`). Tiles of a single row, as of streams, never call: nothing hides the
# call.
_EXPANDED = 4


class Points:
    """Writes what a kernel computes in one tile."""

    def __init__(self, function: KernelFunction) -> None:
        self._kernel, self._w, self._x = function.kernel, function.w, function.x
        self._stores = function.stores
        self._loops, self._reductions = function.loops, Reductions(function)
        self.matrices, self._pairs = MatrixSums(function), PairedSums(function)
        self._overlapping = OverlappingSums(function, self._reductions)
        self._buffers = function.buffers
        # Whether a group of lanes is full, and how many lanes it has otherwise; None if it is known
        # which.
        self._last: tuple[Value, Value] | None = None
        # The values that the last point of an ordered kernel has stored.
        self.stored: dict[Store, Value] = {}
        # Stores of an ordered kernel that are written behind its last point.
        self.later: frozenset[Store] = frozenset()

    def sums_are_padded(self) -> bool:
        """Whether lanes that do not exist can be loaded for sums, if only as padding.

        Sums then need no masks, and groups of lanes that are not full have the code of all others.
        """
        tile, reductions = self._kernel.tile, self._kernel.reductions
        if not reductions or tile is None or tile.depth is not None or self.matrices.operands:
            return False
        nodes = {node for reduce in reductions for node in reduce.nodes}
        loads = [node for node in nodes if isinstance(node, Load) and self._x.by_lanes(node)]
        return all(self._buffers[load.access.buffer].padded for load in loads)

    @contextmanager
    def first_lanes(self, left: Value, tile: Tile) -> Iterator[Tile]:
        """A tile of the vectors that contain any of the first `left` lanes; masks exclude the rest.

        Where only a run tells how many there are, it has all vectors.
        """
        known = int(left.text) if is_constant(left) else None
        if known is not None and self.matrices.operands is None:
            tile = replace(tile, vectors=min(tile.vectors, -(-known // tile.width)))
            if known >= tile.width * tile.vectors:
                yield tile
                return
        w, x = self._w, self._x
        x.masks, x.alive, x.left = [], [], []
        for number in range(tile.vectors):
            start = number * tile.width
            rest = w.sub(left, integer(start))
            x.left.append(rest)
            x.alive.append(None if known is None else min(max(known - start, 0), tile.width))
            steps = ", ".join(f"i64 {i}" for i in range(tile.width))
            text = f"<{steps}>" if tile.width > 1 else "0"
            lanes = Value(text, vector("i64", tile.width))
            wide = w.splat(rest, tile.width)
            x.masks.append(w.compare("icmp", "slt", lanes, wide, tile.width))
        yield tile
        x.masks = None

    @contextmanager
    def either(self, is_full: Value, left: Value) -> Iterator[None]:
        """Store all lanes of tiles if they are full, else the first `left` lanes."""
        self._last = is_full, left
        yield
        self._last = None

    def write(self, tile: Tile, rows: int, piece: Piece | None) -> None:
        """Write the reductions of a tile of `rows` rows, or a piece of them, and the stores."""
        with self._x.scope():
            self._x.reduced, self._x.later = {}, {}
            self._x.calls, self._x.beside = False, (1, 1)
            if self._loops.asks:
                # How long the reductions take is known only in a run, or is too long.
                points = rows * tile.vectors * tile.width
                self._loops.safepoints.write(integer(points * store_time(self._kernel)))
            if self.matrices.operands is not None:
                self.matrices.write(rows)
            elif self._pairs.takes(tile, rows):
                self._pairs.write(tile, rows)
            elif self._overlapping.takes(tile, rows):
                self._overlapping.write(tile, rows)
            else:
                self._reductions.write(tile, rows, piece)
            if piece is not None and piece.terms is not None:
                self._keep(tile, rows)
                return
            self._store_existing(tile, rows)

    def _store_existing(self, tile: Tile, rows: int) -> None:
        """Store the results of a tile in the lanes that exist."""
        if self._last is None:
            self._store(tile, rows)
            return
        is_full, left = self._last
        with self._w.when(is_full), self._x.scope():
            self._store(tile, rows)
        is_partial = self._w.binary("xor", is_full, Value("true", "i1"))
        with self._w.when(is_partial), self._x.scope(), self.first_lanes(left, tile) as part:
            self._store(part, rows)

    def _store(self, tile: Tile, rows: int) -> None:
        """Store the results of a tile of `rows` rows."""
        self._x.calls = rows > 1 and rows * tile.vectors > _EXPANDED
        if not self._kernel.ordered:
            self._x.beside = rows, tile.vectors
        groups, by_row = neighbouring_stores(self._kernel), []
        groups = [group for group in groups if self.later.isdisjoint(group)]
        is_known = self._x.masks is None or None not in self._x.alive
        if rows > 1 and is_known and not self._kernel.ordered:
            beside = tile.across or tile.row
            by_row = [g for g in groups if is_transposed(g, tile.lane, beside, tile.width)]
            groups = [g for g in groups if g not in by_row]
        for row in range(rows):
            for number in range(tile.vectors):
                if self._kernel.ordered:
                    # No store may come before a load of another value of this point.
                    for store in self._kernel.stores:
                        for expr in store.expressions():
                            self._x.value(expr, row, number)
                    self.stored = {s: self._x.value(s.value) for s in self._kernel.stores}
                for stores in groups:
                    self._stores.store_together(stores, row, number)
        has_sums = bool(self._kernel.reductions)
        for group in by_row:
            for number in range(tile.vectors):
                for run in neighbouring_rows(group, tile, rows):
                    store_rows(self._w, self._x, self._stores, group, run, number, has_sums)

    def _keep(self, tile: Tile, rows: int) -> None:
        """Store partial results."""
        for position, number in enumerate(tile.kept):
            access = self._kernel.stores[number].access
            store = Store(access, Reduced(position, self._kernel.reductions[position].dtype))
            for row in range(rows):
                for vector_number in range(tile.vectors):
                    self._stores.store(store, row, vector_number)
