"""Copies of joined parts: in what order they lie in memory, and which of them are the same."""

from __future__ import annotations

from collections.abc import Hashable

from ostinato.ops.core.tensor import Joined, Tensor, Value, reshape_view, transpose
from ostinato.program.nodes import Stmt
from ostinato.sizes.dims import Size


class Copies:
    """The copies that a program makes, each found among the statements that make it."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[list[Stmt], Tensor]] = {}

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
        return _ordered(copy, value)

    def forget(self) -> None:
        """Forget all of them."""
        self._made.clear()


def laid_out(value: Joined) -> Joined:
    """The value with its axes in the order in which a copy is made: neighbours stay neighbours."""
    moved = transpose(value, _order(value))
    assert isinstance(moved, Joined)
    return moved


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
