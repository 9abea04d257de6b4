"""A node whose operator has a definition: its operands and attributes by name, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.errors import ModelError, ShapeError
from ostinato.graph.writer import Array
from ostinato.model.attributes import Attributes, describe
from ostinato.model.schema import default_of, schema_of
from ostinato.model.values import constant_array, elements, optional_input

# In the definitions an operand that may be left out.
Maybe: TypeAlias = "ir.Value | None"
Dim: TypeAlias = "int | ir.SymbolicDim | None"


class Given:
    """Operands and attributes of `node`, by the names of its schema.

    names: of the operands, in order. infer: finds the shape of a value that has none; called when
    it is needed. opset: the version of the operator's domain.
    """

    def __init__(self, node: ir.Node, infer: Callable[[ir.Value], object], opset: int) -> None:
        schema = schema_of(node.op_type, node.domain, opset)
        assert schema is not None
        self.node = node
        self._infer, self._schema, self._opset = infer, schema, opset
        self._reader = Attributes(node)
        self.names = [parameter.name for parameter in schema.inputs]

    def input(self, name: str) -> Maybe:
        """The operand of this name, None where it is left out."""
        position = self.names.index(name)
        return optional_input(self.node, position)

    def __getitem__(self, name: str) -> ir.Value:
        value = self.input(name)
        if value is None:
            raise self._reader.refuse(f"input {name!r} is required")
        return value

    def attribute(self, name: str) -> Any:
        """An attribute, or the default of the schema, or None."""
        declared: Any = self._schema.attributes[name]
        kind = declared.type.name.lower()
        return getattr(self._reader, kind)(name, default_of(self._schema, name))

    def tensor(self, name: str) -> Array:
        """A required attribute that is a tensor."""
        return elements(self._reader.tensor(name))

    def constant(self, name: str) -> Array | None:
        """The operand as an array, None where it is left out or no constant."""
        return constant_array(self.input(name))

    def refuse_unless(self, name: str, *supported: Any) -> None:
        """Raise `UnsupportedError` where the attribute is none of `supported`."""
        value = self.attribute(name)
        if value not in supported:
            expected = " or ".join(map(repr, supported))
            raise self._reader.refuse(f"attribute {name!r} is {value!r}, expected {expected}")

    def refuse_input(self, *names: str) -> None:
        """Raise `UnsupportedError` where one of these operands is given."""
        for name in names:
            if self.input(name) is not None:
                raise self._reader.refuse(f"input {name!r} is not supported")

    def refuse(self, reason: str) -> Exception:
        """The error to raise for this node."""
        return self._reader.refuse(reason)

    def finish(self) -> None:
        """Raise `UnsupportedError` for attributes that the definition did not read."""
        self._reader.finish()

    def wanted(self, position: int) -> bool:
        """Whether something may read this output."""
        outputs = self.node.outputs
        return position < len(outputs) and bool(outputs[position].name)

    def rank(self, value: ir.Value) -> int:
        """The number of axes of a value, wherever it can be inferred."""
        return len(self._shape(value))

    def has_rank(self, value: ir.Value) -> bool:
        """Whether the number of axes of a value can be inferred."""
        if value.shape is None:
            self._infer(value)
        return value.shape is not None

    def size(self, value: ir.Value, axis: int) -> int | None:
        """The size of an axis, None where only a run tells it."""
        size = self._shape(value)[axis]
        return size if isinstance(size, int) else None

    def dims(self, value: ir.Value) -> tuple[Dim, ...]:
        """The sizes of a value, wherever its rank can be inferred."""
        return tuple(self._shape(value))

    def _shape(self, value: ir.Value) -> ir.Shape:
        if not self.has_rank(value) or value.shape is None:
            raise self._reader.refuse(f"the rank of {value.name!r} is not known")
        return value.shape

    def single(self, *names: str) -> None:
        """Raise `ShapeError` where one of these operands, if it is given, is more than a number."""
        for name in names:
            value = self.input(name) if name in self.names else None
            given = () if value is None or value.shape is None else value.shape.dims
            sizes = [size for size in given if isinstance(size, int)]
            if len(sizes) == len(given) and math.prod(sizes) != 1:
                raise ShapeError(
                    f"node {describe(self.node)!r} ({self.node.op_type}): input {name!r} has shape "
                    f"{sizes}, expected a scalar"
                )

    def check_scales(self) -> None:
        """Raise `ModelError` for constant scales that are NaN or infinite."""
        for name in self.names:
            scales = self.constant(name) if name.lower().endswith(("scale", "scales")) else None
            if scales is None or scales.dtype.kind != "f":
                continue
            wrong = scales[~np.isfinite(scales)]
            if wrong.size:
                raise ModelError(
                    f"node {describe(self.node)!r} ({self.node.op_type}): input {name!r} has "
                    f"{wrong.flat[0]}, expected finite numbers"
                )

    def sized(self, name: str, array: Array, *sizes: int) -> Array:
        """The array of the operand of this name in these sizes.

        Raises `ShapeError` where it has another number of elements.
        """
        if array.size != math.prod(sizes):
            raise self.wrong_shape(name, array, str(list(sizes)))
        return array.reshape(sizes)

    def wrong_shape(self, name: str, array: Array, expected: str) -> ShapeError:
        """The error to raise for an operand of another shape than `expected`."""
        return ShapeError(
            f"node {describe(self.node)!r} ({self.node.op_type}): input {name!r} has shape "
            f"{list(array.shape)}, expected {expected}"
        )
