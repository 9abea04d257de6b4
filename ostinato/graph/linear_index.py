"""Integers that a model computes for indexing, as linear forms of run-time sizes.

Products of two sizes are left out, for they may leave 64 bits. A symbol of a form is the name of a
size (see `ostinato.graph.inferred_sizes`) or `STEP`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.inferred_sizes import Sizes
from ostinato.graph.lower_bounds import constant_truths
from ostinato.graph.size_arithmetic import rows
from ostinato.model.slices import slice_range
from ostinato.model.values import constant_array
from ostinato.sizes.dims import Size, symbol

# The number of the current step of a loop: 0, 1, and so on. Dimensions are known before a run.
STEP = symbol("number of the step", computed=True)

# Longer tensors are data, not shapes; deeper expressions do not occur in index arithmetic, and
# larger constants stand for "until the end".
_MOST_ELEMENTS = 64
_DEEPEST = 40
_LARGEST = 1 << 30

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_INTEGER_ARRAYS = (np.dtype(np.int32), np.dtype(np.int64))


Elements: TypeAlias = "tuple[Size | None, ...]"


def linear_size(size: int | str | None) -> Size | None:
    """One inferred size as a linear form, None when it is unknown."""
    return symbol(size) if isinstance(size, str) else size


class Indices:
    """Reads integer values as linear forms.

    sizes: what `infer_sizes` knows.
    """

    def __init__(self, sizes: Mapping[str, Sizes]) -> None:
        self._sizes = sizes
        self._found: dict[ir.Value, Elements | None] = {}

    def declare(self, value: ir.Value, form: Size) -> None:
        """Take `form` for the one element of `value`, which must not have been read before."""
        self._found[value] = (form,)

    def single(self, value: ir.Value | None) -> Size | None:
        """The form of a value of one element, None when there is none or it is not linear."""
        elements = self._elements(value, 0)
        return elements[0] if elements is not None and len(elements) == 1 else None

    def elements(self, value: ir.Value | None) -> Elements | None:
        """The forms of all elements in order, None for one that is not linear; None if unknown."""
        return self._elements(value, 0)

    def _elements(self, value: ir.Value | None, depth: int) -> Elements | None:
        """The elements in order, None for one that is not linear; None for an unknown number."""
        if value is None or depth > _DEEPEST:
            return None
        if value not in self._found:
            self._found[value] = None
            found = self._read(value, depth + 1)
            self._found[value] = self._unread(value) if found is None else found
        return self._found[value]

    def _unread(self, value: ir.Value) -> Elements | None:
        """As many unknown elements as a value has."""
        sizes = self._sizes.get(value.name or "")
        if value.dtype not in _INTEGERS or sizes is None or len(sizes) > 1:
            return None
        count = sizes[0] if sizes else 1
        if not isinstance(count, int) or count > _MOST_ELEMENTS:
            return None
        return (None,) * count

    def _read(self, value: ir.Value, depth: int) -> Elements | None:
        array = constant_array(value)
        if array is not None:
            return _constant(array)
        node = value.producer()
        if node is None or node.domain != "":
            return None
        if node.op_type == "Shape":
            return self._shape(node)
        if (node.op_type == "Cast" and value.dtype in _INTEGERS) or facts_of(node.op_type).in_order:
            return self._elements(node.inputs[0], depth)
        if node.op_type in ("Add", "Sub", "Mul"):
            pair = [self._elements(operand, depth) for operand in node.inputs]
            return _arithmetic(node.op_type, *pair)
        if node.op_type == "Neg":
            return _arithmetic("Sub", (0,), self._elements(node.inputs[0], depth))
        if node.op_type == "Concat":
            parts = [self._elements(operand, depth) for operand in node.inputs]
            if any(part is None for part in parts) or self._rank(node.inputs[0]) != 1:
                return None
            return tuple(element for part in parts if part is not None for element in part)
        if node.op_type == "Where":
            choices = [self._elements(operand, depth) for operand in node.inputs[1:]]
            return _chosen(constant_truths(node.inputs[0]), *choices)
        if node.op_type in ("Gather", "Slice") and self._rank(node.inputs[0]) == 1:
            return _selected(node, self._elements(node.inputs[0], depth))
        return None

    def _rank(self, value: ir.Value | None) -> int | None:
        sizes = self._sizes.get(value.name or "") if value is not None else None
        return None if sizes is None else len(sizes)

    def _shape(self, node: ir.Node) -> Elements | None:
        source = node.inputs[0]
        sizes = self._sizes.get(source.name or "") if source is not None else None
        if sizes is None:
            return None
        start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", None)
        return tuple(map(linear_size, sizes[start:end]))


def _constant(array: np.ndarray) -> Elements | None:
    if array.dtype not in _INTEGER_ARRAYS or array.size > _MOST_ELEMENTS:
        return None
    return tuple(e if abs(e) <= _LARGEST else None for e in map(int, array.flat))


def _arithmetic(op: str, left: Elements | None, right: Elements | None) -> Elements | None:
    if left is None or right is None:
        return None
    pairs = rows((left, right))
    return None if pairs is None else tuple(_combined(op, a, b) for a, b in pairs)


def _combined(op: str, left: Size | None, right: Size | None) -> Size | None:
    if left is None or right is None:
        return None
    if op == "Mul" and not isinstance(left, int) and not isinstance(right, int):
        return None
    function = facts_of(op).arithmetic
    assert function is not None
    combined: Size = function(left, right)
    return combined


def _chosen(
    truths: Sequence[bool | None], yes: Elements | None, no: Elements | None
) -> Elements | None:
    if None in truths or yes is None or no is None:
        return None
    choices = rows([truths, yes, no])
    return None if choices is None else tuple(a if c else b for c, a, b in choices)


def _selected(node: ir.Node, elements: Elements | None) -> Elements | None:
    """The elements that Gather or Slice picks from a vector, at constant positions."""
    if elements is None:
        return None
    positions: Sequence[int] | np.ndarray
    if node.op_type == "Gather":
        indices = constant_array(node.inputs[1])
        if indices is None:
            return None
        positions = indices.reshape(-1)
    else:
        bounds = _constant_bounds(node)
        if bounds is None:
            return None
        positions = slice_range(*bounds, len(elements))
    if not all(-len(elements) <= int(position) < len(elements) for position in positions):
        return None
    return tuple(elements[int(position)] for position in positions)


def _constant_bounds(node: ir.Node) -> tuple[int, int, int] | None:
    """Start, end and step of a Slice along one axis, None unless all of it is constant."""
    bounds: list[Sequence[int] | None]
    bounds = [node.attributes.get_ints(name) for name in ("starts", "ends", "axes")]
    if len(node.inputs) > 1:
        arrays = [constant_array(value) for value in node.inputs[1:]]
        if any(a is None and v is not None for a, v in zip(arrays, node.inputs[1:], strict=True)):
            return None
        bounds = [None if array is None else array.reshape(-1).tolist() for array in arrays]
    starts, ends, axes, steps = (*bounds, None, None)[:4]
    parts = [list(part or ()) for part in (starts, ends, axes or (0,), steps or (1,))]
    if any(len(part) != 1 for part in parts) or parts[3] == [0]:
        return None
    start, end, _, step = (part[0] for part in parts)
    return start, end, step
