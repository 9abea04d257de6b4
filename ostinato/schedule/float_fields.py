"""Fields of words that become floats by setting an exponent beside them.

    float32(q) * s   =   fma(c + float32(q), s, -(c * s))       with c * s exact

A number of `b` bits at the top of the significand of a float, below the exponent of `2^b`, is that
float: `c + q`, where `c` is `2^b` less the least number. A second one below it is a float of
`2^(2b)`. So a word is rotated until two of its fields are in place, and each takes one instruction
that keeps its bits and sets the exponent, instead of a shift, a mask and a conversion. The product
rounds once, as before: the sums are exact where the scales have so few digits that `c * s` is a
float, and a difference of 0 is the product 0 where scales are positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ostinato.program.expr import (
    Access,
    Axis,
    Cast,
    Expr,
    Index,
    Load,
    Op,
    cast,
    constant,
    op,
    rewrite,
    walk,
)
from ostinato.program.kernel import Kernel
from ostinato.program.laid import Contents, elements
from ostinato.program.nodes import Buffer
from ostinato.records import dataclass
from ostinato.schedule.index_maps import split_sum
from ostinato.schedule.operands import Panel

_WORD, _WORD_BITS = "int32", 32
# Fields that are in place at the same time: for the exponents of 2^b and of 2^(2b).
_PAIR = 2
# The layout of a float32.
_DIGITS, _BIAS = 23, 127


@dataclass(frozen=True)
class FloatField:
    """Fields of words along two axes: rotations of a word, and the fields that are then in place.

    bits, low: of a field, and the number that is stored as 0. names: the constants.
    """

    turn: Axis
    place: Axis
    bits: int
    low: int
    names: frozenset[str]
    word = _WORD

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that count the fields of a word."""
        return self.turn, self.place

    @property
    def form(self) -> tuple[int, ...]:
        """A key that differs for words that mean other numbers."""
        assert isinstance(self.turn.extent, int) and isinstance(self.place.extent, int)
        return self.bits, self.low, self.turn.extent, self.place.extent

    def holds(self, loads: Sequence[Load], _: Mapping[str, Contents]) -> bool:
        """Whether these loads are of constants that have fields of this kind."""
        return all(load.access.buffer in self.names for load in loads)

    def packed(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Pack values into words; `axis` and the next one count the values of a word."""
        moved = np.moveaxis(values, (axis, axis + 1), (0, 1)).astype(np.int64) - self.low
        words = np.zeros(moved.shape[2:], np.uint64)
        for turn, parts in enumerate(moved):
            for place, part in enumerate(parts):
                at = (_DIGITS - self.bits * (1 + place) - self._bits_of_turn * turn) % _WORD_BITS
                field = part.clip(0).astype(np.uint64) << np.uint64(at)
                words |= field | field >> np.uint64(_WORD_BITS)
        return words.astype(np.uint32).view(_WORD)

    @property
    def _bits_of_turn(self) -> int:
        return _PAIR * self.bits

    def offset(self, place: int) -> int:
        """The number that is added to a field at this place of a significand."""
        return (1 << self.bits * (1 + place)) - self.low

    def product(self, load: Load, scale: Load, offsets: str, size: int) -> Expr:
        """The product of a number and its scale, by the float that the field becomes."""
        terms = (*scale.access.terms, (self.place, size))
        return op(
            "fma",
            self._number(load),
            scale,
            Load(Access(offsets, scale.access.offset, terms), "float32"),
        )

    def _number(self, load: Load) -> Expr:
        offset = (1 << self._digits()) - self.low
        return cast(cast(load, "int32") + offset, "float32")

    def _digits(self) -> Expr:
        """A mask of the significand's bits down to the end of a field."""
        place = cast(Index(self.place), "int32")
        return (place + 1) * self.bits

    def readings(self, load: Load, word: Load) -> dict[Expr, Expr]:
        """Map the expressions that read a number to those that read its field of a word."""
        count = cast(Index(self.turn), "int32") * self._bits_of_turn
        rest = _WORD_BITS - count
        turned = (word << count) | op("shr", word, rest)
        low_end = _DIGITS - self._digits()
        mask = ((1 << self.bits) - 1) << low_end
        exponent = (self._digits() + _BIAS) << _DIGITS
        pattern = (turned & mask) | exponent
        return {self._number(load): op("bitcast", pattern, dtype="float32")}


def float_fields(
    kernel: Kernel,
    panel: Panel,
    bits: int,
    low: int,
    buffers: dict[str, Buffer],
    constants: dict[str, Contents],
) -> tuple[Kernel, FloatField] | None:
    """Let a kernel read a panel's numbers as floats of fields, or None where they cannot be.

    The products of offsets and scales become constants.
    """
    names = frozenset(load.access.buffer for load in panel.loads)
    axis, count = panel.inner[-1], _WORD_BITS // bits
    scales = {scale for _, scale in _products(kernel, names).values()}
    if not isinstance(axis.extent, int) or axis.extent % count or not scales:
        return None
    if not _are_scaled_only(kernel, names) or any(s.access.stride(axis) != 0 for s in scales):
        return None
    inner, place = Axis(f"{axis.name}i", count), Axis(f"{axis.name}ii", _PAIR)
    field = FloatField(Axis(f"{axis.name}io", count // _PAIR), place, bits, low, names)
    found = {s.access.buffer: _offsets(field, s, constants) for s in scales}
    tables = {name: table for name, table in found.items() if table is not None}
    if len(tables) < len(found):
        return None
    offsets = {name: f"offsets{bits}.{low}.{name}" for name in tables}
    kernel = split_sum(split_sum(kernel, axis, count), inner, _PAIR)
    for name, table in tables.items():
        constants[offsets[name]] = table
        buffers[offsets[name]] = Buffer(
            offsets[name], "float32", table.size, "constant", sources=buffers[name].sources
        )
    leaf = {
        product: field.product(
            load, scale, offsets[scale.access.buffer], constants[scale.access.buffer].size
        )
        for product, (load, scale) in _products(kernel, names).items()
    }
    return _replaced(kernel, leaf), field


def _products(kernel: Kernel, names: frozenset[str]) -> dict[Expr, tuple[Load, Load]]:
    """Find products of a number of these constants and a scale; each with the two loads."""
    found: dict[Expr, tuple[Load, Load]] = {}
    for node in _operand_nodes(kernel):
        if isinstance(node, Op) and node.name == "mul":
            for number, scale in (node.args, node.args[::-1]):
                load = _converted(number)
                if load is not None and load.access.buffer in names and isinstance(scale, Load):
                    found[node] = load, scale
    return found


def _converted(number: Expr) -> Load | None:
    """The load of a number that is converted to float32, by way of int32."""
    if not isinstance(number, Cast) or number.dtype != "float32":
        return None
    value = number.value
    if isinstance(value, Cast) and value.dtype == "int32":
        value = value.value
    return value if isinstance(value, Load) else None


def _replaced(kernel: Kernel, leaf: Mapping[Expr, Expr]) -> Kernel:
    change = partial(rewrite, leaf=leaf.get)
    return replace(kernel, reductions=tuple(r.map(change) for r in kernel.reductions))


def _operand_nodes(kernel: Kernel) -> Iterator[Expr]:
    return walk(*kernel.operands)


def _are_scaled_only(kernel: Kernel, names: frozenset[str]) -> bool:
    """Whether sums use these constants only in products with scales."""
    zero = constant(0, "float32")
    leaf = dict.fromkeys(_products(kernel, names), zero)
    without = _replaced(kernel, leaf)
    loads = (node for node in _operand_nodes(without) if isinstance(node, Load))
    return all(load.access.buffer not in names for load in loads)


def _offsets(
    field: FloatField, scale: Load, constants: Mapping[str, Contents]
) -> np.ndarray | None:
    """The negative products of offsets and scales for each place; None if one is not exact."""
    found = constants.get(scale.access.buffer)
    if found is None or found.dtype != np.float32 or scale.mask is not None or scale.index:
        return None
    values = elements(found)
    usual = np.isfinite(values) & (values >= np.finfo(np.float32).tiny)
    exact = np.stack([values.astype(np.float64) * field.offset(n) for n in range(_PAIR)])
    with np.errstate(over="ignore"):
        table = exact.astype(np.float32)
    is_exact = usual.all() and np.isfinite(table).all() and (table == exact).all()
    return -table.reshape(-1) if is_exact else None
