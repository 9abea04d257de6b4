"""What an ONNX value is while a model is lowered: a strided view of a buffer, or several joined.

Slice, Split, Transpose, Reshape, Expand and Concat only make other views. None of them moves data;
a copy happens where an op needs plain strides and a view cannot give them (`Builder.strided`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ostinato.program.dims import Size, exact_quotient, product
from ostinato.program.expr import Access, Axis

Shape: TypeAlias = "tuple[Size, ...]"


@dataclass(frozen=True, eq=False)
class Tensor:
    """A view: element `i` of the value is at `base + sum(i * strides)` of the base's buffer.

    known: for values fixed while compiling, an array of this shape: of numbers, or of objects where
        integers were computed from shapes (`Size`). Such a value may have no memory yet (`base` is
        None).
    """

    dtype: str
    shape: Shape
    base: Access | None
    strides: tuple[Size, ...] = ()
    known: np.ndarray | None = None

    @property
    def size(self) -> Size:
        """The number of elements."""
        return product(self.shape)


@dataclass(frozen=True, eq=False)
class Joined:
    """Tensors laid one after the other along `axis`, without memory of its own."""

    dtype: str
    shape: Shape
    axis: int
    parts: tuple[Tensor | Joined, ...]
    known: None = None

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
class Absent:
    """An optional without an element; one that has an element is that element.

    type: its ONNX type, such as "optional(tensor(float))".
    """

    type: str


AnyValue: TypeAlias = "Value | TensorSequence | Absent"


def static_shape(shape: Shape) -> tuple[int, ...] | None:
    """The shape as numbers, None where some are only known at run time."""
    sizes = tuple(n for n in shape if isinstance(n, int))
    return sizes if len(sizes) == len(shape) else None


def dense_strides(shape: Shape) -> tuple[Size, ...]:
    """Row-major strides, in elements."""
    strides: list[Size] = []
    step: Size = 1
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))


def dense(dtype: str, shape: Shape, buffer: str) -> Tensor:
    """The row-major tensor that fills a buffer."""
    return Tensor(dtype, shape, Access(buffer, 0, ()), dense_strides(shape))


def advance(tensor: Tensor, offset: Size) -> Access | None:
    """The tensor's base, moved by a number of elements."""
    return tensor.base and replace(tensor.base, offset=tensor.base.offset + offset)


def transpose(value: Value, order: tuple[int, ...]) -> Value:
    """Axis `i` of the result is axis `order[i]` of the value."""
    shape = tuple(value.shape[i] for i in order)
    if isinstance(value, Joined):
        parts = tuple(transpose(part, order) for part in value.parts)
        return Joined(value.dtype, shape, order.index(value.axis), parts)
    return replace(
        value,
        shape=shape,
        strides=tuple(value.strides[i] for i in order) if value.base else (),
        known=None if value.known is None else value.known.transpose(order),
    )


def slice_axis(value: Tensor, axis: int, start: Size, step: int, count: Size) -> Tensor:
    """Elements `start, start + step, ..` of one axis; the caller has checked the bounds."""
    shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    known = value.known
    if known is not None:
        if not isinstance(start, int) or not isinstance(count, int):
            known = None
        else:
            known = known.take([start + step * i for i in range(count)], axis=axis)
    if value.base is None:
        return replace(value, shape=shape, known=known)
    strides = list(value.strides)
    base = advance(value, start * strides[axis])
    strides[axis] = strides[axis] * step
    return replace(value, shape=shape, base=base, strides=tuple(strides), known=known)


def at(value: Tensor, axis: int, position: Axis, start: Size, step: int) -> Tensor:
    """The value at `start + step * position` of `axis`, which disappears, for a loop's axis."""
    assert value.base is not None
    stride = value.strides[axis]
    base = Access(
        value.base.buffer,
        value.base.offset + start * stride,
        (*value.base.terms, (position, stride * step)),
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
    strides: list[Size] = list(value.strides)
    if value.base is not None:
        for axis in axes:
            strides.insert(axis, 0)
    known = None if value.known is None else np.expand_dims(value.known, axes)
    return replace(value, shape=tuple(shape), strides=tuple(strides), known=known)


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
    strides = tuple(value.strides[i] for i in kept) if value.base else ()
    known = None if value.known is None else value.known.squeeze(axes)
    return replace(value, shape=shape, strides=strides, known=known)


def expand(value: Tensor, shape: Shape) -> Tensor:
    """Broadcast to `shape`; the caller has checked that it is possible."""
    lead = len(shape) - len(value.shape)
    old = (1,) * lead + value.shape
    repeated: tuple[Size, ...] = ()
    if value.base is not None:
        extents = zip(old, shape, (0,) * lead + value.strides, strict=True)
        repeated = tuple(0 if o == 1 and n != 1 else s for o, n, s in extents)
    known = value.known
    if known is not None:
        static = static_shape(shape)
        known = None if static is None else np.broadcast_to(known, static)
    return replace(value, shape=shape, strides=repeated, known=known)


def reshape_view(value: Tensor, shape: Shape) -> Tensor | None:
    """The value with another shape of the same size, or None where strides cannot express it."""
    known = value.known
    if known is not None:
        static = static_shape(shape)
        known = None if static is None else known.reshape(static)
    if value.base is None:
        return replace(value, shape=shape, known=known)
    if value.strides == dense_strides(value.shape):
        return replace(value, shape=shape, strides=dense_strides(shape), known=known)
    strides = _reshaped_strides(value.shape, value.strides, shape)
    if strides is None:
        return None
    return replace(value, shape=shape, strides=strides, known=known)


def _reshaped_strides(
    old: Shape, old_strides: tuple[Size, ...], new: Shape
) -> tuple[Size, ...] | None:
    """Strides of the reshaped view: groups of old and new axes with equal products are matched."""
    if any(n == 0 for n in old):
        return dense_strides(new)
    source = [(n, s) for n, s in zip(old, old_strides, strict=True) if n != 1]
    strides: list[Size] = [0] * len(new)
    position = len(new) - 1
    while source:
        extent, stride = source.pop()
        group: list[int] = []
        covered: Size = 1
        while covered != extent:
            while position >= 0 and new[position] == 1:
                position -= 1
            if position >= 0 and exact_quotient(extent, covered * new[position]) is not None:
                group.append(position)
                covered = covered * new[position]
                position -= 1
            elif source and source[-1][1] == extent * stride:
                extent = extent * source.pop()[0]
            else:
                return None
        step = stride
        for i in group:
            strides[i] = step
            step = step * new[i]
    return tuple(strides)
