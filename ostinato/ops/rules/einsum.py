"""Einsum: sums of products of any number of operands, written with a letter for each axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value
from ostinato.program.expr import FLOATS, Access, Axis, Expr, Load
from ostinato.records import dataclass
from ostinato.sizes.dims import Size

# The name of each axis; those that an ellipsis stands for are "0", "1", .. from the last one on.
Letters = tuple[str, ...]


@dataclass(frozen=True)
class _Operand:
    """A value whose axes have names; an axis named twice is a diagonal."""

    value: Tensor
    letters: Letters

    def element(self, axes: dict[str, Axis]) -> Expr:
        """The element at these axes; extents of 1 are repeated."""
        base = self.value.address
        strides: dict[Axis, Size] = {}
        named = zip(self.letters, self.value.shape, self.value.strides, strict=True)
        for letter, extent, stride in named:
            if extent != 1 and letter in axes:
                axis = axes[letter]
                strides[axis] = strides.get(axis, 0) + stride
        terms = tuple((axis, stride) for axis, stride in strides.items() if stride != 0)
        return Load(Access(base.buffer, base.offset, base.terms + terms), self.value.dtype)


@lowers("Einsum")
def lower_einsum(context: Context) -> Value:
    """Operands are multiplied from left to right; an axis is summed as soon as nobody needs it."""
    builder = context.builder
    values = [builder.strided(value) for value in context.all_inputs()]
    if any(value.dtype == "bool" for value in values):
        raise context.refuse("type bool has no native form")
    terms, result = _parsed(context, values)
    operands = [_Operand(value, term) for value, term in zip(values, terms, strict=True)]
    extents = _extents(builder, operands)
    operands = [_following(builder, operand, extents) for operand in operands]
    total = operands[0]
    for number, operand in enumerate(operands[1:], 1):
        later = {*result, *chain.from_iterable(terms[number + 1 :])}
        total = _summed(builder, total, later.union(operand.letters), extents)
        factor = _summed(builder, operand, later.union(total.letters), extents)
        is_last = number == len(terms) - 1
        total = _product(builder, total, factor, result if is_last else later, extents)
    if total.letters == result:
        return total.value
    return _reduced(builder, total, result, extents).value


def _parsed(context: Context, values: Sequence[Tensor]) -> tuple[list[Letters], Letters]:
    """The names of each operand's axes and of the result's."""
    equation = context.attributes.string("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    written = left.split(",")
    plain = equation.replace("...", "").replace("->", "").replace(",", "")
    if len(written) != len(values) or any(not (c.isascii() and c.isalpha()) for c in plain):
        raise context.invalid(f"equation {equation!r} for {len(values)} operands")
    terms = [
        _letters(context, text, len(value.shape))
        for text, value in zip(written, values, strict=True)
    ]
    wide = max((sum(c.isdigit() for c in term) for term in terms), default=0)
    repeated = tuple(str(i) for i in reversed(range(wide)))
    if arrow:
        before, dots, after = right.partition("...")
        result: Letters = (*before, *(repeated if dots else ()), *after)
    else:
        letters = [c for c in left if c.isalpha()]
        result = (*repeated, *sorted(c for c in set(letters) if letters.count(c) == 1))
    known = set(chain.from_iterable(terms))
    if len(set(result)) < len(result) or not set(result) <= known:
        raise context.invalid(f"equation {equation!r}: the result repeats or invents an axis")
    return terms, result


def _letters(context: Context, text: str, rank: int) -> Letters:
    before, dots, after = text.partition("...")
    covered = rank - len(before) - len(after)
    if covered < 0 or (covered > 0 and not dots):
        raise context.invalid(f"{text!r} for an operand of {rank} axes")
    return (*before, *(str(i) for i in reversed(range(covered))), *after)


def _extents(builder: Builder, operands: Sequence[_Operand]) -> dict[str, Size]:
    """The extent of each named axis; those of 1 fit any other, but not on a diagonal."""
    extents: dict[str, Size] = {}
    for operand in operands:
        own: dict[str, Size] = {}
        for letter, n in zip(operand.letters, operand.value.shape, strict=True):
            what = f"axes called {letter!r}"
            builder.require.equal(own.setdefault(letter, n), n, what)
            extents[letter] = builder.broadcasting.size(extents.get(letter, 1), n, what)
    return extents


def _following(builder: Builder, operand: _Operand, extents: dict[str, Size]) -> _Operand:
    """The operand with axes that are repeated where only a run tells that they are."""
    wanted = tuple(extents[letter] for letter in operand.letters)
    return replace(operand, value=builder.broadcasting.following(operand.value, wanted))


def _summed(
    builder: Builder, operand: _Operand, needed: Collection[str], extents: dict[str, Size]
) -> _Operand:
    """The operand summed over the axes that nobody else needs, if there are any."""
    kept = tuple(dict.fromkeys(letter for letter in operand.letters if letter in needed))
    if set(operand.letters) <= set(needed):
        return operand
    return _reduced(builder, operand, kept, extents)


def _reduced(
    builder: Builder, operand: _Operand, kept: Letters, extents: dict[str, Size]
) -> _Operand:
    """The operand summed over all axes but these, which are put in this order."""
    axes = {letter: builder.axis(extents[letter]) for letter in dict.fromkeys(operand.letters)}
    shape = tuple(extents[letter] for letter in kept)
    outer = [axes[letter] if extents[letter] != 1 else None for letter in kept]
    inner = [axis for letter, axis in axes.items() if letter not in kept]
    element = operand.element(axes)
    if not inner:
        return _Operand(builder.stored(shape, outer, element), kept)
    chains = ROW_CHAINS if operand.value.dtype in FLOATS and not kept else 1
    return _Operand(builder.fold(shape, outer, inner, "sum", element, chains), kept)


def _product(
    builder: Builder,
    left: _Operand,
    right: _Operand,
    needed: Collection[str],
    extents: dict[str, Size],
) -> _Operand:
    """The product of two operands, summed over the axes that nobody else needs."""
    letters = dict.fromkeys((*left.letters, *right.letters))
    # The result of all has its axes in order already.
    order = needed if isinstance(needed, tuple) else [c for c in letters if c in needed]
    kept = tuple(letter for letter in order if letter in letters)
    axes = {letter: builder.axis(extents[letter]) for letter in letters}
    shape = tuple(extents[letter] for letter in kept)
    outer = [axes[letter] if extents[letter] != 1 else None for letter in kept]
    inner = [axis for letter, axis in axes.items() if letter not in kept]
    a, b = left.element(axes), right.element(axes)
    if not inner:
        return _Operand(builder.stored(shape, outer, a * b), kept)
    # Where each pair of rows gives one number, lanes run along the rows.
    rows = set(kept) <= set(left.letters) & set(right.letters)
    chains = ROW_CHAINS if rows and left.value.dtype in FLOATS else 1
    return _Operand(builder.contract(shape, outer, inner, a, b, chains), kept)
