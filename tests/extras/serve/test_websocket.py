from __future__ import annotations

import json

import numpy as np
import pytest

from tests.extras.serve.servers import BINS, alone, frames, serving

pytestmark = pytest.mark.extras


def test_raw_frames_in_and_out() -> None:
    from websockets.sync.client import connect

    x = frames(1, 7)
    with serving() as server:
        address = server.http.replace("http", "ws") + "/v2/models/m/stream"
        with connect(address) as socket:
            described = json.loads(socket.recv())
            assert [output["name"] for output in described["outputs"]] == ["mask"]
            parts = []
            for start, stop in ((0, 1), (1, 4), (4, 7)):
                socket.send(x[start:stop].tobytes())
                parts.append(np.frombuffer(socket.recv(), np.float32).reshape(-1, 1, BINS))
                socket.send(b"\0" * 5)
                assert "no whole frames" in json.loads(socket.recv())["error"]
                socket.send("text")
                assert "binary message" in json.loads(socket.recv())["error"]
            np.testing.assert_array_equal(np.concatenate(parts), alone(x))
            assert server.metric("ostinato_sequences ") == 1
        with connect(address + "?outputs=nothing") as socket:
            assert "'nothing'" in json.loads(socket.recv())["error"]
        with connect(address.replace("/m/", "/other/")) as socket:
            assert "no model 'other'" in json.loads(socket.recv())["error"]
        assert server.metric("ostinato_sequences ") == 0
