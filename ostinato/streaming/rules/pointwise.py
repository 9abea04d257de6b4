"""Operators that treat every element alone, of sizes as well: the arithmetic of lengths."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.linear_index import rows
from ostinato.streaming.context import UNBOUNDED, Context
from ostinato.streaming.facts import Element, Fixed, Length, Sizes
from ostinato.streaming.registry import streams
from ostinato.streaming.rules.frames import each_frame


@streams("Cast", "CastLike", "Identity", lengths=True)
def copies(context: Context) -> None:
    """Frames as they are, or sizes."""
    if context.stream(0) is None:
        if context.op_type == "CastLike" and not isinstance(context.fact(context.given(0)), Sizes):
            context.set_all(Fixed())
            return
        _copy_sizes(context)
        return
    each_frame(context)


def _copy_sizes(context: Context) -> None:
    fact = context.fact(context.given(0))
    if not isinstance(fact, Sizes):
        raise context.refuse("reads sizes where no values are expected")
    if fact.grows and context.node.outputs[0].dtype is ir.DataType.BOOL:
        raise context.refuse("computes with the length of the whole sequence")
    context.set_all(fact)


@streams("Add", "Div", "Equal", "Max", "Min", "Mul", "Neg", "Sub", "Where", lengths=True)
def arithmetic(context: Context) -> None:
    """Of frames, or of sizes."""
    if any(context.stream(i) for i in range(len(context.node.inputs))):
        each_frame(context)
    else:
        _size_arithmetic(context)


def _size_arithmetic(context: Context) -> None:
    """Sums, products and quotients of sizes; the node itself still computes them."""
    operands = [context.elements(i) for i in range(len(context.node.inputs))]
    facts = [context.fact(context.given(i)) for i in range(len(context.node.inputs))]
    meeting = rows(operands)
    if meeting is None:
        raise context.refuse("computes with the length of the whole sequence")
    elements = tuple(_combine(context.op_type, row) for row in meeting)
    scalar = all(
        fact.scalar if isinstance(fact, Sizes) else not context.rank(context.given(i))
        for i, fact in enumerate(facts)
    )
    sizes = Sizes(elements, scalar)
    to = context.node.outputs[0].dtype
    if sizes.grows and (to is None or not to.is_integer()):
        raise context.refuse("computes with the length of the whole sequence")
    context.set(sizes)


def _combine(op_type: str, row: tuple[Element, ...]) -> Element:
    if all(isinstance(element, int) for element in row):
        function = facts_of(op_type).arithmetic
        return None if function is None else int(function(*row))
    if op_type == "Where" and isinstance(row[0], int):
        return row[1 if row[0] else 2]
    lengths = [element for element in row if isinstance(element, Length)]
    if not lengths:
        return None
    if len(row) == 2 and len(lengths) == 2:
        return _difference(op_type, *lengths)
    if op_type == "Neg":
        return _negative(lengths[0])
    number = next((element for element in row if isinstance(element, int)), None)
    if len(row) != 2 or number is None:
        return Length(None)
    (length,) = lengths
    if op_type == "Sub" and row[0] is not length:
        return _with_number("Add", _negative(length), number)
    if op_type == "Div" and row[0] is not length:
        return Length(None)
    return _with_number(op_type, length, number)


def _difference(op_type: str, a: Length, b: Length) -> Element:
    known = a.scale is not None and a.scale == b.scale
    if op_type == "Sub" and known and a.extra is not None and b.extra is not None:
        return a.extra - b.extra
    return Length(None)


def _negative(length: Length) -> Length:
    extra = None if length.extra is None else -length.extra
    return Length(None if length.scale is None else -length.scale, extra)


def _with_number(op_type: str, length: Length, number: int) -> Element:
    """Of a length and a number behind it, or of the two in any order."""
    scale, extra = length.scale, length.extra
    if scale is None:
        return Length(None)
    if op_type in ("Add", "Sub"):
        more = number if op_type == "Add" else -number
        return Length(scale, None if extra is None else extra + more)
    if op_type == "Mul":
        return Length(scale * number, None if extra is None else extra * number)
    if scale < 0:
        return Length(None)
    if op_type == "Equal":
        return 0 if number < 0 else Length(None)
    if op_type == "Div" and number > 0:
        # Of as many frames as make whole frames at this rate.
        return Length(scale / number, None if extra is None else extra // number)
    if op_type == "Min" and number >= UNBOUNDED:
        return length
    if op_type == "Max":
        # One frame of the input may make fewer.
        enough = number <= 1 or (extra is not None and number <= scale + extra)
        return length if enough else Length(scale, None)
    return Length(None)
