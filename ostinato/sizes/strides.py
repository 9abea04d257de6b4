"""Strides of views: of memory, or of anything else that changes evenly along every axis."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from ostinato.sizes.dims import Size, exact_quotient

Shape: TypeAlias = "tuple[Size, ...]"
# Strides of memory, or steps of a progression.
Steps: TypeAlias = "tuple[Size, ...]"


def dense_strides(shape: Shape) -> tuple[Size, ...]:
    """Row-major strides, in elements."""
    strides: list[Size] = []
    step: Size = 1
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))


def inserted(strides: Steps, axes: Collection[int]) -> Steps:
    """Strides with new axes of extent 1 at these positions of the result, none of them negative."""
    left = iter(strides)
    return tuple(0 if i in axes else next(left) for i in range(len(strides) + len(axes)))


def dropped(strides: Steps, axes: Collection[int]) -> Steps:
    """Strides without these axes, whose extents are 1; none of them is negative."""
    return tuple(stride for i, stride in enumerate(strides) if i not in axes)


def expanded(shape: Shape, strides: Steps, wanted: Shape) -> Steps:
    """Strides of a value of that shape broadcast to the wanted one: 0 where it is repeated."""
    lead = len(wanted) - len(shape)
    extents = zip((1,) * lead + shape, wanted, (0,) * lead + strides, strict=True)
    return tuple(0 if own == 1 and n != 1 else stride for own, n, stride in extents)


def reshaped(shape: Shape, strides: Steps, wanted: Shape) -> Steps | None:
    """Strides of a view of the wanted shape, of the same size; None where there are none."""
    if strides == dense_strides(shape):
        return dense_strides(wanted)
    return _regrouped(shape, strides, wanted)


def _regrouped(old: Shape, old_strides: Steps, new: Shape) -> Steps | None:
    """Strides of a reshaped view: match groups of old and new axes with equal products."""
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
