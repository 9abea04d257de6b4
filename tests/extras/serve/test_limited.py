"""Connections whose requests never end are closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytestmark = pytest.mark.extras

REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"


async def exchanged(*parts: bytes) -> bytes:
    """What a server of little patience answers to a request in parts, until it closes."""
    import uvicorn

    from ostinato.serve.limited import LimitedProtocol

    class Impatient(LimitedProtocol):
        patience = 0.3

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(
        answer, port=0, http=Impatient, lifespan="off", log_level="error", timeout_keep_alive=1
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.05)
    found = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    server.should_exit = True
    await task
    return found


@pytest.mark.parametrize("parts", [(), (REQUEST,), (REQUEST + b"\r\n", b"ab")])
def test_a_request_that_does_not_end_closes_the_connection(parts: tuple[bytes, ...]) -> None:
    assert asyncio.run(exchanged(*parts)) == b""


def test_a_whole_request_is_answered() -> None:
    assert b"abcd" in asyncio.run(exchanged(REQUEST, b"\r\n", b"ab", b"cd"))
