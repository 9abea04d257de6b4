"""Copies of joined parts: in what order they lie in memory, and which copies are equal."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from ostinato.ops.core.tensor import Joined, Tensor, Value, reshape_view, transpose
from ostinato.program.nodes import Stmt
from ostinato.sizes.dims import Size


class Copies:
    """The copies that a program makes, each found among the statements that make it."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[list[Stmt], Tensor]] = {}
        # For each first part, the numbers of parts of which there are copies.
        self._counts: dict[Hashable, set[int]] = {}

    def find(self, value: Value, body: list[Stmt]) -> Tensor | None:
        """The copy of the same parts, with the axes of `value`, if `body` makes one."""
        if isinstance(value, Tensor):
            return None
        key = _identity(laid_out(value))
        made, copy = self._made.get(key, (None, None))
        return None if key is None or copy is None or made is not body else _ordered(copy, value)

    def add(self, value: Joined, body: list[Stmt], copy: Tensor) -> Tensor:
        """Remember a dense copy of `laid_out(value)`; returns it with the axes of `value`."""
        self._made[_identity(laid_out(value))] = body, copy
        self._counts.setdefault(_beginning(value), set()).add(len(value.parts))
        return _ordered(copy, value)

    def shortened(self, value: Joined, body: list[Stmt]) -> Joined:
        """The value with its first parts as one, as many of them as `body` has a copy of.

        A layer of DenseNet reads all those before it: copied apart, their number grows with its
        square.
        """
        for count in sorted(self._counts.get(_beginning(value), ()), reverse=True):
            if count < len(value.parts):
                copy = self.find(_first(value, count), body)
                if copy is not None:
                    return replace(value, parts=(copy, *value.parts[count:]))
        return value

    def forget(self) -> None:
        """Forget all of them."""
        self._made.clear()
        self._counts.clear()


def laid_out(value: Joined) -> Joined:
    """The value with its axes in the order in which a copy is made: neighbours stay neighbours."""
    moved = transpose(value, _order(value))
    assert isinstance(moved, Joined)
    return moved


def _beginning(value: Joined) -> Hashable:
    first = value.parts[0]
    return first.base if isinstance(first, Tensor) else None


def _first(value: Joined, count: int) -> Joined:
    """The value of its first parts alone."""
    parts, axis = value.parts[:count], value.axis
    extent: Size = sum((part.shape[axis] for part in parts[1:]), parts[0].shape[axis])
    return replace(
        value, shape=(*value.shape[:axis], extent, *value.shape[axis + 1 :]), parts=parts
    )


def _order(value: Joined) -> tuple[int, ...]:
    """The axes, that one last along which elements of every part are neighbours in memory."""
    axes = tuple(range(len(value.shape)))
    near = [
        axis
        for axis in axes
        if value.shape[axis] != 1 and all(_stride(part, axis) == 1 for part in value.parts)
    ]
    return (*(axis for axis in axes if axis != near[-1]), near[-1]) if near else axes


def _stride(value: Value, axis: int) -> Size:
    return value.strides[axis] if isinstance(value, Tensor) and value.base is not None else 0


def _ordered(copy: Tensor, value: Joined) -> Tensor:
    """A dense copy of `laid_out(value)`, perhaps without axes of extent 1, as `value`."""
    order = _order(value)
    whole = reshape_view(copy, tuple(value.shape[i] for i in order))
    assert whole is not None
    result = transpose(whole, tuple(order.index(i) for i in range(len(order))))
    assert isinstance(result, Tensor)
    return result


def _identity(value: Joined) -> Hashable:
    """Equal for what is the same but for axes of extent 1; None where that is not known."""
    kept = tuple(i for i, n in enumerate(value.shape) if n != 1 or i == value.axis)
    return _elements(value, kept)


def _elements(value: Value, axes: tuple[int, ...]) -> Hashable:
    if isinstance(value, Tensor):
        steps = tuple((value.shape[i], value.strides[i]) for i in axes if value.base)
        return value.base and (value.dtype, steps, value.base)
    parts = tuple(_elements(part, axes) for part in value.parts)
    return None if None in parts else (axes.index(value.axis), parts)
