"""Move nodes that compute the same in every step before the loop."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.loop_form import read_loop
from ostinato.model.graphs import graphs
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, static_dims


def loop_invariants(model: ir.Model) -> int:
    """Move nodes in front of the Scan or Loop in whose body they repeat; returns how many.

    Matches nodes of the body itself (not of a graph nested in it) that read only values from
    outside of the body, and that cannot fail whatever these are: a loop without steps would not
    have run them. Valid because such a node gives every step the same result.
    """
    opset, moved = opset_of(model), 0
    for graph in reversed(graphs(model)):
        for node in graph:
            form = read_loop(node, opset)
            if form is None:
                continue
            for inner in form.body:
                if _is_invariant(inner, form.body):
                    form.body.remove(inner)
                    node.prepend(inner)
                    moved += 1
    return moved


def _is_invariant(node: ir.Node, body: ir.Graph) -> bool:
    if node.domain != "" or any(value.is_graph_output() for value in node.outputs):
        return False
    given = [value for value in node.inputs if value is not None]
    if any(value.graph is body for value in given):
        return False
    # Nodes of several operands refuse shapes: they cannot fail where inference has seen all sizes.
    if node.op_type == "Gather" and _finds_all(node):
        return True
    is_total = facts_of(node.op_type, node.domain).total
    return is_total and (len(given) == 1 or all(map(_has_fixed_sizes, given)))


def _finds_all(node: ir.Node) -> bool:
    """Whether a Gather by constants has no index that is out of range."""
    data, indices = node.inputs
    array, dims = constant_array(indices), None if data is None else data.shape
    axis = node.attributes.get_int("axis", 0)
    if array is None or dims is None or not -len(dims) <= axis < len(dims):
        return False
    size = dims[axis]
    return isinstance(size, int) and bool(((array >= -size) & (array < size)).all())


def _has_fixed_sizes(value: ir.Value) -> bool:
    dims = static_dims(value)
    return dims is not None and None not in dims
