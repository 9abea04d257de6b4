"""The messages of the protocol over gRPC, made from a list of their fields.

Source: https://github.com/kserve/open-inference-protocol (grpc_predict_v2.proto) and Triton's
grpc_service.proto, whose numbers of fields they are. Python's protobuf reads no .proto files, and
generated code would be bound to one release of protobuf; this builds the same descriptors.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "inference"
SERVICE = f"{_PACKAGE}.GRPCInferenceService"

# Message: field=number type, where `*` is repeated, `map` a map from texts, `|` one of a choice.
_FIELDS = """
ServerLiveRequest:
ServerLiveResponse: live=1 bool
ServerReadyRequest:
ServerReadyResponse: ready=1 bool
ModelReadyRequest: name=1 string, version=2 string
ModelReadyResponse: ready=1 bool
ServerMetadataRequest:
ServerMetadataResponse: name=1 string, version=2 string, extensions=3 *string
ModelMetadataRequest: name=1 string, version=2 string
ModelMetadataResponse.TensorMetadata: name=1 string, datatype=2 string, shape=3 *int64
ModelMetadataResponse: name=1 string, versions=2 *string, platform=3 string, inputs=4 *ModelMetadataResponse.TensorMetadata, outputs=5 *ModelMetadataResponse.TensorMetadata
InferParameter: bool_param=1 |bool, int64_param=2 |int64, string_param=3 |string, double_param=4 |double, uint64_param=5 |uint64
InferTensorContents: bool_contents=1 *bool, int_contents=2 *int32, int64_contents=3 *int64, uint_contents=4 *uint32, uint64_contents=5 *uint64, fp32_contents=6 *float, fp64_contents=7 *double, bytes_contents=8 *bytes
ModelInferRequest.InferInputTensor: name=1 string, datatype=2 string, shape=3 *int64, parameters=4 map InferParameter, contents=5 InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: name=1 string, parameters=2 map InferParameter
ModelInferRequest: model_name=1 string, model_version=2 string, id=3 string, parameters=4 map InferParameter, inputs=5 *ModelInferRequest.InferInputTensor, outputs=6 *ModelInferRequest.InferRequestedOutputTensor, raw_input_contents=7 *bytes
ModelInferResponse.InferOutputTensor: name=1 string, datatype=2 string, shape=3 *int64, parameters=4 map InferParameter, contents=5 InferTensorContents
ModelInferResponse: model_name=1 string, model_version=2 string, id=3 string, parameters=4 map InferParameter, outputs=5 *ModelInferResponse.InferOutputTensor, raw_output_contents=6 *bytes
ModelStreamInferResponse: error_message=1 string, infer_response=2 ModelInferResponse
"""  # noqa: E501
_FIELD = descriptor_pb2.FieldDescriptorProto


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="ostinato/open_inference.proto", package=_PACKAGE, syntax="proto3"
    )
    found: dict[str, descriptor_pb2.DescriptorProto] = {}
    lines = [line.partition(":") for line in _FIELDS.strip().splitlines()]
    # A message is declared before those inside of it.
    for name, _, _ in sorted(lines):
        outer, _, inner = name.rpartition(".")
        holder = found[outer].nested_type if outer else file.message_type
        found[name] = holder.add(name=inner)
    for name, _, fields in lines:
        for field in filter(None, map(str.strip, fields.split(","))):
            _add_field(name, found[name], field)
    return file


def _add_field(name: str, message: descriptor_pb2.DescriptorProto, text: str) -> None:
    declared, kind = text.split(" ", 1)
    label, number = declared.split("=")
    field = message.field.add(name=label, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if kind.startswith("|"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index, kind = 0, kind[1:]
    if kind.startswith("*"):
        field.label, kind = _FIELD.LABEL_REPEATED, kind[1:]
    if kind.startswith("map "):
        field.label = _FIELD.LABEL_REPEATED
        entry = message.nested_type.add(name=label.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field("", entry, "key=1 string")
        _add_field("", entry, "value=2 " + kind.removeprefix("map "))
        kind = f"{name}.{entry.name}"
    if hasattr(_FIELD, f"TYPE_{kind.upper()}"):
        field.type = getattr(_FIELD, f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"


def _classes() -> dict[str, Any]:
    # A pool of its own: a program may have Triton's client, which declares the same names.
    pool = descriptor_pool.DescriptorPool()
    file = pool.Add(_described()) or pool.FindFileByName("ostinato/open_inference.proto")
    return {
        name: message_factory.GetMessageClass(descriptor)
        for name, descriptor in file.message_types_by_name.items()
    }


MESSAGES = _classes()
"""The class of each message, by its name."""
