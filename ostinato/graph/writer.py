"""Writes nodes one after another, each valid in the opset of the model.

An *operand* is an array for as long as its elements are known while the pass runs, and a value of
the graph from then on. Methods that move or add elements do so at once on arrays, and write a
node otherwise, so that constant weights are laid out when the model is rewritten and dynamic ones
when it runs, by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ostinato.limits import MOST_STORED
from ostinato.model.names import Names
from ostinato.model.values import static_dims, tensor_of

Array: TypeAlias = npt.NDArray[Any]
Operand: TypeAlias = "Array | ir.Value"
# What moves an operand gives a value for a value.
_X = TypeVar("_X", ir.Value, "Array | ir.Value")


class Writer:
    """Collects in `nodes` what is written; constants become initializers of the graph `root`.

    prefix: beginning of every new name, usually the name of the node that is being replaced.
    dtype: element type of the values written unless a method is told another.
    """

    def __init__(
        self, root: ir.Graph, names: Names, opset: int, dtype: ir.DataType, prefix: str
    ) -> None:
        self.nodes: list[ir.Node] = []
        self.opset, self.dtype, self.prefix = opset, dtype, prefix
        self._root, self._names = root, names
        self._constants: dict[tuple[Any, ...] | None, ir.Value] = {}

    def within(self, part: str) -> Writer:
        """A writer of a scope inside this one, with `part` added to the prefix."""
        inner = Writer(self._root, self._names, self.opset, self.dtype, f"{self.prefix}/{part}")
        inner._constants = self._constants
        return inner

    def name(self, role: str) -> str:
        """A new unique name that says which part of which node a thing is."""
        return self._names.fresh(f"{self.prefix}/{role}")

    def declare(
        self, role: str, shape: Sequence[int | None] | None, dtype: ir.DataType | None = None
    ) -> ir.Value:
        """A new value without a producer, for the inputs of a body."""
        return ir.Value(
            name=self.name(role),
            shape=None if shape is None else ir.Shape(shape),
            type=ir.TensorType(dtype or self.dtype),
        )

    def op(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        role: str,
        attributes: Mapping[str, Any] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Write a node with one output and return the output."""
        return self.ops(op_type, inputs, (role,), attributes, dtype)[0]

    def ops(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        roles: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        dtype: ir.DataType | None = None,
    ) -> tuple[ir.Value, ...]:
        """Write a node with one output for each of `roles` and return the outputs."""
        outputs = [self.declare(role, None, dtype) for role in roles]
        self.node(op_type, inputs, outputs, attributes, role=f"{roles[0]}:{op_type}")
        return tuple(outputs)

    def node(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        outputs: Sequence[ir.Value],
        attributes: Mapping[str, Any] | Sequence[ir.Attr] | None = None,
        *,
        domain: str = "",
        role: str = "",
    ) -> ir.Node:
        """Write a node that makes these values, which have no maker yet."""
        if not isinstance(attributes, Sequence):
            attributes = ir.convenience.convert_attributes(attributes or {})
        operands = [self.value(operand, "constant") for operand in inputs]
        name = self.name(role or op_type)
        node = ir.Node(domain, op_type, operands, attributes, outputs=outputs, name=name)
        self.nodes.append(node)
        return node

    def value(self, operand: Operand, role: str) -> ir.Value:
        """`operand` as a value: equal small arrays of one writer share an initializer."""
        if isinstance(operand, ir.Value):
            return operand
        key = _contents(operand) if operand.size <= 16 else None
        if key in self._constants:
            return self._constants[key]
        name, dims = self.name(role), ir.Shape(operand.shape)
        tensor = tensor_of(operand, name)
        constant = ir.Value(
            name=name,
            shape=dims,
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self._root.register_initializer(constant)
        if key is not None:
            self._constants[key] = constant
        return constant

    def scalar(self, number: float) -> Array:
        """`number` as an array of rank 0 in the element type of this writer."""
        with np.errstate(over="ignore"):
            return np.array(number, dtype=self.dtype.numpy())

    def take(self, x: _X, indices: Sequence[int] | int, axis: int, role: str) -> _X:
        """Elements `indices` of `x` along `axis`; a single index drops the axis."""
        positions = np.array(indices, dtype=np.int64)
        if isinstance(x, ir.Value):
            return self.op("Gather", [x, positions], role, {"axis": axis}, x.dtype)
        before: list[Any] = [slice(None)] * axis
        if positions.ndim == 0:
            return np.asarray(x[(*before, int(positions))])
        first = int(positions[0]) if positions.size else 0
        neighbours = range(x.shape[axis])[first : first + positions.size] if first >= 0 else ()
        if positions.tolist() == list(neighbours):
            # A view: weights may be large.
            return x[(*before, slice(first, first + positions.size))]
        return np.take(x, positions, axis)

    def transpose(self, x: Operand, role: str) -> Operand:
        """The matrix `x` with rows and columns exchanged."""
        if isinstance(x, ir.Value):
            return self.op("Transpose", [x], role, {"perm": [1, 0]}, x.dtype)
        return x.T

    def add(self, x: Operand, y: Operand, role: str) -> Operand:
        """`x + y`, element by element."""
        if isinstance(x, ir.Value) or isinstance(y, ir.Value):
            return self.op("Add", [x, y], role)
        return x + y

    def concat(self, parts: Sequence[Operand], axis: int, role: str) -> Operand:
        """`parts` one behind the other along `axis`."""
        if len(parts) == 1:
            return parts[0]
        if any(isinstance(part, ir.Value) for part in parts):
            dtype = next(part.dtype for part in parts if isinstance(part, ir.Value))
            return self.op("Concat", parts, role, {"axis": axis}, dtype)
        return np.concatenate([np.asarray(part) for part in parts], axis)

    def slice(
        self, x: ir.Value, axis: int, start: int, end: int, role: str, step: int = 1
    ) -> ir.Value:
        """Every `step`-th element of `x` along `axis` from `start` on, before `end`; opset 10."""
        bounds = [np.array([number], np.int64) for number in (start, end, axis, step)]
        return self.op("Slice", [x, *bounds], role, dtype=x.dtype)

    def copy(self, x: ir.Value) -> ir.Value:
        """A value of its own with the contents of `x`."""
        return self.op("Identity", [x], "copy", dtype=x.dtype)

    def squeeze(self, x: _X, axis: int, role: str) -> _X:
        """`x` without `axis`, which has size 1."""
        if isinstance(x, ir.Value):
            return self._with_axes("Squeeze", x, [axis], role)
        return np.squeeze(x, axis)

    def unsqueeze(self, x: _X, axes: Sequence[int], role: str) -> _X:
        """`x` with new axes of size 1 at the positions `axes` of the result."""
        if isinstance(x, ir.Value):
            return self._with_axes("Unsqueeze", x, axes, role)
        return np.expand_dims(x, tuple(axes))

    def _with_axes(self, op_type: str, x: ir.Value, axes: Sequence[int], role: str) -> ir.Value:
        if self.opset >= 13:
            return self.op(op_type, [x, np.array(axes, dtype=np.int64)], role, dtype=x.dtype)
        return self.op(op_type, [x], role, {"axes": list(axes)}, x.dtype)

    def reduce(
        self, op_type: str, x: ir.Value, axes: Sequence[int], role: str, keepdims: bool = True
    ) -> ir.Value:
        """A reduction of `x` over `axes`, in the spelling of the operator set."""
        since = 13 if op_type == "ReduceSum" else 18
        about = {"keepdims": int(keepdims)}
        if self.opset >= since:
            return self.op(op_type, [x, np.array(axes, np.int64)], role, about, x.dtype)
        return self.op(op_type, [x], role, {"axes": list(axes), **about}, x.dtype)

    def split(self, x: ir.Value, roles: Sequence[str]) -> tuple[ir.Value, ...]:
        """The last axis of the matrix `x` in as many equal parts as there are `roles`."""
        if len(roles) == 1:
            return (x,)
        attributes = {"axis": 1}
        if self.opset >= 18:
            attributes["num_outputs"] = len(roles)
        return self.ops("Split", [x], roles, attributes)

    def clip(self, x: ir.Value, bound: float, role: str) -> ir.Value:
        """`x` bounded to `[-bound, bound]`."""
        if self.opset >= 11:
            return self.op("Clip", [x, self.scalar(-bound), self.scalar(bound)], role)
        return self.op("Clip", [x], role, {"min": -bound, "max": bound})

    def positions(self, x: ir.Value, axis: int) -> Operand:
        """The indices 0, 1, ... along `axis` of `x`: int64, shape `[size]`."""
        dims = static_dims(x)
        known = None if dims is None else dims[axis]
        if known is not None and known <= MOST_STORED:
            return np.arange(known, dtype=np.int64)
        length = self.size(x, axis)
        if self.opset >= 11:
            return self.numbers(length, "t")
        fill = {"value": ir.tensor(np.ones(1, dtype=bool))}
        ones = self.op("ConstantOfShape", [length], "steps", fill, ir.DataType.BOOL)
        return self.squeeze(self.op("NonZero", [ones], "t", dtype=ir.DataType.INT64), 0, "t")

    def numbers(self, count: _X, role: str) -> _X:
        """0, 1, ... below `count`, int64 of shape `[1]`, as int64; opset 11."""
        if not isinstance(count, ir.Value):
            return np.arange(count[0])
        start, step = np.array(0, np.int64), np.array(1, np.int64)
        operands: list[Operand] = [start, self.squeeze(count, 0, "count"), step]
        return self.op("Range", operands, role, dtype=ir.DataType.INT64)

    def size(self, x: ir.Value, axis: int) -> ir.Value:
        """The size of `x` along `axis`: int64, shape `[1]`."""
        shape = self.op("Shape", [x], "shape", dtype=ir.DataType.INT64)
        return self.take(shape, [axis], 0, "size")


def _contents(array: Array) -> tuple[Any, ...]:
    """A key that is equal for arrays of equal contents."""
    texts = None if array.dtype != object else [text.encode() for text in array.ravel()]
    return array.dtype, array.shape, array.tobytes() if texts is None else tuple(texts)
