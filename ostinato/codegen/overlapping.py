"""Sums over windows that overlap from row to row: elements that rows share are loaded once.

    y[i] = sum_r w[r] x[i + r]        x[k] is loaded for all y[i] with 0 <= k - i < taps

A sum adds its terms in the order of its own taps, as it does alone.
"""

from __future__ import annotations

from ostinato.codegen.function import KernelFunction
from ostinato.codegen.reductions import Reductions
from ostinato.codegen.writer import Value, integer
from ostinato.program.kernel import Tile, identity
from ostinato.schedule.lanes import MOST_TAPS
from ostinato.schedule.overlaps import Overlap, overlap
from ostinato.schedule.times import term_time

# Up to this many taps along a line, each has code of its own: a loop has three instructions itself.
_WITHOUT_LOOP = 3


class OverlappingSums:
    """Writes the sums of a kernel's tiles of several rows, where `takes` is true."""

    def __init__(self, function: KernelFunction, reductions: Reductions) -> None:
        self._function, self._x, self._reductions = function, function.x, reductions
        tile = function.kernel.tile
        self._row = None if tile is None else tile.row
        self._found: Overlap | None = None
        if tile is not None and tile.row is not None and tile.lane is not None:
            self._found = overlap(function.kernel, tile.row, tile.lane)

    def takes(self, tile: Tile, rows: int) -> bool:
        """Whether the sums of a tile of `rows` rows are computed here, all terms at once."""
        is_plain = tile.across is None and tile.depth is None and not tile.turned
        return self._found is not None and tile.row == self._row and rows > 1 and is_plain

    def write(self, tile: Tile, rows: int) -> None:
        """Write all sums of a tile of `rows` rows; `Expressions.reduced` then has them."""
        assert self._found is not None
        (reduce,) = self._function.kernel.reductions
        along = reduce.axes[1]
        zero = self._function.primitives.splat_literal(
            identity(reduce).value, reduce.dtype, tile.width
        )
        slots = [(row, number) for row in range(rows) for number in range(tile.vectors)]
        sums = [zero] * len(slots)
        step = self._found.image.access.stride(tile.lane) if tile.lane is not None else 0
        longest = MOST_TAPS if step == 2 else _WITHOUT_LOOP
        for line in range(self._found.step * (rows - 1) + self._found.taps):
            met = {
                row: tap
                for row in range(rows)
                if 0 <= (tap := line - self._found.step * row) < self._found.taps
            }
            if isinstance(along.extent, int) and along.extent <= longest:
                with self._x.loads.window(along, along.extent):
                    for place in range(along.extent):
                        self._x.place[along] = (integer(0), place)
                        sums = self._terms(tile, met, sums)
                continue
            time = len(slots) * tile.width * term_time(self._function.kernel, reduce)
            stop = self._function.sizes.value(along.extent)
            with (
                self._function.loops.loop(integer(0), stop, 1, time, sums) as loop,
                self._x.scope(),
            ):
                self._x.place[along] = (loop.index, 0)
                loop.results = self._terms(tile, met, loop.carried)
            sums = loop.carried
        for (row, number), value in zip(slots, sums, strict=True):
            self._x.reduced[0, row, number] = value

    def _terms(self, tile: Tile, met: dict[int, int], sums: list[Value]) -> list[Value]:
        """Add the terms of one place of a line to the sums. met: the taps of rows at that place."""
        assert self._found is not None
        (reduce,) = self._function.kernel.reductions
        over, image, x = reduce.axes[0], self._found.image, self._x
        result, loaded = list(sums), list[Value]()
        for row, tap in met.items():
            x.place[over] = (integer(tap), 0)
            with x.point():
                loaded = loaded or [x.lanes(image, row, n) for n in range(tile.vectors)]
                for number, element in enumerate(loaded):
                    place = row * tile.vectors + number
                    operands = [
                        element if operand is image else x.lanes(operand, row, number)
                        for operand in reduce.operands
                    ]
                    result[place] = self._reductions.combine(
                        reduce, result[place], operands, tile.width
                    )
        return result
