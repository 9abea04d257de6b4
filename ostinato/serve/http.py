"""The protocol over HTTP, with tensors as JSON or as bytes behind it; and a WebSocket.

Source: https://github.com/kserve/open-inference-protocol (REST), and Triton's extension for binary
tensor data.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

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
    flag_of,
    sequence_of,
)
from ostinato.serve.service import Service
from ostinato.serve.websocket import Frames

Array = np.ndarray[Any, Any]
Answer = Callable[[HttpRequest], Awaitable[Response]]

# The header with the length of the JSON in front of the bytes of a body.
_HEADER = "inference-header-content-length"
# Digits of a number of bytes in 64 bits.
_MOST_DIGITS = 20
_BINARY, _BINARY_SIZE, _BINARY_OUTPUT = "binary_data", "binary_data_size", "binary_data_output"
_OF_REQUEST = SEQUENCE_PARAMETERS | {_BINARY_OUTPUT}


def application(service: Service, most: int) -> Starlette:
    """The ASGI application. most: bytes of the longest message."""
    rest = _Rest(service, most)
    frames = Frames(service)
    model = "/v2/models/{model}"
    routes = []
    for path in (model, model + "/versions/{version}"):
        routes += [
            Route(path, _safe(rest.model), methods=["GET"]),
            Route(path + "/ready", _safe(rest.model_ready), methods=["GET"]),
            Route(path + "/infer", _safe(rest.infer), methods=["POST"]),
            WebSocketRoute(path + "/stream", frames.serve),
        ]
    routes += [
        Route("/v2", _safe(rest.server), methods=["GET"]),
        Route("/v2/health/live", _safe(rest.live), methods=["GET"]),
        Route("/v2/health/ready", _safe(rest.ready), methods=["GET"]),
        Route("/metrics", _safe(rest.metrics), methods=["GET"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={HTTPException: _no_route, Exception: _unexpected}
    )


def _safe(answer: Answer) -> Answer:
    """`answer`, with errors as the protocol wants them."""

    async def guarded(http: HttpRequest) -> Response:
        try:
            return await answer(http)
        except ServeError as error:
            headers = {"Retry-After": "1"} if error.status in _LATER else None
            return JSONResponse({"error": str(error)}, error.status.http, headers)
        except ClientDisconnect:
            # Nobody reads this one.
            return Response(status_code=Status.INVALID.http)

    return guarded


async def _no_route(http: HttpRequest, error: Exception) -> Response:
    """The error of a path or a method that is none of the server's."""
    assert isinstance(error, HTTPException)
    text = f"{http.method} {http.url.path}: {error.detail}; docs/serving.md lists what there is"
    return JSONResponse({"error": text}, error.status_code, error.headers)


async def _unexpected(http: HttpRequest, error: Exception) -> Response:
    return JSONResponse({"error": f"{type(error).__name__}: {error}"}, Status.FAILED.http)


_LATER = (Status.FULL, Status.UNAVAILABLE)


class _Rest:
    """The handlers of the routes."""

    def __init__(self, service: Service, most: int) -> None:
        self._service, self._most = service, most

    async def server(self, http: HttpRequest) -> Response:
        return JSONResponse(self._service.metadata())

    async def live(self, http: HttpRequest) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, http: HttpRequest) -> Response:
        ready = self._service.is_ready
        return JSONResponse({"ready": ready}, 200 if ready else Status.UNAVAILABLE.http)

    async def metrics(self, http: HttpRequest) -> Response:
        return Response(self._service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def model(self, http: HttpRequest) -> Response:
        return JSONResponse(self._service.model_metadata(*_named(http)))

    async def model_ready(self, http: HttpRequest) -> Response:
        name, version = _named(http)
        self._service.model(name, version)
        ready = self._service.is_ready
        return JSONResponse(
            {"name": name, "ready": ready}, 200 if ready else Status.UNAVAILABLE.http
        )

    async def infer(self, http: HttpRequest) -> Response:
        model, version = _named(http)
        header, data = _split(http, await self._body(http))
        _check_keys("the request", header, ("id", "parameters", "inputs", "outputs"))
        parameters = _parameters("the request", header, _OF_REQUEST)
        sequence, start, end = sequence_of(parameters)
        of_all = flag_of("the request", parameters, _BINARY_OUTPUT)
        wanted = _objects("outputs", header["outputs"]) if "outputs" in header else None
        binary = dict(_asked(output, of_all) for output in wanted or ())
        inputs = _inputs(_objects("inputs", header.get("inputs")), data)
        names = [*binary] or None
        request = Request(model, inputs, names, sequence, start, end)
        common = {"model_name": model, "model_version": VERSION}
        if "id" in header:
            if not isinstance(header["id"], str):
                raise ServeError(Status.INVALID, f"id {header['id']!r}: expected a text")
            common["id"] = header["id"]
        results = await self._service.infer(request, version)
        return _response(common, results, {n: binary.get(n, of_all) for n in results})

    async def _body(self, http: HttpRequest) -> bytes:
        if http.headers.get("content-encoding", "identity") != "identity":
            raise ServeError(Status.INVALID, "Content-Encoding: compressed bodies are not taken")
        parts, size = [], 0
        async for part in http.stream():
            size += len(part)
            if size > self._most:
                raise ServeError(Status.TOO_LARGE, f"the message is longer than {self._most} bytes")
            parts.append(part)
        return b"".join(parts)


def _named(http: HttpRequest) -> tuple[str, str]:
    return http.path_params["model"], http.path_params.get("version", "")


def _split(http: HttpRequest, body: bytes) -> tuple[dict[str, Any], memoryview]:
    """The JSON of a body, and the bytes behind it."""
    text = http.headers.get(_HEADER, str(len(body)))
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) > len(body):
        raise ServeError(
            Status.INVALID,
            f"{_HEADER}: {text[:99]!r}, expected at most the {len(body)} of the body",
        )
    length = int(text)
    try:
        header = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise ServeError(Status.INVALID, f"the body is no JSON: {error}") from error
    return _mapping("the body", header), memoryview(body)[length:]


def _asked(output: Mapping[str, Any], of_all: bool) -> tuple[str, bool]:
    """The name of an output that is asked for, and whether it is answered as bytes."""
    name = _text("outputs", output)
    _check_keys(f"output {name!r}", output, ("name", "parameters"))
    parameters = _parameters(f"output {name!r}", output, (_BINARY,))
    return name, flag_of(f"output {name!r}", parameters, _BINARY, of_all)


def _parameters(where: str, item: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any]:
    found = _mapping(f"{where}: parameters", item.get("parameters", {}))
    check_parameters(where, found, known)
    return found


def _check_keys(where: str, item: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in item:
        if key not in known:
            expected = ", ".join(known)
            raise ServeError(Status.INVALID, f"{where}: {key!r}, expected some of {expected}")


def _inputs(listed: Sequence[Mapping[str, Any]], data: memoryview) -> dict[str, Array]:
    """The arrays of a request, out of its JSON or the bytes behind it."""
    inputs: dict[str, Array] = {}
    for item in listed:
        name = _text("inputs", item)
        datatype, shape = item.get("datatype"), item.get("shape")
        if name in inputs:
            raise ServeError(Status.INVALID, f"input {name!r} is given twice")
        if not isinstance(datatype, str):
            raise ServeError(Status.INVALID, f"input {name!r}: datatype {datatype!r}")
        _check_keys(f"input {name!r}", item, ("name", "datatype", "shape", "parameters", "data"))
        size = _parameters(f"input {name!r}", item, (_BINARY_SIZE,)).get(_BINARY_SIZE)
        if size is not None and "data" in item:
            raise ServeError(Status.INVALID, f"input {name!r}: data, and binary_data_size as well")
        if size is None:
            values = item.get("data")
            inputs[name] = array_of_values(name, datatype, _list(name, shape), values)
            continue
        if type(size) is not int or not 0 <= size <= len(data):
            raise ServeError(
                Status.INVALID,
                f"input {name!r}: binary_data_size {size!r}, {len(data)} bytes are left",
            )
        inputs[name] = array_of_bytes(name, datatype, _list(name, shape), data[:size])
        data = data[size:]
    if len(data):
        raise ServeError(Status.INVALID, f"{len(data)} bytes behind the last input")
    return inputs


def _list(name: str, shape: Any) -> list[Any]:
    if not isinstance(shape, list):
        raise ServeError(Status.INVALID, f"input {name!r}: shape {shape!r}, expected a list")
    return shape


def _mapping(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ServeError(Status.INVALID, f"{what}: expected an object, got {type(value).__name__}")
    return value


def _objects(what: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ServeError(Status.INVALID, f"{what}: expected a list of objects")
    return [_mapping(what, item) for item in value]


def _text(what: str, item: Mapping[str, Any]) -> str:
    if not isinstance(item.get("name"), str):
        raise ServeError(Status.INVALID, f"{what}: one has no name")
    return str(item["name"])


def _response(
    header: dict[str, Any], results: Mapping[str, Array], binary: Mapping[str, bool]
) -> Response:
    outputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, array in results.items():
        item: dict[str, Any] = {
            "name": name,
            "datatype": datatype_of(array.dtype),
            "shape": list(array.shape),
        }
        if binary[name]:
            data = np.ascontiguousarray(array).tobytes()
            item["parameters"] = {_BINARY_SIZE: len(data)}
            parts.append(data)
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ServeError(
                Status.INVALID,
                f"output {name!r} has NaN or infinities, which JSON has no numbers for: ask for "
                f"its bytes, with {_BINARY} or {_BINARY_OUTPUT}; a sequence has gone on",
            )
        else:
            item["data"] = array.ravel().tolist()
        outputs.append(item)
    text = json.dumps({**header, "outputs": outputs}).encode()
    if not parts:
        return Response(text, media_type="application/json")
    return Response(
        b"".join([text, *parts]),
        media_type="application/octet-stream",
        headers={_HEADER: str(len(text))},
    )
