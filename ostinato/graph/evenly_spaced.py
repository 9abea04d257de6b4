"""Evenly spaced indices of a model, and the positions of an axis that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.inferred_sizes import Sizes
from ostinato.graph.linear_index import Indices, linear_size
from ostinato.graph.named_axes import named_axes, positions_of
from ostinato.model.values import constant_array, optional_input
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, ceildiv, exact_quotient, is_nonnegative, maximum, product
from ostinato.sizes.progressions import (
    Progression,
    added,
    multiplied,
    progression,
    repeated,
    scaled,
    unrounded,
)
from ostinato.sizes.strides import Shape, dropped, expanded, inserted, reshaped

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_INTEGER_ARRAYS = (np.dtype(np.int32), np.dtype(np.int64))
# Larger numbers are no positions; below, no sum or product here leaves 64 bits.
_LARGEST = 1 << 30
# Longer chains of index arithmetic do not occur.
_DEEPEST = 40

ARITHMETIC: dict[str, Callable[..., Progression | None]] = {
    "Cast": lambda a: a,
    "CastLike": lambda a: a,
    "Neg": lambda a: scaled(a, -1),
    "Add": added,
    "Sub": lambda a, b: added(a, scaled(b, -1)),
    "Mul": multiplied,
}
"""Operators of progressions that are broadcast to one shape; None where the result is none."""


@dataclass(frozen=True)
class Span:
    """The integers `range(start, stop, step)`.

    The bounds are linear forms of sizes, which are 0 or more; step is not 0. Where all is known,
    `stop` is the last integer plus or minus 1, and no integers at all are `range(0, 0)`.
    operand: the scalar that is `start` when the model runs, where the model has one.
    """

    start: Size
    stop: Size
    step: int
    operand: ir.Value | None = None

    @property
    def count(self) -> int | None:
        """The number of integers, None when it depends on sizes."""
        distance = self.stop - self.start
        return len(range(0, distance, self.step)) if isinstance(distance, int) else None

    def within(self, size: Size) -> Span | None:
        """The same positions on an axis of `size` elements, all of them counted from the front.

        None unless every position provably exists, and all of them are counted from the same end.
        """
        if self.count == 0:
            return self
        rises = self.step > 0
        low, high = (self.start, self.stop) if rises else (self.stop + 1, self.start + 1)
        if is_nonnegative(low) and is_nonnegative(size - high):
            return self
        if is_nonnegative(low + size) and is_nonnegative(-high):
            return Span(self.start + size, self.stop + size, self.step)
        return None


@dataclass(frozen=True)
class Line:
    """A tensor of this shape whose elements are evenly spaced along every axis.

    operand: the scalar that is its first element when the model runs, where the model has one.
    """

    elements: Progression
    shape: Shape
    operand: ir.Value | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def axis(self) -> int | None:
        """The only axis of more than one element, or of none; None where there is no such."""
        axes = [axis for axis, extent in enumerate(self.shape) if extent != 1]
        return axes[0] if len(axes) == 1 else None

    def span(self, axis: int | None) -> Span | None:
        """The elements along an axis, None unless they depend on their position on it alone."""
        if axis is None or not all(
            i == axis or step == 0 or extent == 1
            for i, (step, extent) in enumerate(zip(self.elements.steps, self.shape, strict=True))
        ):
            return None
        start, step, count = self.elements.start, self.elements.steps[axis], self.shape[axis]
        if count == 0:
            return Span(0, 0, 1)
        if not isinstance(step, int) or step == 0 or count == 1:
            return None
        if isinstance(count, int):
            last = start + step * (count - 1)
            return Span(start, last + (1 if step > 0 else -1), step, self.operand)
        return Span(start, start + unrounded(step, count), step, self.operand)


class EvenlySpaced:
    """Reads index tensors of a model whose elements are evenly spaced.

    Follows constants, Range, and what moves or scales them: Cast between int32 and int64, Identity,
    Reshape, Squeeze, Unsqueeze, Expand, Neg, and Add, Sub and Mul with one number. Such index
    arithmetic is taken not to overflow its type. What is said holds for all sizes: while a model is
    lowered, `ostinato.ops.core.progressions` goes further, for it may have a run check them.

    sizes: what `infer_sizes` knows.
    """

    def __init__(self, sizes: Mapping[str, Sizes]) -> None:
        self._sizes = sizes
        self._indices = Indices(sizes)
        # Keyed by value and depth: both operands of a sum may be one value.
        self._lines: dict[tuple[ir.Value | None, int], Line | None] = {}

    def line(self, value: ir.Value | None, depth: int = 0) -> Line | None:
        """The elements of `value`, None unless they are known to be evenly spaced."""
        key = value, depth
        if key not in self._lines:
            self._lines[key] = self._line(value, depth)
        return self._lines[key]

    def _line(self, value: ir.Value | None, depth: int) -> Line | None:
        array = constant_array(value)
        if array is not None:
            return _constant(array)
        node = value.producer() if value is not None else None
        if value is None or node is None or node.domain != "" or depth > _DEEPEST:
            return None
        if value.dtype not in _INTEGERS:
            return None
        if node.op_type == "Range":
            return self._range(node)
        combine, facts = ARITHMETIC.get(node.op_type), facts_of(node.op_type)
        if combine is not None and facts.broadcasts:
            return self._arithmetic(node, combine, depth)
        line = self.line(node.inputs[0], depth + 1) if node.inputs else None
        if line is None or node.op_type in _VIEWS:
            return line and _VIEWS[node.op_type](node, line)
        if node.op_type == "Expand":
            return self._expanded(line, value)
        if facts.casts or node.op_type == "Identity":
            return line
        elements = None if combine is None else combine(line.elements)
        return None if elements is None else Line(elements, line.shape)

    def _range(self, node: ir.Node) -> Line | None:
        # Anything but scalars is an error when the model runs.
        if any(value is None or self._indices.rank(value) != 0 for value in node.inputs):
            return None
        start, limit, step = (self._indices.single(value) for value in node.inputs)
        if start is None or limit is None or not isinstance(step, int) or not step:
            return None
        distance = limit - start if step > 0 else start - limit
        count = maximum(ceildiv(distance, abs(step)), 0)
        return Line(Progression(start, (step,)), (count,), node.inputs[0])

    def _arithmetic(
        self, node: ir.Node, combine: Callable[..., Progression | None], depth: int
    ) -> Line | None:
        """Combine a line and one number."""
        pair = [self.line(operand, depth + 1) or self._number(operand) for operand in node.inputs]
        left, right = pair
        if left is None or right is None:
            return None
        many, one = (left, right) if product(right.shape) == 1 else (right, left)
        if product(many.shape) == 1 or product(one.shape) != 1:
            return None
        rank = max(left.rank, right.rank)
        shape = (1,) * (rank - many.rank) + many.shape
        operands = (repeated(line.elements, line.shape, shape) for line in (left, right))
        elements = combine(*operands)
        return None if elements is None else Line(elements, shape)

    def _number(self, value: ir.Value | None) -> Line | None:
        number, rank = self._indices.single(value), self._indices.rank(value)
        if number is None or rank is None:
            return None
        return Line(Progression(number, (0,) * rank), (1,) * rank)

    def _expanded(self, line: Line, value: ir.Value) -> Line | None:
        sizes = [linear_size(size) for size in self._sizes.get(value.name or "", (None,))]
        shape = tuple(size for size in sizes if size is not None)
        lead = len(shape) - line.rank
        if len(shape) < len(sizes) or lead < 0:
            return None
        # An axis of one element would be repeated.
        if any(own not in (1, n) for own, n in zip(line.shape, shape[lead:], strict=True)):
            return None
        steps = expanded(line.shape, line.elements.steps, shape)
        return Line(Progression(line.elements.start, steps), shape, line.operand)


def is_evenly_spaced(array: np.ndarray) -> bool:
    """Whether `EvenlySpaced` can make something of a constant."""
    line = _constant(array)
    return line is not None and any(line.span(axis) is not None for axis in range(line.rank))


def _constant(array: np.ndarray) -> Line | None:
    if array.dtype not in _INTEGER_ARRAYS:
        return None
    if array.size and not (array.min() >= -_LARGEST and array.max() <= _LARGEST):
        return None
    elements = progression(array)
    return None if elements is None else Line(elements, array.shape)


def _axes(node: ir.Node, rank: int) -> list[int] | None:
    """The axes of Squeeze or Unsqueeze, of the tensor of `rank` axes that has them."""
    axes = named_axes(node)
    return positions_of(axes, rank) if axes else None


def _squeezed(node: ir.Node, line: Line) -> Line | None:
    axes = _axes(node, line.rank)
    if axes is None or any(line.shape[axis] != 1 for axis in axes):
        return None
    steps = dropped(line.elements.steps, axes)
    return Line(Progression(line.elements.start, steps), dropped(line.shape, axes), line.operand)


def _unsqueezed(node: ir.Node, line: Line) -> Line | None:
    axes = _axes(node, line.rank + len(named_axes(node) or ()))
    if axes is None:
        return None
    steps = inserted(line.elements.steps, axes)
    left = iter(line.shape)
    shape = tuple(1 if i in axes else next(left) for i in range(len(steps)))
    return Line(Progression(line.elements.start, steps), shape, line.operand)


def _reshaped(node: ir.Node, line: Line) -> Line | None:
    target = constant_array(optional_input(node, 1))
    # A size of 0 would be that of the input, or none at all.
    if target is None or target.ndim != 1 or not (target != 0).all():
        return None
    shape: list[Size] = target.tolist()
    if -1 in shape:
        left = exact_quotient(product(line.shape), -product(shape))
        shape[shape.index(-1)] = -1 if left is None else left
    if product(shape) != product(line.shape):
        return None
    steps = reshaped(line.shape, line.elements.steps, tuple(shape))
    if steps is None:
        return None
    return Line(Progression(line.elements.start, steps), tuple(shape), line.operand)


_VIEWS: dict[str, Callable[[ir.Node, Line], Line | None]] = {
    "Reshape": _reshaped,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
}
