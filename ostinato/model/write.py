"""Writing a model back to ONNX."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ostinato.errors import ModelError
from ostinato.model.declarations import write_maps
from ostinato.model.order import bodies


def to_model_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as ONNX. Raises `ModelError` for what ONNX cannot hold, such as broken names."""
    try:
        proto: onnx.ModelProto = ir.to_proto(model)
        write_maps(model.graph, proto.graph)
    except Exception as error:  # onnx_ir wraps whatever went wrong in errors of its own
        raise ModelError(
            f"graph {model.graph.name!r} cannot be written as ONNX: {innermost(error)}"
        ) from error
    _name_nodes_once(proto.graph)
    return proto


def _name_nodes_once(graph: onnx.GraphProto) -> None:
    """Number the nodes of a graph that share a name, as copies do: other runtimes refuse them."""
    graphs = [graph]
    for current in graphs:
        taken = {node.name for node in current.node}
        seen: set[str] = set()
        numbers: dict[str, int] = {}
        for node in current.node:
            if node.name and node.name in seen:
                name = node.name
                while node.name in taken:
                    numbers[name] = numbers.get(name, 0) + 1
                    node.name = f"{name}_{numbers[name]}"
                taken.add(node.name)
            seen.add(node.name)
            graphs += bodies(node)


def innermost(error: BaseException) -> str:
    """The message of the first cause of an error, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines()]
    return "; ".join(line for line in lines if line) or type(error).__name__
