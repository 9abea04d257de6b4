"""Lower a checked ONNX graph to the loop program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ostinato.errors import ModelError, ShapeError, UnsupportedError
from ostinato.graph.facts import facts_of
from ostinato.graph.random import is_random
from ostinato.limits import MOST_AXES
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import subgraphs, upstream
from ostinato.model.schema import schema_of
from ostinato.model.signature import type_error
from ostinato.model.values import constant_array, constant_tensor, unread_array
from ostinato.ops import LOWERINGS
from ostinato.ops.core import ranges
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.halves import narrowed, widened
from ostinato.ops.core.registry import (
    NEWEST_OPSET,
    Context,
    UnknownOperandError,
    UnknownStructureError,
)
from ostinato.ops.core.tensor import (
    AnyValue,
    Joined,
    Tensor,
    TensorSequence,
    slice_axis,
    static_shape,
)
from ostinato.ops.rules.sequences import kind_of
from ostinato.program.expr import BYTE_FLOATS, DTYPES

if TYPE_CHECKING:
    import onnx_ir as ir


def _refuse_bytes(context: Context) -> None:
    """Refuse a node that floats of 8 bits would have to be computed for."""
    for value in context.inputs:
        if isinstance(value, (Tensor, Joined, TensorSequence)) and value.dtype in BYTE_FLOATS:
            raise context.refuse(f"type {value.dtype} has no native form for this operator")


class Scope:
    """Lowered values by ONNX value, one layer per graph nesting."""

    def __init__(self, outer: Scope | None = None) -> None:
        self._values: dict[ir.Value, AnyValue] = {}
        self._outer = outer

    def __setitem__(self, key: ir.Value, value: AnyValue) -> None:
        self._values[key] = value

    def get(self, key: ir.Value) -> AnyValue | None:
        """The lowered value, searched from the inside out."""
        found = self._values.get(key)
        if found is None and self._outer is not None:
            return self._outer.get(key)
        return found


class Lowerer:
    """Lowers nodes one after the other into a builder."""

    def __init__(self, builder: Builder, opsets: Mapping[str, int]) -> None:
        self.builder = builder
        self._opsets = opsets
        self._constants: dict[ir.Value, bool] = {}

    def value(self, scope: Scope, value: ir.Value, is_unread: bool = False) -> AnyValue:
        """The lowered value; initializers join the scope on first use.

        is_unread: whether the reader looks at no element of an initializer.
        """
        array = unread_array(value) if is_unread else constant_array(value)
        found = scope.get(value)
        if found is None:
            if array is None:
                raise UnknownStructureError(value.name or "?", "value", "is not computed natively")
            if array.dtype.name not in DTYPES:
                raise UnsupportedError(value.name or "?", "value", f"is {array.dtype.name}")
            found = self.builder.constant(array, value.name or "")
            scope[value] = found
        return found

    def node(self, scope: Scope, node: ir.Node) -> None:
        """Lower one node; its outputs join the scope.

        Raises `UnsupportedError` for whatever of the node has no native form, `ModelError` or
        `ShapeError` for a node that is wrong.
        """
        context = self._context(scope, node)
        self.builder.draft.node, self.builder.draft.op = describe(node), node.op_type
        operands = context.inputs
        facts = facts_of(node.op_type)
        # Dropout, which moves elements, computes in training.
        if facts.computes or facts.random:
            _refuse_bytes(context)
        if facts.computes:
            context.inputs = widened(self.builder, operands)
        try:
            result = LOWERINGS[node.op_type](context)
        except UnknownOperandError as refusal:
            refusal.lowered = refusal.lowered or scope.get
            raise
        results: list[AnyValue] = list(result) if isinstance(result, Sequence) else [result]
        if facts.computes:
            results = narrowed(self.builder, context.schema, operands, results)
        self._note_range(node, operands, results)
        # Opset 1 let nodes name inputs whose memory they may reuse: a hint without meaning.
        context.attributes.ints("consumed_inputs", ())
        context.attributes.finish()
        for name in context.unread_inputs():
            raise context.refuse(f"input {name!r} is not honoured by this compiler")
        for position, output in enumerate(node.outputs):
            if position < len(results):
                self._require_possible(results[position])
                scope[output] = self._measured(output, results[position])
            elif output.name:
                name = context.schema.outputs[position].name
                raise context.refuse(f"output {name!r} has no native form")

    def _note_range(
        self, node: ir.Node, operands: Sequence[AnyValue | None], results: Sequence[AnyValue]
    ) -> None:
        """Note between which numbers the integers of the first result lie, if that follows."""
        first = results[0] if results else None
        if not isinstance(first, (Tensor, Joined)) or not np.issubdtype(first.dtype, np.integer):
            return
        given = [self._range(*pair) for pair in zip(node.inputs, operands, strict=True)]
        found = ranges.of_result(node, facts_of(node.op_type), operands, given)
        if found is not None and ranges.fits(found, first.dtype):
            self.builder.ranges[first] = found

    def _range(self, value: ir.Value | None, lowered: AnyValue | None) -> ranges.Range | None:
        if value is None or not isinstance(lowered, (Tensor, Joined)):
            return None
        if lowered.dtype == "bool":
            return 0, 1
        if lowered not in self.builder.ranges:
            array = constant_array(value)
            found = None if array is None else ranges.of_array(array)
            if found is None:
                return None
            self.builder.ranges[lowered] = found
        return self.builder.ranges[lowered]

    def _measured(self, value: ir.Value, lowered: AnyValue) -> AnyValue:
        """The value, its elements as sizes where those of a step have to be known as such."""
        if value not in self.builder.measured or not isinstance(lowered, (Tensor, Joined)):
            return lowered
        tensor = self.builder.strided(lowered)
        if tensor.known is not None:
            return tensor
        shape = static_shape(tensor.shape)
        if shape is None:
            # Known to be a few elements only as long as a state seemed to keep its shape.
            return tensor
        known = np.empty(shape, object)
        for index in np.ndindex(shape):
            element = tensor
            for axis, place in enumerate(index):
                element = slice_axis(element, axis, place, 1, 1)
            element = replace(element, shape=(), strides=())
            known[index] = self.builder.sizes.measured(self.builder.load(element, ()))
        return replace(tensor, known=known)

    def _require_possible(self, value: AnyValue) -> None:
        """Refuse a value that no machine or no array holds, be it only a view."""
        if isinstance(value, (Tensor, Joined)) and len(value.shape) > MOST_AXES:
            raise ShapeError(
                f"{self.builder.draft.where}: a value of {len(value.shape)} axes; at most "
                f"{MOST_AXES} are possible"
            )
        if isinstance(value, (Tensor, Joined)) and static_shape(value.shape) is not None:
            self.builder.limits.memory(value.dtype, value.shape)

    def _context(self, scope: Scope, node: ir.Node) -> Context:
        schema = schema_of(node.op_type, "", self._opsets[""])
        if node.domain or node.op_type not in LOWERINGS or schema is None:
            raise UnsupportedError(describe(node), node.op_type, "has no native form")
        if schema.since_version > NEWEST_OPSET:
            raise UnsupportedError(
                describe(node), node.op_type, f"version {schema.since_version} is not known here"
            )
        unread = facts_of(node.op_type).unread
        inputs = [
            None if v is None else self.value(scope, v, position in unread)
            for position, v in enumerate(node.inputs)
        ]
        problem = type_error(schema, [None if v is None else kind_of(v) for v in inputs])
        if problem is not None:
            raise ModelError(f"node {describe(node)!r} ({node.op_type}): {problem}")

        def lower_body(graph: ir.Graph, values: Sequence[AnyValue]) -> list[AnyValue]:
            return self.graph(graph, values, Scope(scope))

        def is_constant(position: int) -> bool:
            value = node.inputs[position]
            return value is not None and self._is_constant(value)

        attributes = Attributes(node)
        return Context(node, schema, inputs, is_constant, attributes, self.builder, lower_body)

    def _is_constant(self, value: ir.Value) -> bool:
        """Whether the value follows from constants alone, folded or not."""
        for made in upstream([value], skip=self._constants):
            node = made.producer()
            self._constants[made] = constant_tensor(made) is not None or (
                node is not None
                and not is_random(node)
                and not any(True for _ in subgraphs(node))
                and all(v is None or self._constants[v] for v in node.inputs)
            )
        return self._constants[value]

    def graph(self, graph: ir.Graph, inputs: Sequence[AnyValue], scope: Scope) -> list[AnyValue]:
        """Lower a body graph with these inputs; returns the values of its outputs."""
        for formal, actual in zip(graph.inputs, inputs, strict=True):
            scope[formal] = self._measured(formal, actual)
        for node in graph:
            self.node(scope, node)
        return [self.value(scope, output) for output in graph.outputs]
