"""Names of values: unique in the whole model, so that nodes may move between graphs."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ostinato.model.graphs import graphs
from ostinato.records import cached_property


def _own_values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from (v for v in graph.initializers.values() if not v.is_graph_input())
    for node in graph:
        yield from (v for v in node.outputs if v.name)


class Names:
    """Hands out value names that no value of the model has, nor was handed out before.

    Values are looked at when a name is wanted for the first time: most passes want none.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    @cached_property
    def _taken(self) -> set[str | None]:
        return {v.name for graph in graphs(self._model) for v in _own_values(graph)}

    def fresh(self, wanted: str) -> str:
        """`wanted` when it is free, else `wanted` with the first free number appended."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


def make_names_unique(model: ir.Model) -> None:
    """Rename values of nested graphs whose name occurs elsewhere in the model.

    ONNX lets the two branches of an If use one name for different values. Inputs and outputs of
    the main graph keep their names.
    """
    first_owner: dict[str, ir.Value] = {}
    clashing: list[ir.Value] = []
    for graph in graphs(model):
        for value in _own_values(graph):
            if first_owner.setdefault(value.name or "", value) is not value:
                clashing.append(value)
    if not clashing:
        return
    names = Names(model)
    for value in clashing:
        value.name = names.fresh(value.name or "value")
