"""The forms of sequences while a model is lowered, and changing one into another.

A sequence of known length is a tuple of values (`TensorSequence`). Loops and branches may change
the length: then elements of one shape are the rows of a tensor (`Stack`), and elements that differ
along one axis lie one behind the other, with the borders between them (`Pieces`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import (
    Absent,
    AnyValue,
    Pieces,
    Stack,
    Tensor,
    TensorSequence,
    Value,
    insert_ones,
    transpose,
)
from ostinato.ops.rules.parts import concatenated
from ostinato.program.expr import Extent, Index, cast
from ostinato.sizes.dims import Size
from ostinato.sizes.strides import Shape


def flattened(values: Sequence[AnyValue]) -> list[Value]:
    """The tensors in sequences, in optionals, and those that are neither."""
    return [tensor for value in values for tensor in _tensors(value)]


def _tensors(value: AnyValue) -> Sequence[Value]:
    if isinstance(value, TensorSequence):
        return value.elements
    if isinstance(value, Stack):
        return (value.rows,)
    if isinstance(value, Pieces):
        return value.rows, value.borders
    return () if isinstance(value, Absent) else (value,)


def rebuilt(values: Sequence[AnyValue], tensors: Sequence[Tensor]) -> list[AnyValue]:
    """Values of the same form as these, of other tensors: the inverse of `flattened`."""
    left = iter(tensors)
    return [_of_tensors(value, [next(left) for _ in _tensors(value)]) for value in values]


def _of_tensors(value: AnyValue, tensors: Sequence[Tensor]) -> AnyValue:
    if isinstance(value, TensorSequence):
        return TensorSequence(value.dtype, tuple(tensors))
    if isinstance(value, Stack):
        return Stack(value.dtype, *tensors)
    if isinstance(value, Pieces):
        rows, borders = tensors
        return Pieces(value.dtype, rows, borders, value.axis)
    return value if isinstance(value, Absent) else tensors[0]


def form(value: AnyValue) -> tuple[object, ...]:
    """The kind and length of a value: equal for values that differ in their tensors only."""
    if isinstance(value, TensorSequence):
        return ("sequence", len(value.elements))
    if isinstance(value, Stack):
        return ("stack", len(value.rows.shape))
    if isinstance(value, Pieces):
        return ("pieces", len(value.rows.shape), value.axis)
    return ("absent",) if isinstance(value, Absent) else ("tensor",)


def common_form(
    builder: Builder, values: Sequence[AnyValue], is_open: Callable[[Size], bool]
) -> Stack | Pieces | None:
    """A sequence without elements, in a form that all of these can take; None where there is none.

    is_open: whether a size of an element may be another one in other elements. Sizes that a run
    requires to be the same are one size.
    """
    shapes: list[Shape] = []
    axes, dtypes = set[int](), set[str]()
    for value in values:
        if isinstance(value, TensorSequence):
            shapes += (element.shape for element in value.elements)
        elif isinstance(value, Stack):
            shapes.append(value.element)
        elif isinstance(value, Pieces):
            shapes.append(put_back(value.rows, value.axis).shape)
            axes.add(value.axis)
        else:
            return None
        dtypes.add(value.dtype)
    if len(dtypes) != 1 or len({len(shape) for shape in shapes}) != 1:
        return None
    (dtype,), columns = dtypes, list(zip(*shapes, strict=True))
    shape = tuple(min(sizes, key=lambda n: not isinstance(n, int)) for sizes in columns)
    for axis, (sizes, only) in enumerate(zip(columns, shape, strict=True)):
        alike = all(builder.require.is_required(size, only) for size in sizes)
        if not alike or any(map(is_open, sizes)):
            axes.add(axis)
    if not axes:
        return Stack(dtype, Tensor(dtype, (0, *shape), None))
    if len(axes) > 1:
        return None
    (axis,) = axes
    rows = Tensor(dtype, (0, *shape[:axis], *shape[axis + 1 :]), None)
    return Pieces(dtype, rows, Tensor("int64", (1,), None), axis)


def in_form(context: Context, value: AnyValue, wanted: Stack | Pieces) -> Stack | Pieces | None:
    """A sequence in the form of another; None where its elements do not have that."""
    if not isinstance(value, (TensorSequence, Stack, Pieces)) or value.dtype != wanted.dtype:
        return None
    if isinstance(wanted, Pieces):
        return _as_pieces(context, value, wanted)
    builder, shape = context.builder, wanted.element
    if isinstance(value, Stack):
        if not agree(builder, value.element, shape):
            return None
        return Stack(value.dtype, of_shape(builder, value.rows, (value.rows.shape[0], *shape)))
    if isinstance(value, Pieces):
        return None
    if not all(agree(builder, element.shape, shape) for element in value.elements):
        return None
    if not value.elements:
        return Stack(value.dtype, builder.empty(value.dtype, (0, *shape)))
    rows = [insert_ones(of_shape(builder, each, shape), (0,)) for each in value.elements]
    return Stack(value.dtype, concatenated(context, rows, 0))


def agree(builder: Builder, shape: Shape, wanted: Shape) -> bool:
    """Whether a run ends unless two shapes are the same."""
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(builder.require.is_required(*pair) for pair in pairs)


def of_shape(builder: Builder, value: Value, shape: Shape) -> Value:
    """A value with other names for its sizes: an error in a run where they are others."""
    if value.shape == shape:
        return value
    for axis, (size, wanted) in enumerate(zip(value.shape, shape, strict=True)):
        builder.require.equal(size, wanted, f"axis {axis} of a value of a loop")
    return replace(builder.strided(value), shape=shape)


def _as_pieces(
    context: Context, value: TensorSequence | Stack | Pieces, wanted: Pieces
) -> Pieces | None:
    """A sequence as elements that may differ along the axis along which those of another do."""
    builder, axis, rest = context.builder, wanted.axis, wanted.rows.shape[1:]
    if isinstance(value, Pieces):
        alike = value.axis == axis and agree(builder, value.rows.shape[1:], rest)
        return value if alike else None
    shapes = [value.element] if isinstance(value, Stack) else [e.shape for e in value.elements]
    others = ((*shape[:axis], *shape[axis + 1 :]) for shape in shapes if len(shape) > axis)
    agreeing = sum(agree(builder, other, rest) for other in others)
    if agreeing < len(shapes):
        return None
    if isinstance(value, Stack):
        return _apart(context, value, axis)
    sizes = [0, *(element.shape[axis] for element in value.elements)]
    ends = np.array([sum(sizes[: i + 1]) for i in range(len(sizes))], object)
    borders = builder.strided(builder.constants.known("int64", ends))
    rows: Value = builder.empty(value.dtype, (0, *rest))
    if value.elements:
        rows = concatenated(context, [in_front(e, axis) for e in value.elements], 0)
    return Pieces(value.dtype, rows, borders, axis)


def _apart(context: Context, stack: Stack, axis: int) -> Pieces:
    """Elements of one shape as such that may differ along an axis."""
    builder, count = context.builder, stack.rows.shape[0]
    size = stack.element[axis]
    moved = transpose(stack.rows, (0, *(1 + i for i in _order(len(stack.element), axis))))
    rows = builder.reshaped(moved, (count * size, *moved.shape[2:]))
    axis_of_borders = builder.axis(count + 1)
    number = cast(Index(axis_of_borders), "int64") * Extent(size)
    borders = builder.stored((count + 1,), (axis_of_borders,), number)
    return Pieces(stack.dtype, rows, borders, axis)


def in_front(value: Value, axis: int) -> Value:
    """A value with an axis before all others, as rows of a sequence have it."""
    return transpose(value, _order(len(value.shape), axis))


def put_back(value: Value, axis: int) -> Value:
    """A value with the first axis as the one that it is in an element: undoes `in_front`."""
    return transpose(value, order_back(len(value.shape), axis))


def order_back(rank: int, axis: int) -> tuple[int, ...]:
    """The order of axes with which `put_back` puts the first one at `axis`."""
    return (*range(1, axis + 1), 0, *range(axis + 1, rank))


def _order(rank: int, axis: int) -> tuple[int, ...]:
    return (axis, *(i for i in range(rank) if i != axis))
