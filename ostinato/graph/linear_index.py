"""Integers that a model computes for indexing, as linear forms of run-time sizes.

Products of two sizes are left out, for they may leave 64 bits. A symbol of a form is the name of a
size (see `ostinato.graph.inferred_sizes`) or `STEP`. Truths are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeAlias, TypeVar

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import Facts, facts_of
from ostinato.model.values import constant_array, optional_input
from ostinato.sizes.dims import Size, is_polynomial, is_symbol, symbol, symbols, terms_of
from ostinato.sizes.slices import slice_range

# The number of the current step of a loop: 0, 1, and so on. Dimensions are known before a run.
STEP = symbol("number of the step", computed=True)

# Longer tensors are data, not shapes; deeper expressions do not occur in index arithmetic, and
# larger numbers stand for "until the end".
_MOST_ELEMENTS = 64
_DEEPEST = 40
_LARGEST = 1 << 30

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_ARRAYS = tuple(map(np.dtype, (np.int32, np.int64, np.bool_)))


Elements: TypeAlias = "tuple[Size | None, ...]"
_Forms: TypeAlias = "tuple[Size, ...]"

E = TypeVar("E")


def linear_size(size: int | str | None) -> Size | None:
    """One inferred size as a linear form, None when it is unknown."""
    return symbol(size) if isinstance(size, str) else size


def named_size(size: Size | None) -> int | str | None:
    """A number or the name of a single symbol; None for any other size."""
    return size if isinstance(size, int) or size is None else str(size) if is_symbol(size) else None


def rows(vectors: Sequence[Sequence[E]]) -> list[tuple[E, ...]] | None:
    """The pairs of elements that broadcasting brings together; None where it cannot."""
    length = next((len(vector) for vector in vectors if len(vector) != 1), 1)
    if any(len(vector) not in (1, length) for vector in vectors):
        return None
    columns = (vector if len(vector) == length else [*vector] * length for vector in vectors)
    return list(zip(*columns, strict=True))


class Indices:
    """Reads integer values, and truths, as linear forms.

    An element that is none is a symbol of its own as long as forms are made of it, which says that
    it is the same wherever it is read.

    sizes: what `infer_sizes` knows.
    """

    def __init__(self, sizes: Mapping[str, Sequence[int | str | None]]) -> None:
        self._sizes = sizes
        self._found: dict[ir.Value, _Forms | None] = {}
        self._unknown: set[str] = set()

    def declare(self, value: ir.Value, form: Size) -> None:
        """Take `form` for the one element of `value`, which must not have been read before."""
        self._found[value] = (form,)

    def single(self, value: ir.Value | None) -> Size | None:
        """The form of a value of one element, None when there is none or it is not linear."""
        elements = self.elements(value)
        return elements[0] if elements is not None and len(elements) == 1 else None

    def elements(self, value: ir.Value | None) -> Elements | None:
        """The forms of all elements in order, None for one that is not linear; None if unknown."""
        forms = self._forms(value, 0)
        return None if forms is None else tuple(f if self._is_known(f) else None for f in forms)

    def numbers(self, value: ir.Value | None) -> list[int] | None:
        """The elements in order, however large; None unless all are numbers."""
        forms = self._forms(value, 0)
        numbers = [form for form in forms or () if isinstance(form, int)]
        return None if forms is None or len(numbers) < len(forms) else numbers

    def rank(self, value: ir.Value | None) -> int | None:
        """The number of axes of a value, None where it is not known."""
        sizes = self._sizes.get(value.name or "") if value is not None else None
        return None if sizes is None else len(sizes)

    def _is_known(self, form: Size) -> bool:
        is_small = all(abs(count) <= _LARGEST for _, count in terms_of(form))
        return is_small and self._unknown.isdisjoint(symbols(form))

    def _forms(self, value: ir.Value | None, depth: int) -> _Forms | None:
        """The elements in order; None for an unknown number of them."""
        if value is None or depth > _DEEPEST:
            return None
        if value not in self._found:
            self._found[value] = None
            found = self._read(value, depth + 1)
            found = self._unread(value) if found is None else found
            if found is not None:
                self._found[value] = tuple(
                    self._symbol(value, i) if form is None else form for i, form in enumerate(found)
                )
        return self._found[value]

    def _symbol(self, value: ir.Value, index: int) -> Size:
        """An element of which nothing is known."""
        name = f"element {index} of {value.name}"
        self._unknown.add(name)
        return symbol(name, signed=True, computed=True)

    def _unread(self, value: ir.Value) -> Elements | None:
        """As many unknown elements as a value has."""
        sizes = self._sizes.get(value.name or "")
        if value.dtype not in (*_INTEGERS, ir.DataType.BOOL) or sizes is None or len(sizes) > 1:
            return None
        count = sizes[0] if sizes else 1
        if not isinstance(count, int) or count > _MOST_ELEMENTS:
            return None
        return (None,) * count

    def _read(self, value: ir.Value, depth: int) -> Elements | None:
        node = value.producer()
        if value.is_initializer():
            is_small = value.const_value is not None and value.const_value.size <= _MOST_ELEMENTS
            array = constant_array(value) if is_small else None
            known = array is not None and array.dtype in _ARRAYS
            return tuple(map(int, array.flat)) if array is not None and known else None
        if node is None or node.domain != "":
            return None
        if node.op_type == "Shape":
            return self._shape(node)
        facts = facts_of(node.op_type)
        if (facts.casts and value.dtype in _INTEGERS) or facts.in_order:
            return self._forms(node.inputs[0], depth)
        if facts.elementwise and facts.arithmetic is not None and not facts.casts:
            return self._computed(node, facts, depth)
        if node.op_type == "Concat":
            parts = [self._forms(operand, depth) for operand in node.inputs]
            if any(part is None for part in parts) or self.rank(node.inputs[0]) != 1:
                return None
            return tuple(element for part in parts if part is not None for element in part)
        if node.op_type in ("Gather", "Slice") and self.rank(node.inputs[0]) == 1:
            return self._selected(node, self._forms(node.inputs[0], depth))
        return None

    def _shape(self, node: ir.Node) -> Elements | None:
        source = node.inputs[0]
        sizes = self._sizes.get(source.name or "") if source is not None else None
        if sizes is None:
            return None
        start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", None)
        return tuple(map(linear_size, sizes[start:end]))

    def _computed(self, node: ir.Node, facts: Facts, depth: int) -> Elements | None:
        """Compute the elements of a node's result; None for arithmetic that is not linear."""
        operands = [self._forms(operand, depth) for operand in node.inputs]
        known = [operand for operand in operands if operand is not None]
        # Rows of vectors combine element by element; a row of more axes combines with numbers.
        deep = sum((self.rank(operand) or 0) > 1 for operand in node.inputs)
        meeting = rows(known) if len(known) == len(operands) else None
        if meeting is None or deep > 1 or node.attributes.get_int("fmod", False):
            return None
        types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
        limits = np.iinfo(np.int32 if ir.DataType.INT32 in types else np.int64)
        results = (_arithmetic(facts, row) for row in meeting)
        return tuple(
            None if isinstance(n, int) and not limits.min <= n <= limits.max else n for n in results
        )

    def _selected(self, node: ir.Node, elements: _Forms | None) -> Elements | None:
        """The elements that Gather or Slice picks from a vector, at known positions."""
        positions: Sequence[int] | None
        if node.op_type == "Gather":
            positions = self.numbers(node.inputs[1])
        else:
            bounds, count = self._bounds(node), len(elements or ())
            positions = None if bounds is None else slice_range(*bounds, count)
        if elements is None or positions is None:
            return None
        if not all(-len(elements) <= position < len(elements) for position in positions):
            return None
        return tuple(elements[position] for position in positions)

    def _bounds(self, node: ir.Node) -> tuple[int, int, int] | None:
        """Start, end and step of a Slice along the one axis, None unless all of it is known."""
        given: list[Sequence[int] | None]
        given = [node.attributes.get_ints(name) for name in ("starts", "ends", "axes")]
        if len(node.inputs) > 1:
            values = [optional_input(node, i) for i in range(1, 5)]
            given = [self.numbers(value) for value in values]
            if any(n is None and v is not None for n, v in zip(given, values, strict=True)):
                return None
        starts, ends, axes, steps = (*given, None)[:4]
        parts = [list(part or ()) for part in (starts, ends, axes or (0,), steps or (1,))]
        if any(len(part) != 1 for part in parts) or parts[2][0] not in (0, -1) or parts[3] == [0]:
            return None
        start, end, _, step = (part[0] for part in parts)
        return start, end, step


def _arithmetic(facts: Facts, row: tuple[Size, ...]) -> Size | None:
    """A linear form of the elements of a row; None for any other, and for a quotient by 0."""
    function = facts.arithmetic
    assert function is not None
    if facts.computes and not facts.total and not facts.tests and row[-1] == 0:
        return None
    of_any_number = facts.broadcasts and not facts.moves
    form: Size = reduce(function, row) if of_any_number else function(*row)
    is_linear = is_polynomial(form) and all(len(atoms) <= 1 for atoms, _ in terms_of(form))
    return form if is_linear else None
