"""Gradients of matrix products and sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.contributions import Dims
from ostinato.autodiff.registry import differentiates
from ostinato.autodiff.scope import as_rows

# The letters of a value's axes, and the value.
Factor: TypeAlias = "tuple[str, Term]"


@differentiates("MatMul")
def _matmul(context: Context) -> None:
    """`Y = A B`: `dA = dY Bᵀ` and `dB = Aᵀ dY`, summed over the axes that were broadcast.

    A vector is a matrix of one row or one column.
    """
    a, b = context.dims(context.given(0)), context.dims(context.given(1))
    given = context.gradient()
    if len(a) == 1:
        given = given.unsqueeze([-1 if len(b) == 1 else -2])
    if len(b) == 1:
        given = given.unsqueeze([-1])
    outer = context.dims(context.node.outputs[0])[: max(len(a), len(b), 2) - 2]
    if context.wants(0):
        factor = context.input(1)
        turned = factor.unsqueeze([0]) if len(b) == 1 else _turned(factor, len(b))
        product = given.op("MatMul", turned)
        large = (*outer, *(1, *a)[-2:])
        context.give(0, context.unbroadcast(0, product, large))
    if context.wants(1):
        _matmul_right(context, given, a, b, outer)


def _matmul_right(context: Context, given: Term, a: Dims, b: Dims, outer: Dims) -> None:
    """Give the right operand its gradient: for a matrix, a product over all rows."""
    factor = context.input(0)
    if len(a) == 1:
        factor = factor.unsqueeze([0])
    if len(b) == 2:
        context.give_product(1, factor, given)
    elif len(b) == 1:
        column = given.reshape(np.array([1, -1], np.int64))
        product = column.op("MatMul", as_rows(context.writer, factor.value))
        context.give(1, product.reshape(np.array([-1], np.int64)))
    else:
        product = _turned(factor, max(len(a), 2)).op("MatMul", given)
        context.give(1, context.unbroadcast(1, product, (*outer, *b[-2:])))


def _turned(matrix: Term, rank: int) -> Term:
    """A value of this rank with its last two axes exchanged."""
    return matrix.transpose([*range(rank - 2), rank - 1, rank - 2])


@differentiates("Gemm")
def _gemm(context: Context) -> None:
    """`Y = alpha A B + beta C`, where A and B may come transposed."""
    alpha, beta = context.float("alpha"), context.float("beta")
    turned_a, turned_b = (bool(context.attributes.int(name, 0)) for name in ("transA", "transB"))
    given = context.gradient()
    if context.wants(2):
        context.give_broadcast(2, given if beta == 1 else given * beta)
    if context.wants(0):
        pair, turned = (context.input(1), given), (turned_b, True)
        if not turned_a:
            pair, turned = (given, context.input(1)), (False, not turned_b)
        context.give(0, _product(context, pair, turned, alpha))
    if not context.wants(1):
        return
    rows = context.input(0)
    if turned_a:
        pair, turned = (rows, given), (False, False)
        if turned_b:
            pair, turned = (given, rows), (True, True)
        context.give(1, _product(context, pair, turned, alpha))
        return
    scaled = given if alpha == 1 else given * alpha
    context.give_product(1, *((scaled, rows) if turned_b else (rows, scaled)))


def _product(
    context: Context, pair: tuple[Term, Term], turned: tuple[bool, bool], alpha: float
) -> Term:
    attributes = {"transA": int(turned[0]), "transB": int(turned[1]), "alpha": alpha}
    return context.ops.op("Gemm", pair, "product", attributes)


@differentiates("Einsum")
def _einsum(context: Context) -> None:
    """Each operand's gradient is the sum of products of the result's with the other operands.

    Axes that only one operand has were summed: its gradient is repeated along them. An axis that
    an operand names twice is a diagonal, and its gradient is zero beside it.
    """
    terms, result = _parsed(context)
    sizes = _sizes(context, terms, result)
    for index, term in enumerate(terms):
        if not context.wants(index):
            continue
        given = context.given(index)
        factors = [(result, context.gradient())]
        factors += [(terms[i], context.input(i)) for i in range(len(terms)) if i != index]
        wide, extra = _without_repeats(context, term, sizes)
        gradient = _sum_of_products(context, factors + extra, wide, given)
        small = context.dims(given)
        large = [sizes[c] if few == 1 else few for c, few in zip(term, small, strict=True)]
        gradient = context.unbroadcast(index, gradient, large)
        if any(_meets_another(context, terms, c, few) for c, few in zip(term, small, strict=True)):
            # Names differ: a run where one size is 1 and repeated ends here.
            gradient = gradient.reshape(context.sizes(given))
        context.give(index, gradient)


def _sizes(context: Context, terms: Sequence[str], result: str) -> dict[str, int | str | None]:
    """The size of each letter's axes; those that an ellipsis stands for are broadcast.

    Refuses what inference has no right size for: that of a letter is taken from one operand.
    """
    sizes = dict(zip(result, context.dims(context.node.outputs[0]), strict=True))
    for index, term in enumerate(terms):
        for letter, size in zip(term, context.dims(context.given(index)), strict=True):
            known = sizes.setdefault(letter, size)
            is_named = letter in context.node.attributes["equation"].as_string()
            if known != size and (known == 1 or (is_named and size == 1)):
                raise context.refuse(f"has no gradient where an axis {letter!r} of 1 is repeated")
    return sizes


def _meets_another(
    context: Context, terms: Sequence[str], letter: str, size: int | str | None
) -> bool:
    """Whether an operand has another size along the axes of a letter; 1 is repeated for sure."""
    found = {
        other
        for index, term in enumerate(terms)
        for name, other in zip(term, context.dims(context.given(index)), strict=True)
        if name == letter
    }
    return size != 1 and bool(found - {1, size})


def _sum_of_products(
    context: Context, factors: Sequence[Factor], term: str, given: ir.Value
) -> Term:
    """The Einsum of the factors with the axes of `term`, repeated along those that none has."""
    written = [letters for letters, _ in factors]
    kept = "".join(letter for letter in term if any(letter in letters for letters in written))
    equation = f"{','.join(written)}->{kept}"
    operands = [value for _, value in factors]
    product = operands[0].op("Einsum", *operands[1:], equation=equation)
    missing = [axis for axis, letter in enumerate(term) if letter not in kept]
    if not missing:
        return product
    return product.unsqueeze(missing).op("Expand", context.sizes(given))


def _without_repeats(
    context: Context, term: str, sizes: dict[str, int | str | None]
) -> tuple[str, list[Factor]]:
    """The term with other letters for repeated ones, and what is 1 where they are equal, else 0."""
    letters: list[str] = []
    diagonals: list[Factor] = []
    for letter in term:
        if letter in letters:
            taken, size = {*sizes, *letters}, sizes[letter]
            other = next(free for free in ascii_letters if free not in taken)
            if not isinstance(size, int):
                raise context.refuse(f"has no gradient along axes {letter!r} of a run-time size")
            ones = np.eye(size, dtype=context.writer.dtype.numpy())
            diagonal = Term(context.ops, context.writer.value(ones, "diagonal"))
            diagonals.append((letter + other, diagonal))
            letter = other
        letters.append(letter)
    return "".join(letters), diagonals


def _parsed(context: Context) -> tuple[list[str], str]:
    """The letters of each operand's axes and of the result's, also of those in an ellipsis."""
    equation = context.attributes.string("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    written = left.split(",")
    widths = [
        context.rank(context.given(i)) - len(text.replace("...", "")) if "..." in text else 0
        for i, text in enumerate(written)
    ]
    free = [letter for letter in ascii_letters if letter not in equation]
    shared = "".join(free[: max(widths)])
    terms = [
        text.replace("...", shared[len(shared) - width :])
        for text, width in zip(written, widths, strict=True)
    ]
    if arrow:
        return terms, right.replace("...", shared)
    once = sorted(letter for letter in set(left) - {",", "."} if left.count(letter) == 1)
    return terms, shared + "".join(once)
