"""The points of one tile: its reductions, then its stores."""

from __future__ import annotations

from ostinato.codegen.function import KernelFunction
from ostinato.codegen.matrices import MatrixSums
from ostinato.codegen.pairs import PairedSums
from ostinato.codegen.reductions import Piece, Reductions
from ostinato.codegen.transposed_store import is_transposed, neighbouring_rows, store_rows
from ostinato.codegen.writer import integer
from ostinato.program.expr import Reduced
from ostinato.program.kernel import Store, Tile
from ostinato.schedule.operands import neighbouring_stores
from ostinato.schedule.times import store_time

# Values of a tile up to which each has the definition of a scalar function to itself. More of them
# call it: a call takes as long as a few of the 20 to 40 instructions, which LLVM takes 1 ms for
# (`benchmarks.bench_compile`). Tiles of a single row, as of streams, never call: nothing hides it.
EXPANDED = 4


class Points:
    """Writes what a kernel computes in one tile."""

    def __init__(self, function: KernelFunction) -> None:
        self._kernel, self._w, self._x = function.kernel, function.w, function.x
        self._stores = function.stores
        self._loops, self._reductions = function.loops, Reductions(function)
        self.matrices, self._pairs = MatrixSums(function), PairedSums(function)

    def write(self, tile: Tile, rows: int, piece: Piece | None) -> None:
        """The reductions of a tile with so many rows, or a piece of them, and the stores."""
        with self._x.scope():
            self._x.reduced, self._x.later = {}, {}
            self._x.calls, self._x.beside = False, (1, 1)
            if self._loops.asks:
                # The reductions take as long as a run says, or too long.
                points = rows * tile.vectors * tile.width
                self._loops.safepoints.write(integer(points * store_time(self._kernel)))
            if self.matrices.operands is not None:
                self.matrices.write(rows)
            elif self._pairs.takes(tile, rows):
                self._pairs.write(tile, rows)
            else:
                self._reductions.write(tile, rows, piece)
            if piece is not None and piece.terms is not None:
                self._keep(tile, rows)
                return
            self._x.calls = rows > 1 and rows * tile.vectors > EXPANDED
            if not self._kernel.ordered:
                self._x.beside = rows, tile.vectors
            groups, by_row = neighbouring_stores(self._kernel), []
            is_known = self._x.masks is None or None not in self._x.alive
            if rows > 1 and is_known and not self._kernel.ordered:
                beside = tile.across or tile.row
                by_row = [g for g in groups if is_transposed(g, tile.lane, beside, tile.width)]
                groups = [g for g in groups if g not in by_row]
            for row in range(rows):
                for number in range(tile.vectors):
                    if self._kernel.ordered:
                        # No store may come before what another one of this point reads.
                        for store in self._kernel.stores:
                            for expr in store.expressions():
                                self._x.value(expr, row, number)
                    for stores in groups:
                        self._stores.store_together(stores, row, number)
            for group in by_row:
                for number in range(tile.vectors):
                    for run in neighbouring_rows(group, tile, rows):
                        store_rows(self._w, self._x, self._stores, group, run, number)

    def _keep(self, tile: Tile, rows: int) -> None:
        """Store partial results."""
        for position, number in enumerate(tile.kept):
            access = self._kernel.stores[number].access
            store = Store(access, Reduced(position, self._kernel.reductions[position].dtype))
            for row in range(rows):
                for vector_number in range(tile.vectors):
                    self._stores.store(store, row, vector_number)
