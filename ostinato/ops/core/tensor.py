"""Values while a model is lowered: strided views of buffers, or several joined.

Slice, Split, Transpose, Reshape, Expand and Concat only make other views. None of them moves data;
a copy happens where an op needs plain strides and a view cannot give them (`Builder.strided`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ostinato import limits
from ostinato.program.expr import Access, Axis
from ostinato.records import cached_property, dataclass
from ostinato.sizes.dims import Size, product
from ostinato.sizes.progressions import Progression, progression
from ostinato.sizes.strides import (
    Shape,
    Steps,
    dense_strides,
    dropped,
    expanded,
    inserted,
    reshaped,
)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A view: element `i` of the value is at `base + sum(i * strides)` of the base's buffer.

    known: for values fixed while compiling, an array of this shape: of numbers, or of objects where
        integers were computed from shapes (`Size`). Such a value may have no memory yet (`base` is
        None).
    progression: what the elements are where they are evenly spaced, and too many to be known or of
        run-time sizes; see `progression_of`.
    """

    dtype: str
    shape: Shape
    base: Access | None
    strides: Steps = ()
    known: np.ndarray | None = None
    progression: Progression | None = None

    @property
    def size(self) -> Size:
        """The number of elements."""
        return product(self.shape)

    @property
    def address(self) -> Access:
        """`base`, of a value that has memory."""
        assert self.base is not None
        return self.base

    @property
    def buffer(self) -> str:
        """The name of its memory, if it has any."""
        return self.address.buffer


@dataclass(frozen=True, eq=False)
class Joined:
    """Tensors laid one after the other along `axis`, without memory of its own."""

    dtype: str
    shape: Shape
    axis: int
    parts: tuple[Tensor | Joined, ...]
    known: None = None

    @cached_property
    def depth(self) -> int:
        """The depth of joined parts within joined parts."""
        return 1 + max(part.depth if isinstance(part, Joined) else 0 for part in self.parts)

    @property
    def size(self) -> Size:
        """The number of elements."""
        return product(self.shape)


Value: TypeAlias = "Tensor | Joined"


@dataclass(frozen=True, eq=False)
class TensorSequence:
    """A sequence whose length is known while compiling: no memory but that of its elements."""

    dtype: str
    elements: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Stack:
    """A sequence of any length whose elements have one shape: the rows of a tensor."""

    dtype: str
    rows: Value

    @property
    def element(self) -> Shape:
        """The shape of every element."""
        return self.rows.shape[1:]


@dataclass(frozen=True, eq=False)
class Pieces:
    """A sequence of any length whose elements differ in size along one axis alone.

    rows: the elements one behind the other, with `axis` of an element as the first axis.
    borders: int64 [length + 1], 0 and where in `rows` each element ends.
    """

    dtype: str
    rows: Value
    borders: Value
    axis: int

    @property
    def length(self) -> Size:
        """The number of elements."""
        return self.borders.shape[0] - 1


@dataclass(frozen=True, eq=False)
class Absent:
    """An optional without an element; one that has an element is that element.

    type: its ONNX type, such as "optional(tensor(float))".
    """

    type: str


AnyValue: TypeAlias = "Value | TensorSequence | Stack | Pieces | Absent"


def static_shape(shape: Shape) -> tuple[int, ...] | None:
    """The shape as numbers, None where some are only known at run time."""
    sizes = tuple(n for n in shape if isinstance(n, int))
    return sizes if len(sizes) == len(shape) else None


def dense(dtype: str, shape: Shape, buffer: str) -> Tensor:
    """The row-major tensor that fills a buffer."""
    return Tensor(dtype, shape, Access(buffer, 0, ()), dense_strides(shape))


def advance(tensor: Tensor, offset: Size) -> Access | None:
    """The tensor's base, moved by a number of elements."""
    return tensor.base and replace(tensor.base, offset=tensor.base.offset + offset)


def progression_of(value: Value) -> Progression | None:
    """The integers that a value holds if they are evenly spaced along every axis, else None."""
    if isinstance(value, Joined):
        return None
    if value.progression is not None or value.known is None:
        return value.progression
    return progression(value.known) if value.dtype in ("int32", "int64") else None


def restepped(
    value: Tensor,
    known: np.ndarray | None,
    change: Callable[[Steps], Steps | None],
    start: Callable[[Steps], Size] = lambda steps: 0,
) -> Progression | None:
    """The progression of a view of the value, which the view's known elements do not tell.

    change: the strides of the view, from those of the value. start: how far its base moves.
    """
    before = None if known is not None else progression_of(value)
    steps = None if before is None else change(before.steps)
    if before is None or steps is None:
        return None
    return replace(before, start=before.start + start(before.steps), steps=steps)


def _view(
    value: Tensor, shape: Shape, known: np.ndarray | None, change: Callable[[Steps], Steps]
) -> Tensor:
    """The same memory in another shape; change: its strides, from those of the value."""
    strides = change(value.strides) if value.base else ()
    progression = restepped(value, known, change)
    return replace(value, shape=shape, strides=strides, known=known, progression=progression)


def transpose(value: Value, order: tuple[int, ...]) -> Value:
    """Axis `i` of the result is axis `order[i]` of the value."""
    shape = tuple(value.shape[i] for i in order)
    if isinstance(value, Joined):
        parts = tuple(transpose(part, order) for part in value.parts)
        return Joined(value.dtype, shape, order.index(value.axis), parts)

    known = None if value.known is None else value.known.transpose(order)
    return _view(value, shape, known, lambda strides: tuple(strides[i] for i in order))


def memory_order(value: Value) -> tuple[int, ...] | None:
    """The axes as they lie in memory, outermost first; None where that has gaps or overlaps."""
    if isinstance(value, Joined) or value.base is None:
        return None
    left = [axis for axis, extent in enumerate(value.shape) if extent != 1]
    order = [axis for axis, extent in enumerate(value.shape) if extent == 1]
    # From the innermost on; those of one element may lie anywhere.
    inner: list[int] = []
    step: Size = 1
    while left:
        axis = next((axis for axis in left if value.strides[axis] == step), None)
        if axis is None:
            return None
        left.remove(axis)
        inner.insert(0, axis)
        step = step * value.shape[axis]
    return (*order, *inner)


def owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory a view shows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def can_be_known(
    dtype: np.dtype[Any], shape: Sequence[int], source: np.ndarray | None = None
) -> bool:
    """Whether elements are computed while compiling, rather than by a kernel.

    source: what they are taken from. They may be as many as those in its memory, or a few.
    """
    if dtype.kind == "O":
        return math.prod(shape) <= limits.MOST_SIZES
    most = max(limits.MOST_KNOWN_BYTES, 0 if source is None else owner(source).nbytes)
    return math.prod(shape) * dtype.itemsize <= most


def slice_axis(value: Tensor, axis: int, start: Size, step: Size, count: Size) -> Tensor:
    """Elements `start, start + step, ..` of one axis; the caller has checked the bounds."""
    shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    known = value.known
    if known is not None:
        if isinstance(start, int) and isinstance(step, int) and isinstance(count, int):
            end = start + step * count
            chosen = slice(start, end if end >= 0 else None, step) if count else slice(0)
            known = known[(slice(None),) * axis + (chosen,)]
            assert known.shape[axis] == count
        else:
            known = None

    def sliced(strides: Steps) -> Steps:
        return (*strides[:axis], strides[axis] * step, *strides[axis + 1 :])

    return replace(
        value,
        shape=shape,
        base=value.base and advance(value, start * value.strides[axis]),
        strides=sliced(value.strides) if value.base else (),
        known=known,
        progression=restepped(value, known, sliced, lambda steps: start * steps[axis]),
    )


def share_memory(left: Value, right: Value) -> bool:
    """Whether two values begin at one place and have the same strides where that matters."""
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or left.base is None:
        return False
    return (left.base, left.dtype) == (right.base, right.dtype) and _agree(left, right)


def _agree(left: Tensor, right: Tensor, *but: int) -> bool:
    """Whether two views have one rank and the same strides, but along axes of one element."""
    axes = range(len(left.shape))
    if len(axes) != len(right.shape):
        return False
    extents = [{left.shape[i], right.shape[i]} for i in axes]
    return all(
        left.strides[i] == right.strides[i] or extents[i] == {1} for i in axes if i not in but
    )


def side_by_side(parts: Sequence[Value], axis: int) -> Tensor | None:
    """The view of parts that lie one after the other in memory; None where they do not."""
    first, others = parts[0], parts[1:]
    if not isinstance(first, Tensor) or first.base is None:
        return None
    stride, extent = first.strides[axis], first.shape[axis]
    for part in others:
        if not isinstance(part, Tensor) or part.base is None or part.dtype != first.dtype:
            return None
        if extent == 1:
            # The stride along one element may be anything: that of two is known now.
            stride = part.base.offset - first.base.offset
        beside = advance(first, extent * stride)
        is_even = part.shape[axis] == 1 or part.strides[axis] == stride
        rest = (*part.shape[:axis], *part.shape[axis + 1 :])
        if part.base != beside or not is_even or not _agree(first, part, axis):
            return None
        if rest != (*first.shape[:axis], *first.shape[axis + 1 :]):
            return None
        extent = extent + part.shape[axis]
    if isinstance(stride, int) and stride <= 0:
        return None
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    strides = (*first.strides[:axis], stride, *first.strides[axis + 1 :])
    return Tensor(first.dtype, shape, first.base, strides)


def at(value: Tensor, axis: int, position: Axis, start: Size, step: int) -> Tensor:
    """The value at `start + step * position` of `axis`, which disappears, for a loop's axis."""
    stride = value.strides[axis]
    base = Access(
        value.buffer,
        value.address.offset + start * stride,
        (*value.address.terms, (position, stride * step)),
    )
    shape = value.shape[:axis] + value.shape[axis + 1 :]
    return Tensor(value.dtype, shape, base, value.strides[:axis] + value.strides[axis + 1 :])


def insert_ones(value: Value, axes: tuple[int, ...]) -> Value:
    """Unsqueeze: axes of extent 1 at these positions of the result (sorted, not negative)."""
    shape = list(value.shape)
    for axis in axes:
        shape.insert(axis, 1)
    if isinstance(value, Joined):
        kept = [i for i in range(len(shape)) if i not in axes]
        parts = tuple(insert_ones(part, axes) for part in value.parts)
        return Joined(value.dtype, tuple(shape), kept[value.axis], parts)

    known = None if value.known is None else np.expand_dims(value.known, axes)
    return _view(value, tuple(shape), known, lambda strides: inserted(strides, axes))


def drop_ones(value: Value, axes: tuple[int, ...]) -> Value | None:
    """Squeeze these axes of extent 1, or None where the value is joined along one of them."""
    kept = [i for i in range(len(value.shape)) if i not in axes]
    shape = tuple(value.shape[i] for i in kept)
    if isinstance(value, Joined):
        if value.axis in axes:
            return None
        parts = tuple(part for p in value.parts if (part := drop_ones(p, axes)) is not None)
        if len(parts) != len(value.parts):
            return None
        return Joined(value.dtype, shape, kept.index(value.axis), parts)

    known = None if value.known is None else value.known.squeeze(axes)
    return _view(value, shape, known, lambda strides: dropped(strides, axes))


def expand(value: Tensor, shape: Shape) -> Tensor:
    """Broadcast to `shape`; the caller has checked that it is possible."""
    known = value.known
    if known is not None:
        static = static_shape(shape)
        is_known = static is not None and can_be_known(known.dtype, static, known)
        known = np.broadcast_to(known, static or ()) if is_known else None
    return _view(value, shape, known, lambda strides: expanded(value.shape, strides, shape))


def reshape_view(value: Tensor, shape: Shape) -> Tensor | None:
    """The value with another shape of the same size, or None where strides cannot express it."""
    known = value.known
    if known is not None:
        static = static_shape(shape)
        known = None if static is None else known.reshape(static)

    def regrouped(strides: Steps) -> Steps | None:
        return reshaped(value.shape, strides, shape)

    progression = restepped(value, known, regrouped)
    if value.base is None:
        return replace(value, shape=shape, known=known, progression=progression)
    strides = regrouped(value.strides)
    if strides is None:
        return None
    return replace(value, shape=shape, strides=strides, known=known, progression=progression)
