"""Where a server cannot listen."""

import asyncio
import re
import socket

import pytest

pytestmark = pytest.mark.extras


@pytest.mark.parametrize(("transport", "option"), [("HTTP", "http"), ("gRPC", "grpc")])
def test_an_address_that_is_taken_is_named_before_anything_starts(
    transport: str, option: str
) -> None:
    from ostinato.serve import server

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = server.Settings("127.0.0.1", **{"http": None, "grpc": None, option: port})
        expected = f"{transport}: 127.0.0.1:{port} cannot be listened on (Address already in use)"
        with pytest.raises(OSError, match=f"^{re.escape(expected)}: name another port"):
            asyncio.run(server.serve([], {}, settings, lambda *_: pytest.fail("it started")))
