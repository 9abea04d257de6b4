"""Products of bytes, two rows by two columns at once: USMMLA of AArch64.

    sums[2 rows][2 columns] += left[2 rows][8 bytes] * right[2 columns][8 bytes]

The two registers that would hold four columns of a row and of the next one hold the first two
columns of both and the last two. Arm Architecture Reference Manual, C7.2.
"""

from __future__ import annotations

from ostinato.codegen.function import KernelFunction
from ostinato.codegen.writer import Value, Writer, integer
from ostinato.program.kernel import Tile
from ostinato.schedule.matrices import FEWEST_PAIRED, Matrices, matrices, takes_pairs
from ostinato.schedule.times import term_time

_BYTES, _WORDS, _HALVES = "<16 x i8>", "<4 x i32>", "<2 x i64>"
_ZERO = Value("zeroinitializer", _WORDS)
# Words of a row that an instruction multiplies, and how often a loop's body repeats that.
_PAIR = 2
_COPIES = 2


class PairedSums:
    """Writes the sums of a kernel's tiles of several rows, where `takes` is true."""

    def __init__(self, function: KernelFunction) -> None:
        self._function, self._w, self._x = function, function.w, function.x
        tile = function.kernel.tile
        self._operands: Matrices | None = None
        self._row = None if tile is None else tile.row
        if not function.machine.byte_pairs or not takes_pairs(function.kernel):
            return
        assert tile is not None and tile.lane is not None
        found = matrices(function.kernel, tile.lane)
        assert found is not None
        if tile.limit is None or function.buffers[found.right.access.buffer].padded:
            self._operands = found

    def takes(self, tile: Tile, rows: int) -> bool:
        """Whether the sums of a tile of `rows` rows, not groups of lanes, are computed here."""
        is_paired = self._operands is not None and tile.row == self._row
        return is_paired and rows >= FEWEST_PAIRED

    def write(self, tile: Tile, rows: int) -> None:
        """Write all sums of a tile of `rows` rows; `Expressions.reduced` then has them."""
        assert self._operands is not None
        extent = self._operands.axis.extent
        assert isinstance(extent, int)
        pairs = [(row, min(row + 1, rows - 1)) for row in range(0, rows, 2)]
        sums = [_ZERO] * (2 * len(pairs) * tile.vectors)
        step = _PAIR * _COPIES
        whole = extent // step * step
        with (
            self._function.loops.loop(
                integer(0), integer(whole), step, self._time(rows, tile), sums
            ) as loop,
            self._x.scope(),
        ):
            loop.results = self._terms(loop.index, step, pairs, tile, loop.carried)
        sums = loop.carried if whole else sums
        if whole != extent:
            with self._x.scope():
                sums = self._terms(integer(whole), extent - whole, pairs, tile, sums)
        for pair, (first, second) in enumerate(pairs):
            for number in range(tile.vectors):
                place = 2 * (pair * tile.vectors + number)
                halves = [_halves(self._w, value) for value in sums[place : place + 2]]
                for row, half in {second: 1, first: 0}.items():
                    joined = _interleaved(self._w, halves[0], halves[1], half)
                    self._x.reduced[0, row, number] = _words(self._w, joined)

    def _time(self, rows: int, tile: Tile) -> int:
        """Time of an iteration for a tile of `rows` rows."""
        kernel = self._function.kernel
        lanes = rows * tile.vectors * tile.width
        return _PAIR * _COPIES * lanes * term_time(kernel, kernel.reductions[0])

    def _terms(
        self,
        start: Value,
        count: int,
        pairs: list[tuple[int, int]],
        tile: Tile,
        sums: list[Value],
    ) -> list[Value]:
        """Add the products of `count` words to the sums, two words at a time; a last one alone."""
        found = list(sums)
        for copy in range(0, count, _PAIR):
            is_alone = copy == count - 1
            left = [self._rows(start, copy, pair, is_alone) for pair in pairs]
            for number in range(tile.vectors):
                for half, columns in enumerate(self._columns(start, copy, number, is_alone)):
                    for pair, rows in enumerate(left):
                        place = 2 * (pair * tile.vectors + number) + half
                        function = "llvm.aarch64.neon.usmmla.v4i32.v16i8"
                        found[place] = self._w.call(_WORDS, function, found[place], rows, columns)
        return found

    def _rows(self, start: Value, copy: int, pair: tuple[int, int], is_alone: bool) -> Value:
        """Two words of each of two rows; zeros in place of a second row that does not exist."""
        assert self._operands is not None
        w, joined = self._w, Value("poison", _HALVES)
        for place, row in enumerate(pair):
            self._x.place[self._operands.axis] = (start, copy)
            address = self._x.addresses.of(self._operands.left.access, row, 0)
            type_ = "i32" if is_alone else "i64"
            words = w.load(type_, address, 1)
            if is_alone:
                words = w.convert("zext", words, "i64")
            joined = w.inserted(joined, words, place)
        return w.convert("bitcast", joined, _BYTES)

    def _columns(self, start: Value, copy: int, number: int, is_alone: bool) -> list[Value]:
        """Two words of each of the first two columns of a vector, and of the last two."""
        assert self._operands is not None
        words = [_ZERO, _ZERO]
        for place in range(1 if is_alone else _PAIR):
            with self._x.point():
                self._x.place[self._operands.axis] = (start, copy + place)
                words[place] = self._x.lanes(self._operands.right, 0, number)
        picks = ([0, 4, 1, 5], [2, 6, 3, 7])
        w = self._w
        return [_bytes(w, w.shuffled(words[0], words[1], half, "i32")) for half in picks]


def _interleaved(w: Writer, a: Value, b: Value, half: int) -> Value:
    return w.shuffled(a, b, [half, 2 + half], "i64")


def _halves(w: Writer, value: Value) -> Value:
    return w.convert("bitcast", value, _HALVES)


def _words(w: Writer, value: Value) -> Value:
    return w.convert("bitcast", value, _WORDS)


def _bytes(w: Writer, value: Value) -> Value:
    return w.convert("bitcast", value, _BYTES)
