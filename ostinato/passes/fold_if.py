"""An If whose condition is known becomes the branch that is taken."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.model.graphs import graphs
from ostinato.model.values import constant_array
from ostinato.passes.edit import discard, replace_value, splice


def fold_if(model: ir.Model) -> int:
    """Replace each If with a constant condition by the nodes of its branch; returns their number.

    Matches If whose condition is an initializer of one element. Makes the branch's nodes, in the
    If's place. Valid because a branch has no inputs and reads only values that the If could read.
    """
    folded = 0
    for graph in reversed(graphs(model)):
        for node in graph:
            if node.op_type != "If" or node.domain != "":
                continue
            condition = constant_array(node.inputs[0])
            if condition is None or condition.size != 1:
                continue
            taken = node.attributes["then_branch" if condition.item() else "else_branch"]
            results = splice(model, taken.as_graph(), node)
            for old, new in zip(node.outputs, results, strict=True):
                replace_value(old, new)
            discard(node)
            folded += 1
    return folded
