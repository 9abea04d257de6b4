"""Write down the ranks of what steps of loops are given, in models that leave this package.

Files are read without the shapes inside of them, and shape inference says nothing of what a Loop
carries. onnxruntime refuses a Loop whose number of the step has no shape, and a Scan whose results
have none because a loop around it carries values without.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.model.graphs import nodes_of
from ostinato.model.write import to_model_proto


def portable(model: ir.Model) -> onnx.ModelProto:
    """The model as ONNX for any runtime; raises what `to_model_proto` raises.

    Shapes follow from the graph: the number of a step is a scalar, and so is what a Loop goes on
    by, unless it begins with a vector; all else has the sizes that are proven for each step.
    """
    for node, body in _loops(model):
        if node.op_type == "Loop":
            going = node.inputs[1] if len(node.inputs) > 1 else None
            shapes = ir.Shape([]), ir.Shape([]) if going is None else going.shape
            for value, shape in zip(body.inputs, shapes, strict=False):
                value.shape = shape or ir.Shape([]) if value.shape is None else value.shape
    given = [
        value
        for node, body in _loops(model)
        for value in (*body.inputs, *body.outputs, *node.outputs)
        if value.name and value.shape is None
    ]
    sizes = infer_sizes(model) if given else {}
    for value in given:
        known = sizes.get(value.name or "")
        if known is not None and isinstance(value.type, ir.TensorType | None):
            # A name that inference gave may be one of something else here.
            value.shape = ir.Shape([size if isinstance(size, int) else None for size in known])
    return to_model_proto(model)


def _loops(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Graph]]:
    """The loops of all graphs, and their steps."""
    for node in nodes_of(model, "Scan", "Loop"):
        yield node, node.attributes["body"].as_graph()
