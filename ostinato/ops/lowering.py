"""From a checked ONNX graph to the loop program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ostinato.errors import UnsupportedError
from ostinato.model.attributes import Attributes, describe
from ostinato.model.schema import since_version
from ostinato.model.values import constant_array
from ostinato.ops import LOWERINGS
from ostinato.ops.builder import Builder
from ostinato.ops.registry import Context
from ostinato.ops.tensor import Value

if TYPE_CHECKING:
    import onnx_ir as ir


class Scope:
    """Lowered values by ONNX value, one layer per graph nesting."""

    def __init__(self, outer: Scope | None = None) -> None:
        self._values: dict[ir.Value, Value] = {}
        self._outer = outer

    def __setitem__(self, key: ir.Value, value: Value) -> None:
        self._values[key] = value

    def get(self, key: ir.Value) -> Value | None:
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

    def value(self, scope: Scope, value: ir.Value) -> Value:
        """The lowered value; initializers are placed on first use."""
        found = scope.get(value)
        if found is None:
            array = constant_array(value)
            if array is None:
                raise UnsupportedError(value.name or "?", "value", "is not computed natively")
            found = self.builder.constant(array)
            scope[value] = found
        return found

    def node(self, scope: Scope, node: ir.Node) -> None:
        """Lower one node; its outputs join the scope. Raises `UnsupportedError` if it has no rule."""
        rule = LOWERINGS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if rule is None:
            raise UnsupportedError(describe(node), node.op_type, "has no native form")
        self.builder.node = describe(node)
        since = since_version(node.op_type, node.domain, self._opsets[""])
        inputs = [None if v is None else self.value(scope, v) for v in node.inputs]

        def lower_graph(graph: ir.Graph, values: Sequence[Value]) -> list[Value]:
            return self.graph(graph, values, Scope(scope))

        context = Context(node, since, inputs, Attributes(node), self.builder, lower_graph)
        result = rule(context)
        results = list(result) if isinstance(result, Sequence) else [result]
        for output, lowered in zip(node.outputs, results, strict=False):
            scope[output] = lowered

    def graph(self, graph: ir.Graph, inputs: Sequence[Value], scope: Scope) -> list[Value]:
        """Lower a body graph with these inputs; returns the values of its outputs."""
        for formal, actual in zip(graph.inputs, inputs, strict=True):
            scope[formal] = actual
        for node in graph:
            self.node(scope, node)
        return [self.value(scope, output) for output in graph.outputs]
