"""A connection that is a stream: a message of raw frames in, one of raw outputs out.

For browsers and whoever has bytes rather than JSON. `ws://HOST/v2/models/MODEL/stream` says first,
as JSON, which inputs and outputs there are. A binary message then has the values of all inputs,
row-major, one behind the other, little-endian; the answer has those of all outputs, or of those
named by `?outputs=a,b`. One size of the inputs may be open: it follows from the length. A message
that does not fit is answered by JSON with `error`; the stream goes on. Closing the connection ends
the stream.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect

from ostinato.serve.protocol import (
    DATATYPES,
    Request,
    ServeError,
    Status,
    Tensor,
    array_of_bytes,
    check_parameters,
)
from ostinato.serve.service import Interface, Service

Array = np.ndarray[Any, Any]

# The status that closes a connection which asks for what does not exist (RFC 6455, 7.4.1: policy).
_REFUSED = 1008
_LOST = (Status.UNAVAILABLE, Status.NOT_FOUND)


class Frames:
    """The handler of all such connections of a server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._numbers = itertools.count(1)

    async def serve(self, socket: WebSocket) -> None:
        """Serve a connection until it is closed."""
        model = socket.path_params["model"]
        await socket.accept()
        try:
            found = self._service.model(model, socket.path_params.get("version", ""))
            check_parameters("the address", socket.query_params, ("outputs",))
            wanted = _outputs(found, socket.query_params.get("outputs"))
        except ServeError as error:
            await socket.send_text(json.dumps({"error": str(error)}))
            await socket.close(_REFUSED)
            return
        described = self._service.model_metadata(model, "")
        described["outputs"] = [o for o in described["outputs"] if o["name"] in wanted]
        await socket.send_text(json.dumps(described))
        sequence = f"websocket {next(self._numbers)}" if self._service.has_states(model) else None
        await self._exchange(socket, model, found, wanted, sequence)

    async def _exchange(
        self,
        socket: WebSocket,
        model: str,
        found: Interface,
        wanted: list[str],
        sequence: str | None,
    ) -> None:
        started = sequence is None
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                try:
                    inputs = _arrays(found, message.get("bytes"))
                    request = Request(model, inputs, wanted, sequence, start=not started)
                    results = await self._service.infer(request)
                except ServeError as error:
                    # A sequence that was lost with a worker, or was silent for too long, begins
                    # anew.
                    started = started and error.status not in _LOST
                    await socket.send_text(json.dumps({"error": str(error)}))
                    continue
                started = True
                await socket.send_bytes(b"".join(results[name].tobytes() for name in wanted))
        except WebSocketDisconnect:
            return
        finally:
            if sequence is not None:
                self._service.close(model, sequence)


def _outputs(found: Interface, text: str | None) -> list[str]:
    names = [output.name for output in found.outputs]
    if text is None:
        return names
    for name in text.split(","):
        if name not in names:
            raise ServeError(
                Status.INVALID, f"output {name!r}: expected some of {', '.join(names)}"
            )
    return text.split(",")


def _arrays(found: Interface, data: bytes | None) -> dict[str, Array]:
    """The inputs in a message, whose length says how many frames it has; open sizes else are 1."""
    if found.unclear:
        raise ServeError(
            Status.INVALID,
            f"input {found.unclear[0]!r} has several open sizes, which bytes alone do not tell: "
            "send messages over HTTP or gRPC",
        )
    if data is None:
        raise ServeError(Status.INVALID, "expected a binary message with the values of the inputs")
    sizes = {tensor.name: _bytes(tensor) for tensor in found.inputs}
    fixed = sum(size for name, size in sizes.items() if name not in found.times)
    each = sum(sizes[name] for name in found.times)
    count, rest = divmod(len(data) - fixed, each) if each else (1, len(data) - fixed)
    if rest or count < 1:
        whole = f"{fixed} bytes and {each} for each frame" if each else f"{fixed} bytes"
        raise ServeError(
            Status.INVALID, f"a message has {whole}, got {len(data)} bytes: no whole frames"
        )
    arrays, view = {}, memoryview(data)
    for tensor in found.inputs:
        shape, size = [abs(size) for size in tensor.shape], sizes[tensor.name]
        if tensor.name in found.times:
            shape[found.times[tensor.name]], size = count, size * count
        arrays[tensor.name] = array_of_bytes(tensor.name, tensor.datatype, shape, view[:size])
        view = view[size:]
    return arrays


def _bytes(tensor: Tensor) -> int:
    """Bytes of a tensor whose open sizes are 1."""
    return math.prod(map(abs, tensor.shape)) * np.dtype(DATATYPES[tensor.datatype]).itemsize
