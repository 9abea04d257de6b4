"""A graph as a model of its own."""

from __future__ import annotations

from collections.abc import Iterable

import onnx


def assemble(graph: onnx.GraphProto, opsets: Iterable[tuple[str, int]]) -> onnx.ModelProto:
    """The model that is `graph`; opsets: pairs of domain and version that its nodes are of."""
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets]
    model: onnx.ModelProto = onnx.helper.make_model(graph, opset_imports=imports)
    return model
