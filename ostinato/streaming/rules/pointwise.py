"""Operators that treat every element alone: all rows of a step at once, operands in step."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from ostinato.graph.size_arithmetic import FUNCTIONS
from ostinato.streaming.context import UNBOUNDED, Context
from ostinato.streaming.facts import Element, Fixed, Length, Sizes, Stream
from ostinato.streaming.registry import streams

# Elements come from the same place of the operands, and so an unknown first frame is one too.
_BROADCASTING = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Clip Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor"
)
_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu "
    "Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
)


ALONE = frozenset(_UNARY.split())
"""Operators of one operand."""


@streams(*ALONE)
def unary(context: Context) -> None:
    """The fill of padding would have to be computed too: it is sent instead."""
    _, stream = context.settled(0)
    context.set(stream)


@streams("Identity", "Dropout", "Cast", "CastLike")
def copies(context: Context) -> None:
    """Padding stays what it is, but for numbers of another type."""
    if context.stream(0) is None:
        if context.op_type == "CastLike" and not isinstance(context.fact(context.input(0)), Sizes):
            context.set_all(Fixed())
            return
        _copy_sizes(context)
        return
    stream = context.required_stream(0)
    types = {context.input(0).dtype, *(value.dtype for value in context.node.outputs)}
    if len(types) > 1:
        _, stream = context.settled(0)
    context.set_all(stream)


def _copy_sizes(context: Context) -> None:
    fact = context.fact(context.input(0))
    if not isinstance(fact, Sizes):
        raise context.refuse("reads sizes where no values are expected")
    to = context.node.outputs[0].dtype
    if fact.grows and to is not None and not to.is_integer():
        raise context.refuse("computes with the length of the whole sequence")
    context.set_all(fact)


@streams(*_BROADCASTING.split())
def broadcasting(context: Context) -> None:
    """Delays the operands that are ahead."""
    if not any(context.stream(i) for i in range(len(context.node.inputs))):
        _size_arithmetic(context)
        return
    context.set(broadcast(context, range(len(context.node.inputs))))


def broadcast(context: Context, indices: range) -> Stream:
    """Let the operands meet in time and return what the result is, right-aligned axes and all."""
    found = [i for i in indices if context.stream(i) is not None]
    stream = context.stream(found[0])
    assert stream is not None
    from_right = stream.axis - context.rank(context.input(found[0]))
    for i in indices:
        if context.has(i):
            _check_time(context, i, from_right)
    aligned = context.align(found)
    steady = all((s := context.stream(i)) is not None and s.steady for i in found)
    rank = context.rank(context.node.outputs[0])
    return replace(aligned, axis=rank + from_right, steady=steady, fill=None)


def _check_time(context: Context, index: int, from_right: int) -> None:
    value = context.input(index)
    dims, fact = context.dims(value), context.fact(value)
    if isinstance(fact, Stream):
        if fact.axis - len(dims) != from_right:
            raise context.refuse(
                "two of its inputs have their time axes at different places, so it would relate "
                "every frame to every other"
            )
        return
    if isinstance(fact, Sizes) and fact.grows:
        raise context.refuse("computes with the length of the whole sequence")
    if len(dims) >= -from_right and dims[from_right] != 1:
        array = context.constant(index)
        if array is not None and array.size and _is_uniform(array, from_right):
            one = np.take(array, [0], axis=from_right)
            context.operand(index, context.writer.value(one, "frame"))
            return
        raise context.refuse(
            f"input {index} ({value.name!r}) has values of its own for each frame of the whole "
            "sequence"
        )


def _is_uniform(array: np.ndarray, axis: int) -> bool:
    return bool((array == np.take(array, [0], axis=axis)).all())


def _size_arithmetic(context: Context) -> None:
    """Sums, products and quotients of sizes; the node itself still computes them."""
    operands = [context.elements(i) for i in range(len(context.node.inputs))]
    facts = [context.fact(context.input(i)) for i in range(len(context.node.inputs))]
    count = max(len(elements) for elements in operands)
    if any(len(elements) not in (1, count) for elements in operands):
        raise context.refuse("computes with the length of the whole sequence")
    rows = zip(*(e * count if len(e) == 1 else e for e in operands), strict=True)
    elements = tuple(_combine(context.op_type, row) for row in rows)
    scalar = all(
        fact.scalar if isinstance(fact, Sizes) else not context.rank(context.input(i))
        for i, fact in enumerate(facts)
    )
    sizes = Sizes(elements, scalar)
    to = context.node.outputs[0].dtype
    if sizes.grows and (to is None or not to.is_integer()):
        raise context.refuse("computes with the length of the whole sequence")
    context.set(sizes)


def _combine(op_type: str, row: tuple[Element, ...]) -> Element:
    if all(isinstance(element, int) for element in row) and len(row) == 2:
        a, b = row
        assert isinstance(a, int) and isinstance(b, int)
        return int(FUNCTIONS[op_type](a, b)) if op_type in FUNCTIONS else None
    if op_type == "Where" and isinstance(row[0], int):
        return row[1 if row[0] else 2]
    lengths = [element for element in row if isinstance(element, Length)]
    if not lengths:
        return None
    if len(row) == 2 and len(lengths) == 2:
        return _difference(op_type, *lengths)
    number = next((element for element in row if isinstance(element, int)), None)
    if len(row) != 2 or number is None:
        return Length(None)
    (length,) = lengths
    if op_type == "Equal":
        return 0 if number < 0 else Length(None)
    if length.scale is None or (op_type in ("Sub", "Div") and row[0] is not length):
        return Length(None)
    return _with_number(op_type, length, length.scale, number)


def _difference(op_type: str, a: Length, b: Length) -> Element:
    known = a.scale is not None and a.scale == b.scale
    if op_type == "Sub" and known and a.extra is not None and b.extra is not None:
        return a.extra - b.extra
    return Length(None)


def _with_number(op_type: str, length: Length, scale: Fraction, number: int) -> Element:
    """Of a length and a number behind it, or of the two in any order."""
    extra = length.extra
    if op_type in ("Add", "Sub"):
        more = number if op_type == "Add" else -number
        return Length(scale, None if extra is None else extra + more)
    if op_type == "Mul":
        return Length(scale * number, None if extra is None else extra * number)
    if op_type == "Div" and number > 0:
        # Of as many frames as make whole frames at this rate.
        return Length(scale / number, None if extra is None else extra // number)
    if op_type == "Max" or (op_type == "Min" and number >= UNBOUNDED):
        return length
    return Length(None)


@streams("QuantizeLinear", "DequantizeLinear")
def quantization(context: Context) -> None:
    """Scales and zero points are fixed; one for each index of an axis, which is not time."""
    _, stream = context.settled(0)
    context.only_stream()
    if context.rank(context.input(1)) and context.dims(context.input(1)) != (1,):
        if context.axis(1) == stream.axis:
            raise context.refuse("has a scale for each frame of the whole sequence")
        if context.number("block_size", 0):
            raise context.refuse("blocked scales are not supported")
    context.set(stream)
