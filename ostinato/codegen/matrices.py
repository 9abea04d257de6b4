"""Products of bytes in tile registers (AMX): 16 rows of 16 words each, 16 columns of words.

    sums[row][column] += products of the 4 bytes of left[row][word] and of right[word][column]

for 16 words at a time. Results go to the stack, from where the stores of a tile read them. Intel 64
and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ostinato.codegen.function import KernelFunction
from ostinato.codegen.writer import Value, integer, vector
from ostinato.program.expr import ITEM_BYTES, Axis
from ostinato.schedule.matrices import SIDE, SUMS, Matrices, matrices, takes_tiles
from ostinato.schedule.times import term_time
from ostinato.sizes.dims import ceildiv, product

_ROW_BYTES = 4 * SIDE
# Registers: sums come first, then the operands, then the operands for the last words, if fewer than
# 16.
_LEFT, _RIGHT, _LEFT_REST, _RIGHT_REST = SUMS, SUMS + 1, SUMS + 2, SUMS + 3


class MatrixSums:
    """Writes the sums of a kernel's tiles; `operands` is None where these are no such product."""

    def __init__(self, function: KernelFunction) -> None:
        self._function, self._w, self._x = function, function.w, function.x
        tile = function.kernel.tile
        self.operands: Matrices | None = None
        if not function.machine.byte_tiles or not takes_tiles(function.kernel):
            return
        assert tile is not None and tile.lane is not None and tile.row is not None
        found = matrices(function.kernel, tile.lane)
        assert found is not None
        is_padded = function.buffers[found.right.access.buffer].padded
        if tile.limit is None or is_padded or found.is_signed:
            self.operands = found
            self._tile, self._row = tile, tile.row
            extent = tile.lane.extent if tile.limit is None else tile.limit
            assert isinstance(extent, int)
            # Lanes behind the last one must not be read: read fewer, or begin earlier.
            self._is_exact = not is_padded
            self._columns = min(extent, SIDE) if self._is_exact else SIDE
            # Stores may read a row of results from a later lane on.
            self._results = function.scratch(SIDE * _ROW_BYTES * SUMS + _ROW_BYTES)
            self._shapes = function.scratch(64)

    def begin(self) -> None:
        """Configure the registers as tiles of 16 rows."""
        if self.operands is not None:
            self._configure(SIDE)

    def end(self) -> None:
        """Leave the registers as they were found."""
        if self.operands is not None:
            self._w.call("void", "llvm.x86.tilerelease")

    def write(self, rows: int) -> None:
        """Write all sums of a tile of `rows` rows; `Expressions.reduced` then has them."""
        if rows != SIDE:
            self._configure(rows)
        vectors = [number for number in range(self._tile.vectors) if self._exists(number)]
        for number in vectors:
            self._w.call("void", "llvm.x86.tilezero", integer(number, "i8"))
        assert self.operands is not None
        self._sum(self.operands.taps, rows)
        pitch = integer(_ROW_BYTES * SUMS)
        for number in vectors:
            place = self._w.pointer(self._results, integer(_ROW_BYTES * number), "i8")
            tile = integer(number, "i8")
            self._w.call("void", "llvm.x86.tilestored64", tile, place, pitch)
            for row in range(rows):
                moved = self._lanes_before(number)
                self._x.later[0, row, number] = partial(self._result, row, number, moved)
        if rows != SIDE:
            self._configure(SIDE)

    def _sum(self, taps: tuple[Axis, ...], rows: int) -> None:
        """Add the products of all words, at all points of the taps."""
        assert self.operands is not None
        extent = self.operands.axis.extent
        assert isinstance(extent, int)
        if taps:
            stop = self._function.sizes.value(taps[0].extent)
            inner = product([axis.extent for axis in taps[1:]])
            time = inner * ceildiv(extent, SIDE) * self._time(rows)
            with (
                self._function.loops.loop(integer(0), stop, 1, time) as loop,
                self._x.scope(),
            ):
                self._x.place[taps[0]] = (loop.index, 0)
                self._sum(taps[1:], rows)
            return
        whole = extent // SIDE * SIDE
        # If the words are a multiple of 16, the registers for the rest take turns with the others.
        rights = (_RIGHT, _LEFT_REST, _RIGHT_REST) if extent == whole else (_RIGHT,)
        with (
            self._function.loops.loop(integer(0), integer(whole), SIDE, self._time(rows)) as loop,
            self._x.scope(),
        ):
            self._step(loop.index, _LEFT, rights)
        if extent != whole:
            with self._x.scope():
                self._step(integer(whole), _LEFT_REST, (_RIGHT_REST,))

    def _time(self, rows: int) -> int:
        """Time of 16 words of a tile of `rows` rows."""
        kernel = self._function.kernel
        lanes = rows * self._tile.vectors * SIDE
        return SIDE * lanes * term_time(kernel, kernel.reductions[0])

    def _lanes_before(self, number: int) -> int:
        """How many lanes earlier a vector begins, so that it ends with the last lane."""
        if self._x.masks is None or not self._is_exact or self._columns < SIDE:
            return 0
        return SIDE - (self._x.alive[number] or SIDE)

    def _exists(self, number: int) -> bool:
        """Whether a vector has any lane."""
        return self._x.masks is None or not self._is_exact or self._x.alive[number] != 0

    def _result(self, row: int, number: int, moved: int) -> Value:
        offset = _ROW_BYTES * (SUMS * row + number) + 4 * moved
        place, type_ = self._w.pointer(self._results, integer(offset), "i8"), vector("i32", SIDE)
        align = 4 if moved else 64
        return self._w.load(type_, place, align)

    def _step(self, start: Value, left: int, rights: tuple[int, ...]) -> None:
        """Add the products of the words from `start` on."""
        assert self.operands is not None
        found, w = self.operands, self._w
        self._x.place[found.axis] = (start, 0)
        address = self._x.addresses.of(found.left.access, 0, 0)
        item = ITEM_BYTES[found.left.dtype]
        pitch = self._function.sizes.value(found.left.access.stride(self._row) * item)
        w.call("void", "llvm.x86.tileloadd64", integer(left, "i8"), address, pitch)
        pitch = self._function.sizes.value(found.right.access.stride(found.axis) * 4)
        product = "llvm.x86.tdpbsud" if found.is_signed else "llvm.x86.tdpbusd"
        for number in range(self._tile.vectors):
            if not self._exists(number):
                continue
            right = integer(rights[number % len(rights)], "i8")
            address = self._x.addresses.of(found.right.access, 0, number)
            address = w.pointer(address, integer(-4 * self._lanes_before(number)), "i8")
            w.call("void", "llvm.x86.tileloadd64", right, address, pitch)
            operands = integer(number, "i8"), integer(left, "i8"), right
            w.call("void", product, *operands)

    def _configure(self, rows: int) -> None:
        """Set the sizes of the registers: palette 1, bytes of a row, rows."""
        assert self.operands is not None
        extent = self.operands.axis.extent
        assert isinstance(extent, int)
        rest, wide = extent % SIDE, 4 * self._columns
        sizes = [*[(rows, wide)] * SUMS, (rows, _ROW_BYTES), (SIDE, wide)]
        sizes += [(rows, 4 * rest), (rest, wide)] if rest else [(SIDE, wide)] * 2
        table = np.zeros(64, np.uint8)
        table[0] = 1
        table[16:32] = np.array([width for _, width in sizes], "<u2").view(np.uint8)
        table[48:56] = [height for height, _ in sizes]
        for number, word in enumerate(table.view("<i8")):
            place = self._w.pointer(self._shapes, integer(8 * number), "i8")
            self._w.store(integer(word), place)
        self._w.call("void", "llvm.x86.ldtilecfg", self._shapes)
