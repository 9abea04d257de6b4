"""Weights aside: what reads, checks and infers a model does without the contents of large tensors.

Each of these steps of protobuf and of the onnx package copies the model once or twice.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.helper
import onnx_ir as ir

from ostinato import files
from ostinato.errors import ModelError
from ostinato.model.origins import Observed
from ostinato.model.write import to_model_proto
from ostinato.protobuf import onnx_fields
from ostinato.protobuf.wire import field, fields

# Bytes from which on a tensor is set aside. Inference reads smaller ones: they may be shapes.
LEAST = 1 << 14
_PLAIN: dict[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype("<f4"),
    onnx.TensorProto.DOUBLE: np.dtype("<f8"),
    onnx.TensorProto.FLOAT16: np.dtype("<f2"),
    onnx.TensorProto.INT64: np.dtype("<i8"),
    onnx.TensorProto.INT32: np.dtype("<i4"),
    onnx.TensorProto.INT8: np.dtype("i1"),
    onnx.TensorProto.UINT8: np.dtype("u1"),
}


# The data of initializers, by name, in the bytes of a file.
Contents: TypeAlias = "dict[str, memoryview]"


def parted(data: memoryview) -> tuple[bytes, Contents]:
    """The bytes of a model without the data of its large initializers, and that data.

    Large constants that nodes of the graph give are initializers of the result. Whatever is not
    plain stays where it is, for a check to name.
    """
    contents: Contents = {}
    try:
        graphs = [one for one in fields(data, 0, len(data)) if one[0] == onnx_fields.MODEL_GRAPH]
        if len(data) < LEAST or len(graphs) != 1:
            return bytes(data), {}
        ((_, head, begin, end),) = graphs
        pieces: list[bytes | memoryview] = []
        done = begin
        fed = _inputs(data, begin, end)
        for number, first, inside, last in fields(data, begin, end):
            if (
                number in (onnx_fields.GRAPH_INITIALIZER, onnx_fields.GRAPH_NODE)
                and last - inside >= LEAST
            ):
                message = data[inside:last]
                tensor, name = (
                    (message, "") if number == onnx_fields.GRAPH_INITIALIZER else _constant(message)
                )
                small = None
                if tensor is not None and name not in fed:
                    small = _without_data(tensor, contents, name)
                if small is not None:
                    pieces += [
                        data[done:first],
                        field(onnx_fields.GRAPH_INITIALIZER, len(small)),
                        small,
                    ]
                    done = last
    except IndexError:
        return bytes(data), {}
    if not contents:
        return bytes(data), {}
    pieces.append(data[done:end])
    size = sum(map(len, pieces))
    return b"".join(
        [data[:head], field(onnx_fields.MODEL_GRAPH, size), *pieces, data[end:]]
    ), contents


def _inputs(data: memoryview, begin: int, end: int) -> set[str]:
    """The names of the inputs of a graph."""
    inputs = [
        data[i:j]
        for number, _, i, j in fields(data, begin, end)
        if number == onnx_fields.GRAPH_INPUT
    ]
    names = [
        one[i:j]
        for one in inputs
        for n, _, i, j in fields(one, 0, len(one))
        if n == onnx_fields.VALUE_NAME
    ]
    return {bytes(name).decode(errors="replace") for name in names}


def _constant(message: memoryview) -> tuple[memoryview | None, str]:
    """The tensor that a node gives, and what it is called; None for any other node."""
    found: dict[int, list[memoryview]] = {}
    for number, _, begin, end in fields(message, 0, len(message)):
        found.setdefault(number, []).append(message[begin:end])
    kinds, is_standard = (
        found.get(onnx_fields.NODE_OP_TYPE, []),
        not any(found.get(onnx_fields.NODE_DOMAIN, [])),
    )
    outputs, attributes = (
        found.get(onnx_fields.NODE_OUTPUT, []),
        found.get(onnx_fields.NODE_ATTRIBUTE, []),
    )
    if kinds != [b"Constant"] or not is_standard or not len(outputs) == len(attributes) == 1:
        return None, ""
    (attribute,) = attributes
    parts = {n: attribute[begin:end] for n, _, begin, end in fields(attribute, 0, len(attribute))}
    if bytes(parts.get(onnx_fields.ATTRIBUTE_NAME, b"")) != b"value":
        return None, ""
    return parts.get(onnx_fields.ATTRIBUTE_TENSOR), bytes(outputs[0]).decode(errors="replace")


def _without_data(message: memoryview, contents: Contents, name: str = "") -> bytes | None:
    """A tensor without its data, which is added to others; None if it stays as it is.

    name: what it is called instead.
    """
    held = {onnx_fields.TENSOR_RAW_DATA, *onnx_fields.PACKED.values()}
    raw = [one for one in fields(message, 0, len(message)) if one[0] in held]
    if len(raw) != 1:
        return None
    ((number, head, begin, end),) = raw
    small = b"".join([message[:head], message[end:]])
    tensor = onnx.TensorProto.FromString(small)
    tensor.name = name or tensor.name
    is_whole = _size(tensor) == end - begin and tensor.data_location == tensor.DEFAULT
    is_whole = is_whole and number in (
        onnx_fields.TENSOR_RAW_DATA,
        onnx_fields.PACKED.get(tensor.data_type),
    )
    if not is_whole or not tensor.name or tensor.name in contents:
        return None
    contents[tensor.name] = message[begin:end]
    return tensor.SerializeToString() if name else small


def read_contents(graph: onnx.GraphProto, folder: Path | None, contents: Contents) -> None:
    """Add the data of large initializers that is in files of its own.

    Raises `ModelError` as `read_external` does.
    """
    sizes = {
        tensor.name: size
        for tensor in graph.initializer
        if tensor.data_location == tensor.EXTERNAL and (size := _size(tensor)) is not None
    }
    if folder is None:
        return
    opened: dict[str, memoryview | None] = {}
    to_read: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        size = sizes.get(tensor.name)
        if size is None or not tensor.name or tensor.name in contents:
            continue
        data = _mapped(tensor, size, folder, opened)
        if data is not None:
            _take(tensor, data, contents)
        elif size <= _bytes_of_file(tensor, folder):
            to_read.append(tensor)
    # In one piece, which the system takes back as a whole.
    memory = memoryview(bytearray(sum(sizes[tensor.name] for tensor in to_read)))
    for tensor in to_read:
        size = sizes.pop(tensor.name, None)
        if size is not None and _read_into(memory[:size], tensor, folder):
            _take(tensor, memory[:size], contents)
            memory = memory[size:]


def _take(tensor: onnx.TensorProto, data: memoryview, contents: Contents) -> None:
    contents[tensor.name] = data
    tensor.data_location = tensor.DEFAULT
    del tensor.external_data[:]


def _mapped(
    tensor: onnx.TensorProto, size: int, folder: Path, opened: dict[str, memoryview | None]
) -> memoryview | None:
    """The data of a tensor in a very large file; None for others, and for what is not plain."""
    try:
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        if info.location not in opened:
            opened[info.location] = _very_large(folder, info.location)
    except (OSError, ValueError):
        return None
    whole, start = opened[info.location], info.offset or 0
    if whole is None or info.length != size or start + size > len(whole):
        return None
    return whole[start : start + size]


def _location(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _bytes_of_file(tensor: onnx.TensorProto, folder: Path) -> int:
    """The bytes of the file in which the data lies; 0 where there is no such file."""
    try:
        return os.path.getsize(folder / _location(tensor))
    except (OSError, ValueError):
        return 0


def _very_large(folder: Path, location: str) -> memoryview | None:
    """A file that is mapped: one in the folder, and not by a link."""
    place = files.beside(folder, location)
    if place is None or os.path.getsize(place) <= files.READ_UP_TO:
        return None
    with files.open_file(place, follow=False) as file:
        return files.contents(file)


def _read_into(memory: memoryview, tensor: onnx.TensorProto, folder: Path) -> bool:
    """Read data from a file of its own; False if it has another length."""
    # A message keeps the memory of all that it ever held.
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    read_external(copy, folder)
    data = copy.raw_data
    if len(data) != len(memory):
        return False
    memory[:] = data
    return True


def read_external(tensor: onnx.TensorProto, folder: Path | None) -> None:
    """Read the data of a tensor that is in a file of its own.

    Raises `ModelError` where it is missing, out of bounds or outside of `folder`.
    """
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    where = _location(tensor)
    if folder is None:
        raise ModelError(
            f"tensor {tensor.name!r} has its data in the file {where!r}: load the model by its "
            "path, or read the data first with onnx.external_data_helper"
        )
    try:
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    except Exception as error:  # ValidationError, OSError, ValueError: all mean a bad file
        raise ModelError(
            f"tensor {tensor.name!r} has its data in the file {where!r}: {error}"
        ) from error
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def set_aside(graph: onnx.GraphProto, contents: Contents) -> dict[str, np.ndarray]:
    """Make inputs of the large initializers, whose elements are the result.

    contents: the data of those that have none. Those whose data is not as long as it should be
    stay, for a check to name.
    """
    names = Counter(tensor.name for tensor in graph.initializer)
    names.update(value.name for value in graph.input)
    aside: dict[str, np.ndarray] = {}
    kept: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        is_alone = tensor.name and names[tensor.name] == 1
        array = _elements(tensor, contents) if is_alone else None
        if array is None:
            kept.append(tensor)
            continue
        aside[tensor.name] = array
        graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    if aside:
        small = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(small)
    return aside


def _elements(tensor: onnx.TensorProto, contents: Contents) -> np.ndarray | None:
    size = _size(tensor)
    if size is None:
        return None
    # Each time that a message is asked for bytes it copies them.
    data = contents.get(tensor.name) or tensor.raw_data
    array = np.frombuffer(data, _PLAIN[tensor.data_type]) if len(data) == size else None
    return None if array is None else array.reshape(tensor.dims)


def _size(tensor: onnx.TensorProto) -> int | None:
    """Bytes of a large tensor that is set aside; None for others."""
    dtype, dims = _PLAIN.get(tensor.data_type), tuple(tensor.dims)
    if dtype is None or any(n < 0 for n in dims) or tensor.HasField("segment"):
        return None
    size = math.prod(dims) * dtype.itemsize
    return size if size >= LEAST else None


def without_contents(model: ir.Model) -> onnx.ModelProto:
    """The model as ONNX with its weights as inputs, as inference needs no contents.

    Raises `ModelError` as `to_model_proto` does.
    """
    graph, whole = model.graph, dict(model.graph.initializers)
    large = [
        value
        for value in whole.values()
        if value.const_value is not None
        and (value.const_value.nbytes >= LEAST or isinstance(value.const_value, Observed))
        and not value.is_graph_input()
        and value.type is not None
        and value.shape is not None
    ]
    for value in large:
        del graph.initializers[value.name or ""]
    graph.inputs.extend(large)
    try:
        return to_model_proto(model)
    finally:
        for _ in large:
            graph.inputs.pop()
        graph.initializers.clear()
        graph.initializers.update(whole)


def put_back(graph: ir.Graph, aside: Mapping[str, np.ndarray], order: list[str]) -> None:
    """Make initializers of those inputs again, all initializers in the order of these names."""
    inputs = {value.name: value for value in graph.inputs if value.name in aside}
    for name, array in aside.items():
        value = inputs[name]
        graph.inputs.remove(value)
        value.const_value = ir.Tensor(array, name=name)
        graph.register_initializer(value)
    values = dict(graph.initializers)
    graph.initializers.clear()
    for name in order:
        graph.initializers[name] = values[name]


def copy_contents(model: ir.Model) -> None:
    """Copy large initializers, so that what becomes of the model's files does not matter to it."""
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes >= LEAST and tensor.dtype in _PLAIN:
            value.const_value = ir.Tensor(np.array(tensor.numpy()), name=tensor.name)
