"""What a server refuses before it starts."""

import asyncio
import re
import socket
from typing import Any

import pytest

from ostinato.errors import InputError
from tests.extras.serve.servers import DENOISER, STATES

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


@pytest.mark.parametrize("states", [STATES, {}], ids=["states", "plain"])
@pytest.mark.parametrize(
    ("shared", "said"),
    [({"rate": 16000}, "unknown input 'rate'"), ({"magnitude": [1.0]}, "input 'magnitude'")],
)
def test_shared_inputs_are_those_of_the_model(
    states: dict[str, str], shared: dict[str, Any], said: str
) -> None:
    from ostinato.serve import server
    from ostinato.serve.lanes import Served

    with pytest.raises(InputError, match=said):
        server.look([Served("m", str(DENOISER), states, shared=shared)])
