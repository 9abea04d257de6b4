"""A node whose operator is being replaced, with its operands and attributes by name."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx.helper
import onnx_ir as ir

from ostinato.errors import ModelError, ShapeError
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import BRANCHES
from ostinato.model.schema import schema_of
from ostinato.model.values import constant_array, optional_input

INT64, INT32, FLOAT = ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT
# In the definitions an operand that may be left out.
Maybe: TypeAlias = "ir.Value | None"
Dim: TypeAlias = "int | ir.SymbolicDim | None"


class Call:
    """Operands and attributes of `node`, by the names of its schema, and a writer of new nodes.

    names: of the operands, in order. infer: finds the shapes of values that have none; called when
    one is needed. block: channels in a block of images that lie in blocks. opset: the version of
    the operator's domain.
    """

    def __init__(
        self,
        node: ir.Node,
        writer: Writer,
        infer: Callable[[], object],
        block: int = 1,
        opset: int = 1,
    ) -> None:
        schema = schema_of(node.op_type, node.domain, opset)
        assert schema is not None
        self.node, self.writer, self.block = node, writer, block
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
        default = declared.default_value
        given = _value(default) if default.name else None
        return getattr(self._reader, kind)(name, given)

    def tensor(self, name: str) -> Array:
        """A required attribute that is a tensor."""
        return np.asarray(self._reader.tensor(name).numpy())

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
            self._infer()
        return value.shape is not None

    def size(self, value: ir.Value, axis: int) -> int | None:
        """The size of an axis, None where only a run tells it."""
        size = self._shape(value)[axis]
        return size if isinstance(size, int) else None

    def dims(self, value: ir.Value) -> tuple[Dim, ...]:
        """The sizes of a value, wherever its rank can be inferred."""
        return tuple(self._shape(value))

    def shaped(self, value: ir.Value, *dims: Dim) -> ir.Value:
        """Note the sizes of a value that this definition has made."""
        value.shape = ir.Shape(dims)
        return value

    def _shape(self, value: ir.Value) -> ir.Shape:
        if not self.has_rank(value) or value.shape is None:
            raise self._reader.refuse(f"the rank of {value.name!r} is not known")
        return value.shape

    def op(
        self,
        op_type: str,
        *operands: Operand | float,
        dtype: ir.DataType | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """Write a node with one output, which has the element type of the first value.

        Numbers become scalars of that type.
        """
        return self.ops(op_type, 1, *operands, dtype=dtype, **attributes)[0]

    def ops(
        self,
        op_type: str,
        count: int,
        *operands: Operand | float,
        dtype: ir.DataType | None = None,
        **attributes: Any,
    ) -> tuple[ir.Value, ...]:
        """Write a node with `count` outputs; attributes that are None are left out."""
        values = [x for x in operands if isinstance(x, ir.Value)]
        arrays = [
            x if isinstance(x, ir.Value | np.ndarray | np.generic) else self.number(x, values[0])
            for x in operands
        ]
        dtype = values[0].dtype if dtype is None else dtype
        given = {name: value for name, value in attributes.items() if value is not None}
        roles = [op_type if count == 1 else f"{op_type}_{i}" for i in range(count)]
        outputs = [self.writer.declare(role, None, dtype) for role in roles]
        self.writer.node(op_type, arrays, outputs, given, role=f"{op_type}:node")
        return tuple(outputs)

    def either(self, holds: ir.Value, *ways: Callable[[Call], ir.Value]) -> ir.Value:
        """What the first of two functions writes where a condition holds, else what the other does.

        They write with the call that they are given, into the branches of an If.
        """
        branches, results = [], []
        for name, write in zip(BRANCHES, ways, strict=True):
            inner = copy.copy(self)
            inner.writer = self.writer.within(name)
            results.append(write(inner))
            graph = ir.Graph(
                [], results[-1:], nodes=inner.writer.nodes, name=self.writer.name(name)
            )
            branches.append(ir.AttrGraph(name, graph))
        output = self.writer.declare("either", None, results[0].dtype)
        self.writer.node("If", [holds], [output], branches, role="either:If")
        return output

    def repeat(
        self,
        most: int,
        state: ir.Value,
        step: Callable[[Call, ir.Value], tuple[ir.Value, ir.Value]],
    ) -> ir.Value:
        """The state behind up to `most` steps, which a function writes into the body of a Loop.

        It is given a call to write with and the state before a step; it returns whether there is
        another one, a boolean scalar, and the state behind the step, of the same shape.
        """
        inner = copy.copy(self)
        inner.writer = self.writer.within("body")
        number = inner.writer.declare("number", [], INT64)
        goes = inner.writer.declare("goes", [], ir.DataType.BOOL)
        before = inner.writer.declare("before", None, state.dtype)
        output = self.writer.declare("repeated", None, state.dtype)
        before.shape = output.shape = state.shape
        results = step(inner, before)
        body = ir.Graph(
            [number, goes, before], results, nodes=inner.writer.nodes, name=self.writer.name("body")
        )
        operands: list[Operand] = [np.array(most), np.array(True), state]
        bodies = [ir.AttrGraph("body", body)]
        self.writer.node("Loop", operands, [output], bodies, role="repeated:Loop")
        return output

    def places(self, x: ir.Value, texts: Sequence[str]) -> ir.Value:
        """The place of each element of `x` among texts, or -1."""
        output = self.writer.declare("places", None, INT64)
        output.shape = x.shape
        keys: dict[str, Any] = {"classes_strings": list(texts)}
        if self._opset > 1:
            keys = {"keys_strings": list(texts), "values_int64s": list(range(len(texts)))}
        about = {**keys, "default_int64": -1}
        self.writer.node("LabelEncoder", [x], [output], about, domain="ai.onnx.ml")
        return output

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`x` in another element type."""
        return x if x.dtype == dtype else self.op("Cast", x, dtype=dtype, to=int(dtype))

    def number(self, number: float, like: ir.Value) -> Array:
        """A scalar in the element type of `like`."""
        assert like.dtype is not None
        return np.array(number, like.dtype.numpy())

    def reduce(self, op_type: str, x: Operand, axes: Sequence[int], keepdims: bool) -> ir.Value:
        """A reduction over `axes`, in the spelling of the model's operator set."""
        since = 13 if op_type == "ReduceSum" else 18
        if self.writer.opset >= since:
            return self.op(op_type, x, np.array(axes, np.int64), keepdims=int(keepdims))
        return self.op(op_type, x, axes=list(axes), keepdims=int(keepdims))

    def reshape(self, x: ir.Value, *sizes: int | ir.Value) -> ir.Value:
        """`x` with these sizes: numbers, 0 for that of the same axis, -1, int64 values `[1]`."""
        parts = [np.array([s], np.int64) if isinstance(s, int) else s for s in sizes]
        return self.op("Reshape", x, self.writer.concat(parts, 0, "sizes"))

    def slice(self, x: ir.Value, start: int, stop: int, axis: int) -> ir.Value:
        """The elements from `start` to before `stop` along an axis."""
        part = self.op("Slice", x, *(np.array([n], np.int64) for n in (start, stop, axis)))
        if x.shape is not None and isinstance(size := x.shape[axis], int):
            dims = [*x.shape]
            dims[axis] = min(stop, size) - start
            part.shape = ir.Shape(dims)
        return part

    def constant(self, name: str) -> Array | None:
        """The operand as an array, None where it is left out or no constant."""
        return constant_array(self.input(name))

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


def _value(attribute: Any) -> Any:
    """The value of an attribute's default, which is a number or a text."""
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


Definition: TypeAlias = "Callable[[Call], Sequence[ir.Value | None]]"
