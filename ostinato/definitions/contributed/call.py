"""A node whose operator is being replaced, and a writer of what takes its place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.given import Dim, Given, Maybe
from ostinato.graph.edit import discard, is_needed, replace_value
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import BRANCHES
from ostinato.model.grown_caches import GrownCaches
from ostinato.model.values import filled

INT64, INT32, FLOAT = ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT


class Call(Given):
    """The node, and a writer of new nodes.

    block: channels in a block of images that lie in blocks. opset: the version of the operator's
    domain. caches: those of the model, which callers may let grow.
    """

    def __init__(
        self,
        node: ir.Node,
        writer: Writer,
        infer: Callable[[ir.Value], object],
        block: int = 1,
        opset: int = 1,
        caches: GrownCaches | None = None,
    ) -> None:
        super().__init__(node, infer, opset)
        self.writer, self.block, self.caches = writer, block, caches or GrownCaches()

    def expand(self, definition: Definition) -> None:
        """Put a definition in the place of the node; nothing is changed where it is refused."""
        results = definition(self)
        self.finish()
        pairs = [*zip(self.node.outputs, results, strict=False)]
        for old, new in pairs:
            if new is None and is_needed(old):
                raise self.refuse(f"output {old.name!r} has no definition")
        self.node.prepend(self.writer.nodes)
        for old, new in pairs:
            if new is not None:
                replace_value(old, new)
        discard(self.node)

    def shaped(self, value: ir.Value, *dims: Dim) -> ir.Value:
        """Note the sizes of a value that this definition has made."""
        value.shape = ir.Shape(dims)
        return value

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

    def require(self, holds: ir.Value, otherwise: str) -> None:
        """Let runs end with an error that says `otherwise` unless all of these bools are true.

        Only where rows of caches are kept by the caller, who then gets no output of this.
        """
        assert self.node.graph is not None
        self.node.graph.outputs.append(holds)
        node = f"node {describe(self.node)!r} ({self.node.op_type})"
        self.caches.conditions[holds.name or ""] = f"{node}: {otherwise}"

    def either(self, holds: ir.Value, *ways: Callable[[Call], ir.Value]) -> ir.Value:
        """Write an If whose branches are written by two functions.

        They write with the call that they are given.
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

    def cast_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """`x` in the element type of `like`."""
        assert like.dtype is not None
        return self.cast(x, like.dtype)

    def number(self, number: float, like: ir.Value) -> Array:
        """A scalar in the element type of `like`."""
        return filled(like, number=number)

    def reduce(self, op_type: str, x: ir.Value, axes: Sequence[int], keepdims: bool) -> ir.Value:
        """A reduction over `axes`, in the spelling of the model's operator set."""
        return self.writer.reduce(op_type, x, axes, op_type, keepdims)

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


Definition: TypeAlias = "Callable[[Call], Sequence[Maybe]]"
