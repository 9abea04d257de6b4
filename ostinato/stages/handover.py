"""Values that pass from one segment of a model to later ones, and the facts known of them."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.codegen.artifact import Argument
from ostinato.element_types import numpy_dtype
from ostinato.model.values import constant_tensor, tensor_of
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.known_sizes import object_array
from ostinato.ops.core.tensor import Absent, Pieces, Stack, Tensor, TensorSequence
from ostinato.ops.lowering import Scope
from ostinato.sizes.dims import Size, computed, symbol
from ostinato.sizes.strides import Shape
from ostinato.sizes.substitution import substitute
from ostinato.stages import values
from ostinato.stages.values import dtype_of_value, shape_of, size_symbols

# The elements of a sequence, with their dtype.
Elements: TypeAlias = "tuple[str, tuple[ir.Value, ...]]"


class PieceValues(NamedTuple):
    """A sequence whose elements, of different lengths along an axis, lie in one tensor."""

    rows: ir.Value
    borders: ir.Value
    axis: int


class Handover:
    """Values that finished segments pass on to later ones, with their facts.

    available: the tensors, with dtype and shape.
    sequences: the form of each sequence: a tuple of tensors with their dtype, the rows of a tensor,
        such rows with the borders between elements and the axis along which these differ, or
        nothing (an optional).
    known: the tensors whose elements are numbers or sizes. size_sources: the value that tells a
        size.
    data_dependent: the sizes that fallback stages, values or kernels tell.
    constants: values that are the same in every run, by name, for the runtime.
    """

    def __init__(self, shape_operands: Set[ir.Value]) -> None:
        self._shape_operands = shape_operands
        self.available: dict[ir.Value, tuple[str, Shape]] = {}
        self.sequences: dict[ir.Value, Absent | ir.Value | PieceValues | Elements] = {}
        self.known: dict[ir.Value, Tensor] = {}
        self.size_sources: dict[str, ir.Value] = {}
        self.data_dependent: set[str] = set()
        self.constants: dict[str, ir.TensorProtocol] = {}

    def make_available(self, value: ir.Value) -> None:
        """Let later segments read a value with its declared dtype and shape, if it has both."""
        dtype, shape = dtype_of_value(value), shape_of(value)
        if dtype is not None and shape is not None:
            self.set_available(value, dtype, shape)

    def set_available(self, value: ir.Value, dtype: str, shape: Shape) -> None:
        """Let later segments read a value."""
        self.available[value] = (dtype, shape)
        for size in shape:
            self.size_sources.setdefault(str(size), value)

    def declare(self, builder: Builder, scope: Scope, value: ir.Value) -> None:
        """Let the current segment use an outside value: as known elements, or as an input."""
        if scope.get(value) is not None:
            return
        if value in self.known:
            for name in size_symbols(self.known[value]):
                self.declare(builder, scope, self.size_sources[name])
            scope[value] = self.known[value]
        elif value in self.sequences:
            self._declare_sequence(builder, scope, value)
        elif value in self.available:
            dtype, shape = self.available[value]
            is_shape_operand = value in self._shape_operands
            tensor = builder.input(value.name or "", dtype, shape, is_shape_operand)
            scope[value] = tensor
            for name in size_symbols(tensor):
                self.size_sources[name] = value
                self.data_dependent.add(name)

    def _declare_sequence(self, builder: Builder, scope: Scope, value: ir.Value) -> None:
        form = self.sequences[value]
        if isinstance(form, Absent):
            scope[value] = form
            return
        if isinstance(form, ir.Value):
            rows = self._declared(builder, scope, form)
            scope[value] = Stack(rows.dtype, rows)
        elif isinstance(form, PieceValues):
            rows, borders = (self._declared(builder, scope, part) for part in form[:2])
            scope[value] = Pieces(rows.dtype, rows, borders, form.axis)
        else:
            dtype, parts = form
            elements = [self._declared(builder, scope, part) for part in parts]
            scope[value] = TensorSequence(dtype, tuple(elements))

    def _declared(self, builder: Builder, scope: Scope, part: ir.Value) -> Tensor:
        self.declare(builder, scope, part)
        found = scope.get(part)
        assert isinstance(found, Tensor)
        return found

    def keep_known(self, scope: Scope, value: ir.Value) -> bool:
        """Keep the known elements of a value; return whether these are all of it, in every run."""
        lowered = scope.get(value)
        if not isinstance(lowered, Tensor) or lowered.known is None:
            return False
        names = size_symbols(lowered)
        if names <= self.size_sources.keys():
            known = lowered.known
            if names:
                # Sizes that kernels have computed are known before later segments begin.
                known = np.empty(known.shape, object)
                known.flat[:] = object_array([_plain(n) for n in lowered.known.flat])
            self.known[value] = Tensor(lowered.dtype, lowered.shape, None, (), known)
        return not names

    def keep_constants(self, values: Iterable[ir.Value]) -> None:
        """Give the runtime those of the values that are the same in every run."""
        for value in values:
            tensor = self.tensor(value)
            if tensor is not None:
                self.constants[value.name or ""] = tensor

    def tensor(self, value: ir.Value) -> ir.TensorProtocol | None:
        """The elements of a value that are the same in every run."""
        tensor, known = constant_tensor(value), self.known.get(value)
        if tensor is not None or known is None or size_symbols(known):
            return tensor
        return tensor_of(np.asarray(known.known, numpy_dtype(known.dtype)), value.name)

    def argument(self, value: ir.Value) -> Argument:
        """Declare a value that earlier parts make."""
        if value not in self.available:
            return values.argument(value)
        dtype, shape = self.available[value]
        sizes = tuple(n if isinstance(n, int) else str(n) for n in shape)
        return Argument(value.name or "", dtype, sizes)


def _plain(size: Size) -> Size:
    """Put symbols that are known before a run in place of those that kernels compute."""
    return substitute(size, {name: symbol(name) for name in computed(size)})
