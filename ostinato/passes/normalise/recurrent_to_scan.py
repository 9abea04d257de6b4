"""RNN, GRU and LSTM become `Scan` with a body of plain operators.

One form for every recurrence is what lets the rest of the compiler know no cell: what is done for
`Scan` (hoisting the input projection, fusing a step into one kernel) is done for all of them.
docs/recurrence.md describes the semantics and where other runtimes differ.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from ostinato.definitions.recurrent_node import Recurrent, is_recurrent, read_recurrent
from ostinato.definitions.recurrent_scan import Cell, write_recurrent
from ostinato.errors import UnsupportedError
from ostinato.graph.raise_opset import raise_opset
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.names import Names
from ostinato.model.schema import opset_of


def recurrent_to_scan(
    model: ir.Model,
    only: Collection[ir.Node] | None = None,
    clean_padding: bool = False,
    cell: Cell | None = None,
) -> int:
    """Replace every RNN, GRU and LSTM node of `model`, in place, and return their number.

    Matches the operators of `ai.onnx` in all versions, in the main graph and in subgraphs; those
    among `only`, where that is given. Each becomes one `Scan` for every direction, whose body
    computes a step with plain operators in the order of the documented formulas; constant weights
    are sliced and transposed into new initializers. Valid because a recurrent operator is defined
    as that recurrence. With `clean_padding`, steps beyond the length of a row see zeros: nothing
    depends on their results, but whoever multiplies these by zero wants them to be numbers. `cell`
    writes the steps in place of the operator's own. A model older than opset 9 is raised to opset
    9. Raises `UnsupportedError` or `ShapeError` for a node that cannot be honoured, and leaves the
    model unchanged then.
    """
    for function in model.functions.values():
        for node in function.all_nodes():
            if is_recurrent(node):
                raise UnsupportedError(
                    describe(node), node.op_type, f"inline function {function.name!r} first"
                )
    nodes = [
        node
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
        if is_recurrent(node) and (only is None or node in only)
    ]
    if not nodes:
        return 0
    version = opset_of(model)
    for node in nodes:
        read_recurrent(node, version)
    opset = raise_opset(model, frozenset(nodes))
    names = Names(model)
    for node in nodes:
        recurrent = read_recurrent(node, version)
        writer = Writer(model.graph, names, opset, recurrent.dtype, describe(node))
        _replace(recurrent, writer, clean_padding, cell)
    return len(nodes)


def _replace(recurrent: Recurrent, writer: Writer, clean_padding: bool, cell: Cell | None) -> None:
    """Put what `writer` writes for a node in its place, under the names of its outputs."""
    node, outputs = recurrent.node, recurrent.used_outputs()
    inputs = {value for value in node.inputs if value is not None}
    used = tuple(outputs)
    new = write_recurrent(recurrent, writer, used, clean_padding, cell) if outputs else []
    graph = node.graph
    assert graph is not None
    ir.convenience.replace_nodes_and_values(
        graph, node, [node], writer.nodes, list(outputs.values()), new
    )
    for value in inputs:
        owner = value.graph
        unread = not (value.uses() or value.is_graph_output() or value.is_graph_input())
        if unread and value.is_initializer() and isinstance(owner, ir.Graph):
            owner.initializers.pop(str(value.name))
