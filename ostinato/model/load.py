"""Reading a model in whatever form it comes, and refusing a broken one by name."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx_ir as ir

from ostinato import files
from ostinato.errors import MissingModelError, ModelError, OstinatoError
from ostinato.files import no_onnx_file, open_model
from ostinato.limits import MOST_AXES, MOST_BYTES
from ostinato.model.attributes import describe
from ostinato.model.blame import blamed
from ostinato.model.check import check_structure
from ostinato.model.contributed import is_contributed, register_contributed
from ostinato.model.declarations import (
    completed,
    note_maps,
    note_overridable,
    take_inferred_types,
    take_off_maps,
)
from ostinato.model.inference import infer_shapes
from ostinato.model.names import make_names_unique
from ostinato.model.nesting import check_nesting, check_nesting_of_file
from ostinato.model.normal_form import normalize, store_data
from ostinato.model.order import all_nodes
from ostinato.model.schema import schema_of
from ostinato.model.signature import type_error
from ostinato.model.types import known_type
from ostinato.model.weights import Contents, parted, put_back, read_contents, set_aside
from ostinato.model.write import innermost, to_model_proto

ModelLike = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model

# The largest message protobuf can serialise, which the checker needs to do.
_LARGEST_MESSAGE = (1 << 31) - 1

# The opset of models that use no standard operator and so need not name one.
_STANDARD_OPSET = 17


def load_model(model: ModelLike) -> ir.Model:
    """Read and check a model; the caller's object is copied, never changed.

    `model` is a path, the bytes of a file, a `ModelProto` or an `onnx_ir.Model`. The result is in
    the normal form of `ostinato.model.normal_form`, carries inferred types and shapes, and no two
    of its values share a name.

    Raises `MissingModelError` for a path without a file, `ModelError` for anything that is not a
    valid model, `UnsupportedError` for an operator that has no schema.
    """
    source = os.fspath(model) if isinstance(model, str | os.PathLike) else "the model"
    folder = Path(source).parent if isinstance(model, str | os.PathLike) else None
    contents: Contents = {}
    try:
        return _check_and_convert(_read(model, contents), folder, contents)
    except MissingModelError:
        raise
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from error


def without_defaults(
    model: ModelLike, names: Collection[str]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model whose initializers of these names are inputs only, and their values."""
    proto = _read(model)
    folder = Path(os.fspath(model)).parent if isinstance(model, str | os.PathLike) else None
    store_data(proto.graph, folder)
    defaults = [tensor for tensor in proto.graph.initializer if tensor.name in names]
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in names]
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in defaults}
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    return proto, values


def _read(model: ModelLike, contents: Contents | None = None) -> onnx.ModelProto:
    """The model; the data of its large initializers is in `contents` instead, if that is given."""
    if isinstance(model, str | os.PathLike):
        return _parse(_read_file(os.fspath(model)), contents)
    if isinstance(model, bytes | bytearray | memoryview):
        return _parse(memoryview(bytes(model)), contents)
    if isinstance(model, onnx.ModelProto):
        check_nesting(model)
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    if isinstance(model, ir.Model):
        check_nesting(model)
        return _serialize(model)
    raise ModelError(
        "expected a path, bytes, an onnx.ModelProto or an onnx_ir.Model, "
        f"got {type(model).__name__}"
    )


def _read_file(path: str) -> memoryview:
    with open_model(path) as file:
        return files.contents(file)


def _parse(data: memoryview, contents: Contents | None) -> onnx.ModelProto:
    if not data:
        raise ModelError("the file is empty")
    proto = onnx.ModelProto()
    try:
        small, found = (bytes(data), {}) if contents is None else parted(data)
        proto.ParseFromString(small)
    except Exception as error:  # the DecodeError of whichever protobuf is installed
        check_nesting_of_file(data)
        raise no_onnx_file(bytes(data[:64])) from error
    if contents is not None:
        contents |= found
    check_nesting(proto)
    return proto


def _serialize(model: ir.Model) -> onnx.ModelProto:
    clone = model.clone()
    try:
        ir.external_data.load_to_model(clone)
    except Exception as error:  # OSError, ValueError: missing or short files
        raise ModelError(f"its external data cannot be read: {innermost(error)}") from error
    return to_model_proto(clone)


def _check_and_convert(proto: onnx.ModelProto, folder: Path | None, contents: Contents) -> ir.Model:
    if not proto.HasField("graph"):
        raise ModelError("not an ONNX model: it has no graph")
    bodies = [proto.graph.node, *(function.node for function in proto.functions)]
    if any(is_contributed(node) for body in bodies for node in all_nodes(body)):
        register_contributed()
    try:
        read_contents(proto.graph, folder, contents)
        overridable = normalize(proto, folder)
        check_structure(proto)
        _import_standard_operators(proto)
        order = [tensor.name for tensor in proto.graph.initializer]
        aside = set_aside(proto.graph, contents)
        with completed(proto.graph) as is_completed:
            message = _message(proto)
            onnx.checker.check_model(message)
        inferred = infer_shapes(_message(proto) if is_completed else message)
        take_inferred_types(inferred.graph)
        maps = take_off_maps(inferred.graph)
        model = ir.from_proto(inferred)
        put_back(model.graph, aside, order)
        note_maps(model.graph, maps)
        note_overridable(model, overridable)
    except OstinatoError:
        raise
    except Exception as error:  # any failure of the checker, inference or conversion: a bad model
        raise ModelError(blamed(proto, innermost(error))) from error
    make_names_unique(model)
    _check_values(model)
    return model


def _check_values(model: ir.Model) -> None:
    """Refuse values that no runtime has, and operands whose type their operator does not take."""
    version = model.opset_imports.get("", 0)
    for value in model.graph.inputs:
        fixed = [size for size in value.shape or () if isinstance(size, int)]
        if math.prod(fixed) > MOST_BYTES:
            raise ModelError(
                f"input {value.name!r} of shape {value.shape} is larger than any machine's memory"
            )
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.outputs, *graph.initializers.values()):
            _check_rank(value)
        for node in graph:
            for value in node.outputs:
                _check_rank(value)
            schema = schema_of(node.op_type, "", version) if node.domain == "" else None
            kinds = [known_type(value) for value in node.inputs]
            problem = None if schema is None else type_error(schema, kinds) or _wrong_body(node)
            if problem is not None:
                raise ModelError(f"node {describe(node)!r} ({node.op_type}): {problem}")


def _wrong_body(node: ir.Node) -> str | None:
    """Say what is wrong with the types of a loop's body, which no schema describes."""
    if node.op_type != "Loop" or "body" not in node.attributes:
        return None
    condition = node.attributes["body"].as_graph().outputs[0]
    kind = known_type(condition) or "tensor(bool)"
    if kind == "tensor(bool)":
        return None
    return f"its body gives {condition.name!r} of {kind} as the condition, expected tensor(bool)"


def _check_rank(value: ir.Value) -> None:
    if value.shape is not None and len(value.shape) > MOST_AXES:
        raise ModelError(
            f"value {value.name!r} has {len(value.shape)} axes, more than the {MOST_AXES} that "
            "arrays can have"
        )


def _import_standard_operators(proto: onnx.ModelProto) -> None:
    """Let passes write standard operators into a model that has only others."""
    if not any(item.domain == "" for item in proto.opset_import):
        proto.opset_import.add(domain="", version=_STANDARD_OPSET)


def _message(proto: onnx.ModelProto) -> bytes:
    if proto.ByteSize() > _LARGEST_MESSAGE:
        raise ModelError("the model and its weights exceed the 2 GiB that onnx can check")
    message: bytes = proto.SerializeToString()
    return message
