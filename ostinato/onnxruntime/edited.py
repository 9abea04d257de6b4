"""Models as session options change them: sizes of free dimensions, values of initializers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.onnxruntime.errors import Fail
from ostinato.onnxruntime.logs import LOGGER
from ostinato.onnxruntime.options import SessionOptions
from ostinato.onnxruntime.values import unwrapped

if TYPE_CHECKING:
    import onnx


def edited(
    model: str | bytes,
    options: SessionOptions,
    apart: Collection[str] = (),
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> Any:
    """The model with what the options change; itself where they change nothing.

    apart: dimensions that inputs share by name and that may differ from input to input. shapes: of
        inputs, in place of those declared; None stands for any size.

    Raises `Fail` for an external initializer that the model does not have.
    """
    named = dict(options.called("add_free_dimension_override_by_name"))
    denoted = dict(options.called("add_free_dimension_override_by_denotation"))
    values = dict(options.called("add_initializer"))
    external = {n: v for (n,), (v,) in options.called("add_external_initializers")}
    values |= external
    if not (named or denoted or values or apart or shapes):
        return model
    from onnx import numpy_helper

    proto = parsed(model, keep_external=not values)
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            size = denoted.get(dim.denotation) if dim.denotation else None
            size = named.get(dim.dim_param) if size is None and dim.dim_param else size
            if size is not None:
                dim.dim_value = size
            elif dim.dim_param in apart:
                dim.dim_param = f"{dim.dim_param} of {value.name}"
        for size in (shapes or {}).get(value.name, ()):
            value.type.tensor_type.shape.dim.add(dim_value=size)
    for value in (*proto.graph.output, *proto.graph.value_info):
        if shapes:
            value.type.tensor_type.ClearField("shape")
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in apart:
                dim.ClearField("dim_param")
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name, value in values.items():
        if name not in tensors and name in external:
            raise Fail.of(f"Failed to find existing initializer with name {name}.")
        if name not in tensors:
            LOGGER.info("initializer %r has no effect: the model has none of this name", name)
            continue
        array = np.asarray(unwrapped(value))
        tensors[name].CopyFrom(numpy_helper.from_array(array, name))
    if values and isinstance(model, str):
        from onnx.external_data_helper import load_external_data_for_model

        load_external_data_for_model(proto, str(Path(model).parent))
    return proto


def parsed(model: str | bytes, keep_external: bool = False) -> onnx.ModelProto:
    """The model's proto; weights in files beside it are read only if `keep_external`."""
    import onnx

    if isinstance(model, bytes):
        return onnx.load_model_from_string(model)
    return onnx.load(os.fspath(model), load_external_data=keep_external)
