"""Evenly spaced indices, and the positions of an axis that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ostinato.graph.inferred_sizes import Sizes
from ostinato.graph.linear_index import Indices, linear_size
from ostinato.model.values import constant_array
from ostinato.sizes.dims import Size, is_nonnegative

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_INTEGER_ARRAYS = (np.dtype(np.int32), np.dtype(np.int64))
# Larger numbers are no positions; below, no sum or product here leaves 64 bits.
_LARGEST = 1 << 30
# Longer chains of index arithmetic do not occur.
_DEEPEST = 40
_EMPTY = (0, 0, 1)


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

    @staticmethod
    def of(start: Size, stop: Size, step: int, operand: ir.Value | None = None) -> Span:
        distance = stop - start
        if not isinstance(distance, int):
            return Span(start, stop, step, operand)
        count = len(range(0, distance, step))
        if not count:
            return Span(*_EMPTY)
        last = start + step * (count - 1)
        return Span(start, last + (1 if step > 0 else -1), step, operand)

    def scaled(self, factor: int, offset: Size) -> Span:
        """Each integer times `factor`, which is not 0, plus `offset`."""
        if factor == 1 and offset == 0:
            return self
        start, stop = (bound * factor + offset for bound in (self.start, self.stop))
        return Span.of(start, stop, self.step * factor)

    @property
    def count(self) -> int | None:
        """How many integers there are, None when it depends on sizes."""
        distance = self.stop - self.start
        return len(range(0, distance, self.step)) if isinstance(distance, int) else None

    @property
    def length(self) -> Size | None:
        """How many integers there are as a linear form, None when it is not known to be one."""
        if self.count is not None:
            return self.count
        distance = (self.stop - self.start) * self.step
        return distance if abs(self.step) == 1 and is_nonnegative(distance) else None

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
    """A tensor of `rank` axes that holds `span` along `axis`; its other axes have one element."""

    span: Span
    rank: int = 1
    axis: int = 0


class EvenlySpaced:
    """Reads index tensors of a model whose elements are evenly spaced along one axis.

    Follows constants, Range, and what moves or scales them: Cast between int32 and int64, Identity,
    Reshape, Squeeze, Unsqueeze, Neg, and Add, Sub and Mul with one number. Such index arithmetic is
    taken not to overflow its type.

    sizes: what `infer_sizes` knows.
    """

    def __init__(self, sizes: Mapping[str, Sizes]) -> None:
        self._sizes = sizes
        self._indices = Indices(sizes)
        # By value and depth: both operands of a sum may be one value.
        self._lines: dict[tuple[ir.Value | None, int], Line | None] = {}

    def line(self, value: ir.Value | None, depth: int = 0) -> Line | None:
        """The elements of `value`, None unless they are evenly spaced and at least 2 or unknown."""
        key = value, depth
        if key not in self._lines:
            self._lines[key] = self._line(value, depth)
        return self._lines[key]

    def _line(self, value: ir.Value | None, depth: int) -> Line | None:
        array = constant_array(value)
        if array is not None:
            return _constant_line(array)
        node = value.producer() if value is not None else None
        if value is None or node is None or node.domain != "" or depth > _DEEPEST:
            return None
        if value.dtype not in _INTEGERS:
            return None
        if node.op_type == "Range":
            return self._range(node)
        if node.op_type in ("Add", "Sub", "Mul"):
            return self._arithmetic(node, depth)
        if node.op_type not in ("Cast", "Identity", "Neg", "Reshape", "Squeeze", "Unsqueeze"):
            return None
        line = self.line(node.inputs[0], depth + 1)
        if line is None:
            return None
        match node.op_type:
            case "Reshape":
                return _reshaped(node, line)
            case "Squeeze":
                return _squeezed(node, line)
            case "Unsqueeze":
                return _unsqueezed(node, line)
            case "Neg":
                return replace(line, span=line.span.scaled(-1, 0))
        return line

    def spread(self, value: ir.Value, rank: int, axis: int) -> Span | None:
        """The elements of a tensor of `rank` axes that depend on their position on `axis` alone."""
        array = constant_array(value)
        if array is not None:
            return _constant_spread(array, rank, axis)
        node = value.producer()
        line = self.line(value)
        if line is None and node is not None and (node.op_type, node.domain) == ("Expand", ""):
            line = self.line(node.inputs[0])
        sizes = self._sizes.get(value.name or "")
        if line is None or sizes is None or len(sizes) != rank:
            return None
        is_along = rank - line.rank + line.axis == axis
        # An axis of one element would be repeated.
        return line.span if is_along and line.span.length == linear_size(sizes[axis]) else None

    def _range(self, node: ir.Node) -> Line | None:
        # Anything but scalars is an error when the model runs.
        if any(value is None or self._rank(value) != 0 for value in node.inputs):
            return None
        start, limit, delta = (self._indices.single(value) for value in node.inputs)
        if start is None or limit is None or not isinstance(delta, int) or not delta:
            return None
        span = Span.of(start, limit, delta, node.inputs[0])
        return None if span.count == 1 else Line(span)

    def _arithmetic(self, node: ir.Node, depth: int) -> Line | None:
        left, right = node.inputs
        line, other, is_left = self.line(left, depth + 1), right, True
        if line is None:
            line, other, is_left = self.line(right, depth + 1), left, False
        number, rank = self._indices.single(other), self._rank(other)
        if line is None or number is None or rank is None:
            return None
        if node.op_type == "Mul":
            if not isinstance(number, int) or not number:
                return None
            span = line.span.scaled(number, 0)
        elif node.op_type == "Add":
            span = line.span.scaled(1, number)
        elif is_left:
            span = line.span.scaled(1, -number)
        else:
            span = line.span.scaled(-1, number)
        return Line(span, max(rank, line.rank), line.axis + max(rank - line.rank, 0))

    def _rank(self, value: ir.Value | None) -> int | None:
        sizes = self._sizes.get(value.name or "") if value is not None else None
        return None if sizes is None else len(sizes)


def is_evenly_spaced(array: np.ndarray) -> bool:
    """Whether `EvenlySpaced` can make something of a constant."""
    axes = range(array.ndim)
    return array.shape == (0,) or any(_constant_spread(array, array.ndim, a) for a in axes)


def _constant_line(array: np.ndarray) -> Line | None:
    if array.dtype not in _INTEGER_ARRAYS:
        return None
    if array.shape == (0,):
        return Line(Span(*_EMPTY))
    axes = [axis for axis, size in enumerate(array.shape) if size != 1]
    if len(axes) != 1 or not array.size:
        return None
    span = _constant_span(array.reshape(-1))
    return None if span is None else Line(span, array.ndim, axes[0])


def _constant_spread(array: np.ndarray, rank: int, axis: int) -> Span | None:
    if array.dtype not in _INTEGER_ARRAYS or array.ndim != rank or array.size < 2:
        return None
    lines = np.moveaxis(array, axis, -1)
    first = lines[(0,) * (rank - 1)]
    return _constant_span(first) if first.size > 1 and (lines == first).all() else None


def _constant_span(vector: np.ndarray) -> Span | None:
    """The span of at least two numbers, None when they are not evenly spaced."""
    if not (vector.min() >= -_LARGEST and vector.max() <= _LARGEST):
        return None
    first, step = int(vector[0]), int(vector[1]) - int(vector[0])
    if not step or not np.array_equal(vector, first + step * np.arange(vector.size)):
        return None
    return Span.of(first, first + step * vector.size, step)


def _axes(node: ir.Node, rank: int) -> list[int] | None:
    """The axes of Squeeze or Unsqueeze, of the tensor of `rank` axes that has them."""
    array = constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    given = node.attributes.get_ints("axes") if len(node.inputs) == 1 else None
    axes = given if array is None else array.reshape(-1).tolist()
    if not axes or not all(-rank <= axis < rank for axis in axes):
        return None
    return [axis % rank for axis in axes]


def _squeezed(node: ir.Node, line: Line) -> Line | None:
    axes = _axes(node, line.rank)
    if axes is None or line.axis in axes:
        return None
    return Line(line.span, line.rank - len(axes), line.axis - sum(a < line.axis for a in axes))


def _unsqueezed(node: ir.Node, line: Line) -> Line | None:
    count = constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    given = node.attributes.get_ints("axes") if count is None else count.reshape(-1).tolist()
    rank = line.rank + len(given or ())
    axes = _axes(node, rank)
    if axes is None:
        return None
    kept = [axis for axis in range(rank) if axis not in axes]
    return Line(line.span, rank, kept[line.axis])


def _reshaped(node: ir.Node, line: Line) -> Line | None:
    target = constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    if target is None or target.ndim != 1:
        return None
    places = [axis for axis, size in enumerate(target.tolist()) if size != 1]
    if len(places) != 1:
        return None
    # A size of 0 would be that of the input, or none at all.
    size = int(target[places[0]])
    if size != -1 and (size < 1 or size != line.span.count):
        return None
    return Line(line.span, len(target), places[0])
