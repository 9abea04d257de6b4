"""Writing a model back to ONNX."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ostinato.errors import ModelError
from ostinato.model.declarations import write_maps


def to_model_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as ONNX. Raises `ModelError` for what ONNX cannot hold, such as broken names."""
    try:
        proto: onnx.ModelProto = ir.to_proto(model)
        write_maps(model.graph, proto.graph)
    except Exception as error:  # onnx_ir wraps whatever went wrong in errors of its own
        raise ModelError(f"the model cannot be written as ONNX: {innermost(error)}") from error
    return proto


def innermost(error: BaseException) -> str:
    """The message of the first cause of an error, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines()]
    return "; ".join(line for line in lines if line) or type(error).__name__
