"""The interface of a gradient rule: a node, its cotangents, and a writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx.helper
import onnx_ir as ir

from ostinato.autodiff.contributions import Dims, Part, dims_of, zeros
from ostinato.autodiff.scope import Scope, is_float
from ostinato.errors import UnsupportedError
from ostinato.graph.axis_maps import Form, Row
from ostinato.graph.facts import facts_of
from ostinato.graph.size_arithmetic import FUNCTIONS
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.attributes import Attributes, describe
from ostinato.model.schema import schema_of
from ostinato.model.values import constant_array

Term: TypeAlias = "Operand | float"


class Context:
    """A node whose outputs have gradients; a rule gives its inputs theirs.

    attributes: to be read like in all other rooms; what a rule leaves unread is refused.
    writer: writes nodes of the element type of the node's first float output.
    """

    def __init__(self, scope: Scope, node: ir.Node) -> None:
        self.scope, self.node = scope, node
        self.attributes = Attributes(node)
        types = [value.dtype for value in node.outputs if is_float(value)]
        name = describe(node).strip("/").replace("/", "_")
        self.writer: Writer = scope.writer(types[0] if types else None, f"grad/{name}")

    # Reading

    @property
    def op_type(self) -> str:
        return self.node.op_type

    def refuse(self, reason: str) -> UnsupportedError:
        """The error to raise for this node."""
        return UnsupportedError(describe(self.node), self.node.op_type, reason)

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def given(self, index: int) -> ir.Value:
        """Input `index` as the node reads it: for its type and shape, not to compute with."""
        value = self.node.inputs[index] if self.has(index) else None
        if value is None:
            raise self.refuse(f"input {index} is required")
        return value

    def input(self, index: int) -> ir.Value:
        """Input `index`, to compute with."""
        return self.scope.forward(self.given(index))

    def output(self, index: int = 0) -> ir.Value:
        """Output `index` of the node, to compute with."""
        return self.scope.forward(self.node.outputs[index])

    def constant(self, index: int) -> Array | None:
        """The elements of an input that is a constant, else None."""
        return constant_array(self.given(index)) if self.has(index) else None

    def wants(self, index: int) -> bool:
        """Whether the gradient of input `index` is of use."""
        return self.has(index) and self.given(index) in self.scope.wanted

    def has_gradient(self, index: int = 0) -> bool:
        """Whether the loss depends on output `index`."""
        outputs = self.node.outputs
        return index < len(outputs) and self.scope.has_gradient(outputs[index])

    def gradient(self, index: int = 0) -> ir.Value:
        """The gradient of output `index`, which is zeros where the loss does not depend on it."""
        found = self.scope.gradient(self.node.outputs[index])
        return zeros(self.writer, self.sizes(self.node.outputs[index])) if found is None else found

    def dims(self, value: ir.Value) -> tuple[int | str | None, ...]:
        """The sizes of a value of the node: numbers, names, None where nothing is known.

        Refuses values of unknown rank.
        """
        dims = dims_of(value)
        if dims is None:
            raise self.refuse(f"the rank of {value.name!r} is not known")
        return dims

    def rank(self, value: ir.Value) -> int:
        return len(self.dims(value))

    def float(self, name: str) -> float:
        """A float attribute, by default what the operator's schema says."""
        schema = schema_of(self.op_type, "", self.scope.opset)
        assert schema is not None
        default = schema.attributes[name].default_value
        given: float = self.attributes.float(name, onnx.helper.get_attribute_value(default))
        return given

    def axis(self, default: int | None = None, name: str = "axis", of: int = 0) -> int:
        """An axis attribute, counted from the front of input `of`."""
        rank = self.rank(self.given(of))
        reader = self.attributes
        given: int = reader.int(name) if default is None else reader.int(name, default)
        return given % rank if rank else 0

    def row(self) -> Row | None:
        """Give the axis map of input 0, see `axis_maps`; reads the attributes that decide it.

        None where only a run tells.
        """
        rule, values = facts_of(self.op_type).axes, self.node.inputs
        assert rule is not None
        dims = [None if value is None else dims_of(value) for value in values]
        dims[0] = self.dims(self.given(0))
        form = Form(self.node, dims, self.constant, self.scope.opset)
        axes = rule(form)
        self.attributes.mark_read(form.read)
        return None if axes is None else axes[0]

    def mixed(self) -> tuple[int, ...]:
        """The axes of input 0 along which the node combines elements."""
        row = self.row()
        if row is None:
            raise self.refuse("the axes are only known at run time")
        return tuple(axis for axis, place in enumerate(row) if not isinstance(place, int))

    def sizes(self, value: ir.Value) -> Operand:
        """The sizes of a value of the node: 1-D int64, an array when all are known."""
        return self.scope.sizes(value, self.writer)

    def size(self, value: ir.Value, axis: int) -> Operand:
        """The size of a value of the node along `axis`: 1-D int64, one element, like `sizes`."""
        return self.scope.size(value, axis, self.writer)

    # Giving

    def give(self, index: int, gradient: ir.Value) -> None:
        """Add to the gradient of input `index`, whose shape `gradient` has, if it wants one."""
        if self.wants(index):
            self.scope.add(self.given(index), gradient)

    def give_broadcast(self, index: int, gradient: ir.Value, of: int = 0) -> None:
        """Add to the gradient of input `index`, which was broadcast to the shape of output `of`."""
        if self.wants(index):
            large = self.dims(self.node.outputs[of])
            self.scope.add_broadcast(self.given(index), gradient, large, self)

    def give_product(self, index: int, a: ir.Value, b: ir.Value) -> None:
        """Add `aᵀ b` to the gradient of input `index`, a matrix: see `Scope.add_product`."""
        if self.wants(index):
            self.scope.add_product(self.given(index), a, b, self.writer)

    def give_part(self, index: int, gradient: ir.Value, axis: int, start: int, size: int) -> None:
        """Add to the gradient of some elements of input `index`: see `Part`."""
        if self.wants(index):
            self.scope.add(self.given(index), Part(gradient, axis, start, size))

    def unbroadcast(self, gradient: ir.Value, large: Dims, narrow: ir.Value) -> ir.Value:
        """The sum over the axes along which `narrow` is repeated in a value of sizes `large`."""
        small = self.dims(narrow)
        extra = len(large) - len(small)
        pairs = list(enumerate(zip(large[extra:], small, strict=True), extra))
        repeated = [*range(extra), *(i for i, (many, few) in pairs if few == 1 and many != 1)]
        unknown = [
            i for i, (many, few) in pairs if few is None or (isinstance(few, str) and few != many)
        ]
        if unknown:
            return self._sum_to(gradient, len(large), narrow)
        if not repeated:
            return gradient
        summed = self.sum(gradient, repeated)
        return summed if not extra else self.reshape(summed, self.sizes(narrow))

    def _sum_to(self, gradient: ir.Value, rank: int, narrow: ir.Value) -> ir.Value:
        """The sum of each group of elements that is one element of `narrow`.

        Along each axis the number of groups is that of `narrow`, or 1: which is known at run time.
        """
        few = self.sizes(narrow)
        if rank > self.rank(narrow):
            few = self.writer.concat([np.ones(rank - self.rank(narrow), np.int64), few], 0, "sizes")
        many = self.op("Shape", [gradient], "shape", dtype=ir.DataType.INT64)
        times = self.integers("Div", many, self.integers("Max", few, np.array([1], np.int64)))
        summed = self.sum_repeats(gradient, rank, times, few)
        return self.reshape(summed, self.sizes(narrow)) if rank > self.rank(narrow) else summed

    def sum_repeats(
        self, x: ir.Value, rank: int, times: Operand, sizes: Operand, each: bool = False
    ) -> ir.Value:
        """The sum of all copies of a value of these sizes, which `x` repeats so often per axis.

        each: copies of an element follow one another, not copies of the axis.
        """
        pair = (sizes, times) if each else (times, sizes)
        columns = [self._reshaped(operand, (-1, 1)) for operand in pair]
        split = self._reshaped(self.writer.concat(columns, 1, "pairs"), (-1,))
        copies = range(1 if each else 0, 2 * rank, 2)
        return self.sum(self.reshape(x, split), copies, keepdims=False)

    def _reshaped(self, integers: Operand, shape: Sequence[int]) -> Operand:
        if isinstance(integers, ir.Value):
            target = np.array(shape, np.int64)
            return self.op("Reshape", [integers, target], "index", dtype=ir.DataType.INT64)
        return integers.reshape(shape)

    # Writing

    def op(
        self,
        op_type: str,
        inputs: Sequence[Term],
        role: str | None = None,
        attributes: dict[str, Any] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Write a node with one output; numbers become scalars of the writer's type."""
        operands = [self.writer.scalar(x) if isinstance(x, float | int) else x for x in inputs]
        return self.writer.op(op_type, operands, role or op_type.lower(), attributes, dtype)

    def add(self, x: Term, y: Term) -> ir.Value:
        return self.op("Add", [x, y])

    def sub(self, x: Term, y: Term) -> ir.Value:
        return self.op("Sub", [x, y])

    def mul(self, x: Term, y: Term) -> ir.Value:
        return self.op("Mul", [x, y])

    def div(self, x: Term, y: Term) -> ir.Value:
        return self.op("Div", [x, y])

    def neg(self, x: Term) -> ir.Value:
        return self.op("Neg", [x])

    def compare(self, op_type: str, x: Term, y: Term) -> ir.Value:
        """Less, Greater, Equal and their like: bools."""
        return self.op(op_type, [x, y], dtype=ir.DataType.BOOL)

    def where(self, condition: ir.Value, x: Term, y: Term) -> ir.Value:
        return self.op("Where", [condition, x, y])

    def sum(self, x: ir.Value, axes: Sequence[int], keepdims: bool = True) -> ir.Value:
        """The sum over `axes`, which stay with size 1 unless `keepdims` is false."""
        if not axes:
            return x
        return self.op(
            "ReduceSum", [x, np.array(axes, np.int64)], "sum", {"keepdims": int(keepdims)}
        )

    def integers(self, op_type: str, x: Operand, y: Operand) -> Operand:
        """Add, Sub, Mul, Div, Max or Min of int64: at once where both are arrays."""
        if isinstance(x, ir.Value) or isinstance(y, ir.Value):
            return self.op(op_type, [x, y], "index", dtype=ir.DataType.INT64)
        return np.asarray(np.frompyfunc(FUNCTIONS[op_type], 2, 1)(x, y), np.int64)

    def reshape(self, x: ir.Value, sizes: Operand) -> ir.Value:
        """`x` with these sizes, of which 0 is one; -1 is what is left."""
        known = None if isinstance(sizes, ir.Value) else sizes
        literal = {"allowzero": 1} if known is None or 0 in known else None
        return self.op("Reshape", [x, sizes], attributes=literal)

    def reshape_as(self, x: ir.Value, own: ir.Value, wanted: ir.Value) -> ir.Value:
        """`x`, which has the shape of `own`, with the shape of `wanted`: values of the node.

        `wanted` is only read where its sizes do not follow from those of `x`.
        """
        before, after = self.dims(own), self.dims(wanted)
        if before == after and None not in after:
            return x
        target = [
            size if isinstance(size, int) else 0 if size and size in before[i : i + 1] else -1
            for i, size in enumerate(after)
        ]
        # What is left is only defined beside sizes that are not 0.
        if 0 in after or (-1 in target and (target.count(-1) > 1 or 0 in target)):
            return self.reshape(x, self.sizes(wanted))
        return self.op("Reshape", [x, np.array(target, np.int64)])

    def unsqueeze(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """`x` with new axes of size 1 at the positions `axes` of the result."""
        return self.op("Unsqueeze", [x, np.array(axes, np.int64)]) if axes else x

    def squeeze(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """`x` without `axes`, whose size is 1."""
        return self.op("Squeeze", [x, np.array(axes, np.int64)]) if axes else x

    def reversed(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """`x` with the elements along `axes` in the opposite order."""
        last = -np.ones(len(axes), np.int64)
        before_first = np.full(len(axes), np.iinfo(np.int64).min)
        places = np.array(axes, np.int64)
        return self.op("Slice", [x, last, before_first, places, last], "reversed")

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        """`x` with its axes in the order `perm`."""
        if list(perm) == sorted(perm):
            return x
        return self.op("Transpose", [x], attributes={"perm": list(perm)})
