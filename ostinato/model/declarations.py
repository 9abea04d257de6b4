"""Types that a file declares for its inputs and outputs, which may be fewer than ONNX demands.

`onnx.checker` insists on a type and a shape for each of them. Other runtimes infer what an output
lacks and take an input without a shape as one of any rank; so does this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import onnx
import onnx_ir as ir

from ostinato.errors import ModelError
from ostinato.model.types import holds_map, proto_text

_MAP_TYPE = "ostinato.type"
_OVERRIDABLE = "ostinato.overridable"


@contextmanager
def completed(graph: onnx.GraphProto) -> Iterator[bool]:
    """Let inputs and outputs have the fields that `onnx.checker` wants; take them off in the end.

    Gives whether there are any. Raises `ModelError` for an input without a type.
    """
    for value in graph.input:
        if _is_untyped(value):
            raise ModelError(f"input {value.name!r} is declared without a type")
    untyped = [value for value in graph.output if _is_untyped(value)]
    for value in untyped:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    shapeless = [
        tensor
        for value in (*graph.input, *graph.output)
        for tensor in _tensor_types(value.type)
        if not tensor.HasField("shape")
    ]
    for tensor in shapeless:
        tensor.shape.SetInParent()
    yield bool(untyped or shapeless)
    for tensor in shapeless:
        tensor.ClearField("shape")
    for value in untyped:
        value.ClearField("type")


def _is_untyped(value: onnx.ValueInfoProto) -> bool:
    kind = value.type.WhichOneof("value")
    return kind is None or (kind == "tensor_type" and not value.type.tensor_type.elem_type)


def _tensor_types(kind: onnx.TypeProto) -> Iterator[onnx.TypeProto.Tensor]:
    """The tensor types in a type."""
    field = kind.WhichOneof("value")
    if field == "tensor_type":
        yield kind.tensor_type
    elif field == "map_type":
        yield from _tensor_types(kind.map_type.value_type)
    elif field in ("sequence_type", "optional_type"):
        yield from _tensor_types(getattr(kind, field).elem_type)


def take_inferred_types(graph: onnx.GraphProto) -> None:
    """Give outputs that have no type the one that inference found.

    Raises `ModelError` where it found none.
    """
    found = {value.name: value for value in (*graph.value_info, *graph.input)}
    for tensor in graph.initializer:
        kind = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        found.setdefault(tensor.name, kind)
    for value in graph.output:
        if _is_untyped(value):
            if value.name not in found or _is_untyped(found[value.name]):
                raise ModelError(
                    f"output {value.name!r} is declared without a type, and none can be inferred"
                )
            value.type.CopyFrom(found[value.name].type)


def note_overridable(model: ir.Model, declared: Iterable[onnx.ValueInfoProto]) -> None:
    """Let `overridable` give these declarations of initializers that are inputs too."""
    values = [ir.serde.deserialize_value_info_proto(value, None) for value in declared]
    model.meta[_OVERRIDABLE] = tuple(values)


def overridable(model: ir.Model) -> tuple[ir.Value, ...]:
    """The initializers that a caller may override, as values of no graph."""
    values: tuple[ir.Value, ...] = model.meta.get(_OVERRIDABLE, ())
    return values


def take_off_maps(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """Remove the types of maps, which onnx-ir does not know; returns them, by value of `graph`."""
    kinds: dict[str, onnx.TypeProto] = {}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if holds_map(value.type):
            kinds[value.name] = onnx.TypeProto.FromString(value.type.SerializeToString())
            value.ClearField("type")
    return kinds


def note_maps(graph: ir.Graph, kinds: Mapping[str, onnx.TypeProto]) -> None:
    """Keep these types beside the values of `graph`."""
    for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
        if value.name is not None and value.name in kinds:
            value.meta[_MAP_TYPE] = kinds[value.name]


def map_type(value: ir.Value) -> str | None:
    """The type of a value that is a map, or a sequence of maps; None for any other."""
    kind = value.meta.get(_MAP_TYPE)
    return None if kind is None else proto_text(kind)


def write_maps(graph: ir.Graph, proto: onnx.GraphProto) -> None:
    """Write the types that `take_off_maps` removed into the inputs and outputs of `proto`."""
    for values, infos in ((graph.inputs, proto.input), (graph.outputs, proto.output)):
        for value, info in zip(values, infos, strict=True):
            if _MAP_TYPE in value.meta:
                info.type.CopyFrom(value.meta[_MAP_TYPE])
