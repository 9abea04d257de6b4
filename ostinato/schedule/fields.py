"""Bytes that fit into fewer bits become bit fields of words.

    w[k]    k = 0, 1, .., 7: eight numbers of four bits are one int32, the first one lowest

How many bits constants of bytes need follows from their values; two bfloat16 make a word as they
are (`schedule.half_fields`). Words lie along a sum, whose axis is split into one of words and one
of fields; each lane loads a word, and extracts its fields one after the other. The order of the
terms stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ostinato.program.expr import Axis, Expr, Index, Load, cast, op
from ostinato.program.kernel import Kernel
from ostinato.program.laid import Contents, elements
from ostinato.program.nodes import Buffer
from ostinato.records import dataclass
from ostinato.schedule.float_fields import FloatField, float_fields
from ostinato.schedule.half_fields import COUNT, HalfField, are_halves
from ostinato.schedule.index_maps import split_sum
from ostinato.schedule.operands import Panel

# Bits of a field, the fewest first. Eight fields of four bits are 32.
_BITS = (2, 4)
# Words by the number of fields and their bits.
_WORDS = {32: "int32", 16: "int16", 8: "uint8"}


@dataclass(frozen=True)
class Field:
    """Fields of words along an axis, which counts those of a word.

    low: the least value of a field; it is stored as 0.
    """

    axis: Axis
    bits: int
    low: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axis that counts the fields of a word."""
        return (self.axis,)

    @property
    def form(self) -> tuple[int, ...]:
        """A key that differs for words that mean other numbers."""
        assert isinstance(self.axis.extent, int)
        return self.bits, self.low, self.axis.extent

    @property
    def word(self) -> str:
        """The type of a word."""
        assert isinstance(self.axis.extent, int)
        return _WORDS[self.axis.extent * self.bits]

    def holds(self, loads: Iterable[Load], constants: Mapping[str, Contents]) -> bool:
        """Whether these loads are of constants that have fields of this kind."""
        return _needed(loads, constants) == (self.bits, self.low)

    def packed(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Pack values into words; `axis` counts the values of a word."""
        moved = np.moveaxis(values, axis, 0).astype(np.int64) - self.low
        words = np.zeros(moved.shape[1:], np.uint32)
        for number, part in enumerate(moved):
            words |= part.clip(0).astype(np.uint32) << np.uint32(self.bits * number)
        return words.astype(f"u{np.dtype(self.word).itemsize}").view(self.word)

    def readings(self, load: Load, word: Load) -> dict[Expr, Expr]:
        """Map the expressions that read a number to those that read its field of a word."""
        value = self._value(word)
        narrow = cast(value, load.dtype)
        # A number that fits the narrow type need not be narrowed on the way to int32.
        return {load: narrow, cast(narrow, "int32"): value}

    def _value(self, word: Load) -> Expr:
        """The field of a word that belongs to the point along the axis, as int32."""
        place = cast(Index(self.axis), "int32") * self.bits
        moved = op("shr", cast(word, "int32"), place)
        field = moved & ((1 << self.bits) - 1)
        return field if not self.low else field + self.low


AnyField = Field | FloatField | HalfField


def _needed(loads: Iterable[Load], constants: Mapping[str, Contents]) -> tuple[int, int] | None:
    """The bits that the loaded constants need, and their least value; None for all eight bits."""
    if _is_of_others(loads, constants):
        return None
    arrays = [elements(constants[load.access.buffer]) for load in loads]
    least = min(int(a.min(initial=0)) for a in arrays)
    most = max(int(a.max(initial=0)) for a in arrays)
    for bits in _BITS:
        for low in (0, -(1 << bits - 1)):
            if low <= least and most < low + (1 << bits):
                return bits, low
    return None


def _is_of_others(loads: Iterable[Load], constants: Mapping[str, Contents]) -> bool:
    """Whether some of the loads read something else than constants of bytes."""
    arrays = [constants.get(load.access.buffer) for load in loads]
    return any(a is None or a.dtype not in (np.int8, np.uint8) for a in arrays)


def cut_for_fields(
    kernel: Kernel,
    panels: Sequence[Panel],
    buffers: dict[str, Buffer],
    constants: dict[str, Contents],
    merges: bool,
) -> tuple[Kernel, dict[Axis, AnyField]]:
    """Split the sums over narrow constants; the kernel, and the fields by their new inner axis.

    merges: whether fields become floats without conversions, with constants of their own.
    """
    fields: dict[Axis, AnyField] = {}
    done: set[Axis] = set()
    for panel in panels:
        halves = are_halves(panel.loads, constants)
        is_other = not halves and _is_of_others(panel.loads, constants)
        if not panel.inner or panel.inner[-1] in done or is_other:
            continue
        axis = panel.inner[-1]
        sums = [r for r in kernel.reductions if axis in r.axes]
        plain = all(r.axes[-1] == axis and r.chains == 1 for r in sums)
        if not plain or kernel.tile is None or kernel.tile.depth is not None:
            continue
        if halves:
            if _divides(COUNT, axis):
                done.add(axis)
                kernel = split_sum(kernel, axis, COUNT)
                inner = Axis(f"{axis.name}i", COUNT)
                fields[inner] = HalfField(inner)
            continue
        needed = _needed(panel.loads, constants)
        least = np.iinfo(panel.loads[0].dtype).min
        form = needed or (8, int(least))
        found = float_fields(kernel, panel, *form, buffers, constants) if merges else None
        if found is not None:
            done.add(axis)
            kernel, field = found
            fields[field.axes[-1]] = field
            continue
        if needed is None:
            continue
        count = next((n // needed[0] for n in _WORDS if _divides(n // needed[0], axis)), 1)
        if count == 1:
            continue
        done.add(axis)
        kernel = split_sum(kernel, axis, count)
        inner = Axis(f"{axis.name}i", count)
        fields[inner] = Field(inner, *needed)
    return kernel, fields


def _divides(count: int, axis: Axis) -> bool:
    return isinstance(axis.extent, int) and axis.extent % count == 0
