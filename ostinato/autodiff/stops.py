"""Where gradients stop: at operands of which no element counts, and at nodes that say so.

Such a node passes its operand on, and counts as a constant of a gradient: `detach` of PyTorch. Once
a model has been differentiated, each is an Identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.model.graphs import nodes_of, subgraphs

DOMAIN, _OP_TYPE = "ostinato", "StopGradient"


def _is_stop(node: ir.Node) -> bool:
    """Whether no gradient flows through `node`."""
    return node.op_type == _OP_TYPE and node.domain == DOMAIN


def flowing(node: ir.Node) -> Iterator[ir.Value]:
    """The values that gradients may flow to through `node` and the graphs nested in it."""
    if _is_stop(node):
        return
    like = facts_of(node.op_type, node.domain).like
    yield from (v for i, v in enumerate(node.inputs) if v is not None and i not in like)
    for body in subgraphs(node):
        yield from body.outputs
        for inner in body:
            yield from flowing(inner)


def drop_stops(model: ir.Model) -> None:
    """Make an Identity of each such node, in place."""
    for node in nodes_of(model):
        if _is_stop(node):
            node.op_type, node.domain = "Identity", ""
    model.opset_imports.pop(DOMAIN, None)


def _infer(context: Any) -> None:
    context.set_output_type(0, context.get_input_type(0))


def _register() -> None:
    """Tell the onnx package what the operator is."""
    schema, operand = onnx.defs.OpSchema, onnx.defs.OpSchema.FormalParameter
    floats = [f"tensor({name})" for name in ("float", "double", "float16", "bfloat16")]
    stop = schema(
        _OP_TYPE,
        DOMAIN,
        1,
        inputs=[operand("x", "T")],
        outputs=[operand("y", "T")],
        type_constraints=[("T", floats, "")],
    )
    stop.set_type_and_shape_inference_function(_infer)
    onnx.defs.register_schema(stop)


_register()
