"""The reverse sweep over a graph nested in a node, whose own values are not visible outside."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ostinato.autodiff.copies import copy_node, like
from ostinato.autodiff.scope import Scope
from ostinato.graph.facts import facts_of
from ostinato.graph.loop_form import reads
from ostinato.graph.random import is_random
from ostinato.graph.writer import Operand, Writer
from ostinato.model.graphs import subgraphs, upstream
from ostinato.model.values import dims_of


class NestedScope(Scope):
    """The sweep over the graph of a node of `outer`.

    Its nodes read stand-ins for the values of that graph. When the sweep is over, `settle` writes
    the nodes that compute some of them again, in front of those of the sweep; the subclass fills
    the others.

    repeats_all: whether everything may be computed again, else only what costs little.
    """

    def __init__(
        self, outer: Scope, graph: ir.Graph, wanted: set[ir.Value], repeats_all: bool
    ) -> None:
        super().__init__(graph, outer.root, outer.names, outer.opset, wanted)
        self.outer, self.repeats_all = outer, repeats_all
        self._stand_ins: dict[ir.Value, ir.Value] = {}
        self._repeatable: dict[ir.Node, bool] = {}

    def is_own(self, value: ir.Value) -> bool:
        """Whether the graph itself makes or takes the value."""
        return value.graph is self.graph

    def forward(self, value: ir.Value) -> ir.Value:
        if not self.is_own(value):
            return self.outer.forward(value)
        if value not in self._stand_ins:
            self._stand_ins[value] = self.like(value, str(value.name))
        return self._stand_ins[value]

    def like(self, value: ir.Value, name: str) -> ir.Value:
        """A new value without a maker, of the type and shape of `value`."""
        return like(value, self.names, name)

    def size(self, value: ir.Value, axis: int, writer: Writer) -> Operand:
        dims = dims_of(value)
        known = None if dims is None else dims[axis]
        if isinstance(known, str):
            for other in self.sized():
                if known in (others := dims_of(other) or ()):
                    return writer.size(self.forward(other), others.index(known))
        return super().size(value, axis, writer)

    def sizes(self, value: ir.Value, writer: Writer) -> Operand:
        dims = dims_of(value)
        if not dims:
            return super().sizes(value, writer)
        named = {size for other in self.sized() for size in dims_of(other) or ()}
        if not all(isinstance(size, int) or (size and size in named) for size in dims):
            return super().sizes(value, writer)
        return writer.concat([self.size(value, i, writer) for i in range(len(dims))], 0, "sizes")

    def sized(self) -> Iterator[ir.Value]:
        """Values whose named sizes can be read at no cost."""
        yield from self.root.inputs

    def is_free(self, value: ir.Value) -> bool:
        """Whether the stand-in of an own value can be filled at no cost."""
        return False

    def outside(self) -> list[ir.Value]:
        """Values around the graph that something was added to, in order."""
        return [value for value in self._contributions if not self.is_own(value)]

    def settle(self) -> dict[ir.Value, ir.Value]:
        """Write what is computed again; returns the other stand-ins, by the value they stand for.

        Nothing may be asked of the scope after that.
        """
        repeated = set[ir.Node]()
        pending = [value for value in self._stand_ins if self._is_repeatable(value)]
        for value in pending:
            node = value.producer()
            assert node is not None
            if node in repeated:
                continue
            repeated.add(node)
            for read in dict.fromkeys(reads(node)):
                if self.is_own(read):
                    self.forward(read)
                    pending += [read] if self._is_repeatable(read) else []
        nodes = [node for node in self.graph if node in repeated]
        self.nodes[:0] = [copy_node(node, self.names, self.forward, {}) for node in nodes]
        return {v: s for v, s in self._stand_ins.items() if v.producer() not in repeated}

    def _is_repeatable(self, value: ir.Value) -> bool:
        """Whether an own value is the result of a node that can run again."""
        for made in upstream([value], self._needed):
            node = made.producer()
            if node is not None and node not in self._repeatable:
                makers = [read.producer() for read in self._needed(made)]
                self._repeatable[node] = self._allows(node) and all(
                    maker is not None and self._repeatable[maker] for maker in makers
                )
        maker = value.producer()
        return maker is not None and self._repeatable[maker]

    def _needed(self, value: ir.Value) -> list[ir.Value]:
        """The own values that have to be computed again before this one."""
        node = value.producer()
        if node is None or node in self._repeatable or not self._allows(node):
            return []
        own = (read for read in reads(node) if self.is_own(read))
        return [read for read in own if read not in self._stand_ins and not self.is_free(read)]

    def _allows(self, node: ir.Node) -> bool:
        if self.repeats_all:
            inner = (n for body in subgraphs(node) for n in body.all_nodes())
            return not any(is_random(n) for n in (node, *inner))
        return facts_of(node.op_type, node.domain).cheap
