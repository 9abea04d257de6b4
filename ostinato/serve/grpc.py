"""The protocol over gRPC, with Triton's call of many requests in one stream.

Source: https://github.com/kserve/open-inference-protocol (grpc_predict_v2.proto).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import lru_cache
from typing import Any

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError

from ostinato.serve.messages import MESSAGES, SERVICE
from ostinato.serve.protocol import (
    SEQUENCE_PARAMETERS,
    VERSION,
    Request,
    ServeError,
    Status,
    array_of_bytes,
    array_of_values,
    check_parameters,
    datatype_of,
    sequence_of,
)
from ostinato.serve.service import Service

Array = np.ndarray[Any, Any]

# The field of InferTensorContents that has the values of a datatype.
_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
# Requests of one stream that are under way; more wait in the connection. For 4,000 messages of 200
# sequences of the denoiser in one stream this process takes 1.7 s with 1, 1.5 with 8, 1.3 with 64,
# 1.5 with 512.
_UNDER_WAY = 64


def server(service: Service, address: str, most: int) -> tuple[grpc.aio.Server, int]:
    """A server that is not started, and its port. most: bytes of the longest message.

    Raises `OSError` for an address that is taken.
    """
    limits = [
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", -1),
        # Two servers on one port would share its clients, which have their states in one.
        ("grpc.so_reuseport", 0),
    ]
    result = grpc.aio.server(options=limits)
    result.add_generic_rpc_handlers((_handlers(service),))
    try:
        port = result.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"gRPC: {address} cannot be listened on: {error}") from error
    return result, port


def _handlers(service: Service) -> grpc.GenericRpcHandler:
    calls = _Calls(service)
    unary = {
        name: grpc.unary_unary_rpc_method_handler(
            _unary(name, getattr(calls, name)), response_serializer=_serialized
        )
        for name in (
            *("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata"),
            "ModelInfer",
        )
    }
    stream = grpc.stream_stream_rpc_method_handler(
        calls.ModelStreamInfer, response_serializer=_serialized
    )
    return grpc.method_handlers_generic_handler(SERVICE, {**unary, "ModelStreamInfer": stream})


def _unary(name: str, call: Callable[[Any], Awaitable[Any]]) -> Callable[[bytes, Any], Any]:
    """A call with one request and one answer. Errors are its status, also those of its bytes."""

    async def answered(data: bytes, context: Any) -> Any:
        try:
            return await call(_decoded(f"{name}Request", data))
        except ServeError as error:
            await context.abort(grpc.StatusCode[error.status.grpc], str(error))

    return answered


def _decoded(kind: str, data: bytes) -> Any:
    # gRPC would end the call, and a whole stream, with a status that says nothing.
    try:
        return MESSAGES[kind].FromString(data)
    except DecodeError as error:
        raise ServeError(Status.INVALID, f"the request is no {kind}: {error}") from error


def _serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString())


class _Calls:
    """The calls of the service, under their names in the protocol."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def ServerLive(self, request: Any) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self._service.is_ready)

    async def ModelReady(self, request: Any) -> Any:
        self._service.model(request.name, request.version)
        return MESSAGES["ModelReadyResponse"](ready=self._service.is_ready)

    async def ServerMetadata(self, request: Any) -> Any:
        return MESSAGES["ServerMetadataResponse"](**self._service.metadata())

    async def ModelMetadata(self, request: Any) -> Any:
        metadata = self._service.model_metadata(request.name, request.version)
        return MESSAGES["ModelMetadataResponse"](**metadata)

    async def ModelInfer(self, request: Any) -> Any:
        return await self._infer(request, MESSAGES["ModelInferResponse"]())

    async def ModelStreamInfer(self, requests: AsyncIterator[bytes], context: Any) -> Any:
        """Answer requests in their order; errors are messages, and the stream goes on."""
        answers: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue(_UNDER_WAY)

        async def take() -> None:
            try:
                async for request in requests:
                    await answers.put(asyncio.create_task(self._streamed(request)))
            finally:
                await answers.put(None)

        reader = asyncio.create_task(take())
        try:
            while (answer := await answers.get()) is not None:
                yield await answer
        finally:
            reader.cancel()

    async def _streamed(self, data: bytes) -> Any:
        streamed = MESSAGES["ModelStreamInferResponse"]()
        request = MESSAGES["ModelInferRequest"]()
        try:
            request = _decoded("ModelInferRequest", data)
            await self._infer(request, streamed.infer_response)
        except ServeError as error:
            # The id says which request it was.
            failed = MESSAGES["ModelInferResponse"](model_name=request.model_name, id=request.id)
            return type(streamed)(error_message=str(error), infer_response=failed)
        return streamed

    async def _infer(self, message: Any, response: Any) -> Any:
        """`response`, filled with the answer to a message."""
        parameters = _parameters("the request", message, SEQUENCE_PARAMETERS)
        sequence, start, end = sequence_of(parameters)
        for output in message.outputs:
            _parameters(f"output {output.name!r}", output)
        names = [output.name for output in message.outputs] or None
        request = Request(message.model_name, _inputs(message), names, sequence, start, end)
        results = await self._service.infer(request, message.model_version)
        response.MergeFromString(
            _head(message.model_name, tuple((n, x.dtype.str, x.shape) for n, x in results.items()))
        )
        if message.id:
            response.id = message.id
        response.raw_output_contents.extend([array.tobytes() for array in results.values()])
        return response


@lru_cache(256)
def _head(model: str, outputs: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bytes:
    """A response but for its id and its values, which is the same for most messages of a client."""
    response = MESSAGES["ModelInferResponse"](model_name=model, model_version=VERSION)
    for name, dtype, shape in outputs:
        response.outputs.add(name=name, datatype=datatype_of(np.dtype(dtype)), shape=shape)
    return _serialized(response)


def _parameters(where: str, item: Any, known: Collection[str] = ()) -> dict[str, Any]:
    if not item.parameters:
        return {}
    values = {}
    for name, parameter in item.parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        values[name] = None if choice is None else getattr(parameter, choice)
    check_parameters(where, values, known)
    return values


def _inputs(message: Any) -> dict[str, Array]:
    raw = list(message.raw_input_contents)
    if raw and len(raw) != len(message.inputs):
        raise ServeError(
            Status.INVALID,
            f"raw_input_contents: {len(raw)} for {len(message.inputs)} inputs",
        )
    inputs: dict[str, Array] = {}
    for position, item in enumerate(message.inputs):
        if item.name in inputs:
            raise ServeError(Status.INVALID, f"input {item.name!r} is given twice")
        _parameters(f"input {item.name!r}", item)
        if raw and item.HasField("contents"):
            raise ServeError(
                Status.INVALID, f"input {item.name!r}: contents, and raw_input_contents as well"
            )
        if raw:
            array = array_of_bytes(item.name, item.datatype, list(item.shape), raw[position])
        else:
            array = array_of_values(item.name, item.datatype, list(item.shape), _contents(item))
        inputs[item.name] = array
    return inputs


def _contents(item: Any) -> list[Any]:
    if item.datatype not in _CONTENTS:
        raise ServeError(
            Status.INVALID,
            f"input {item.name!r}: datatype {item.datatype!r} goes in raw_input_contents alone",
        )
    return list(getattr(item.contents, _CONTENTS[item.datatype]))
