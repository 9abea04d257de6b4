"""Gradient nodes of the training domain become the nodes that compute the gradient."""

from __future__ import annotations

import onnx_ir as ir


def gradient_nodes(model: ir.Model) -> int:
    """Replace Gradient nodes, in place; returns their number. See `autodiff.nodes`.

    They name values, which other passes rename and remove, so this pass comes first.
    """
    if not any(node.op_type == "Gradient" for node in model.graph.all_nodes()):
        return 0
    from ostinato.autodiff.nodes import expand_gradients

    return expand_gradients(model)
