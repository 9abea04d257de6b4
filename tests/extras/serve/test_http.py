from __future__ import annotations

import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.extras.serve.servers import BINS, Server, alone, frames, serving

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--max-message", "1", "--idle", "1") as running:
        yield running


def post(server: Server, body: bytes, path: str = "/v2/models/m/infer", **headers: str) -> Any:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server.http + path, body, names)
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


def message(x: np.ndarray, **parameters: Any) -> dict[str, Any]:
    tensor = {"name": "magnitude", "datatype": "FP32", "shape": list(x.shape)}
    return {"inputs": [{**tensor, "data": x.ravel().tolist()}], "parameters": parameters}


def refused(server: Server, body: bytes, path: str = "/v2/models/m/infer", **headers: str) -> Any:
    """Status and text of an error."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, body, path, **headers)
    return caught.value.code, json.loads(caught.value.read())["error"]


def test_a_sequence_in_json_has_the_bits_of_a_stream(server: Server) -> None:
    x = frames(1, 6)
    parts = []
    for i in range(3):
        body = message(
            x[2 * i : 2 * i + 2], sequence_id=1, sequence_start=i == 0, sequence_end=i == 2
        )
        answer = json.loads(post(server, json.dumps({**body, "id": "a"}).encode()))
        assert answer["id"] == "a"
        (output,) = answer["outputs"]
        assert output["name"] == "mask"
        parts.append(np.array(output["data"], np.float32).reshape(output["shape"]))
    np.testing.assert_array_equal(np.concatenate(parts), alone(x))


def test_health_and_metadata(server: Server) -> None:
    assert server.get("/v2/health/live") == {"live": True}
    assert server.get("/v2/health/ready") == {"ready": True}
    assert server.get("/v2/models/m/versions/1/ready") == {"name": "m", "ready": True}
    assert "sequence" in server.get("/v2")["extensions"]
    assert server.get("/v2/models/m")["inputs"] == [
        {"name": "magnitude", "datatype": "FP32", "shape": [-1, -1, BINS]}
    ]


@pytest.mark.parametrize(
    ("body", "headers", "status", "text"),
    [
        (b"{", {}, 400, "no JSON"),
        (b"[]", {}, 400, "expected an object"),
        (b"{}", {}, 400, "expected a list of objects"),
        (b'{"inputs": [{}]}', {}, 400, "has no name"),
        (b"{}", {"Inference_Header_Content_Length": "99"}, 400, "expected at most the 2"),
        (b"{}", {"Content_Encoding": "gzip"}, 400, "compressed bodies"),
        (b" " * (2 << 20), {}, 413, "longer than 1048576 bytes"),
    ],
)
def test_bodies_that_are_no_requests(
    server: Server, body: bytes, headers: dict[str, str], status: int, text: str
) -> None:
    code, said = refused(server, body, **headers)
    assert code == status
    assert text in said


def test_half_a_frame_leaves_the_sequence_as_it_was(server: Server) -> None:
    x = frames(2, 2)
    post(server, json.dumps(message(x[:1], sequence_id=2, sequence_start=True)).encode())
    tensor = {"name": "magnitude", "datatype": "FP32", "shape": [1, 1, BINS]}
    for size, shape in ((BINS * 2, [1, 1, BINS]), (BINS * 4 - 4, [1, 1, BINS - 1])):
        header = json.dumps(
            {
                "inputs": [{**tensor, "shape": shape, "parameters": {"binary_data_size": size}}],
                "parameters": {"sequence_id": 2},
            }
        ).encode()
        code, _ = refused(
            server, header + b"\0" * size, Inference_Header_Content_Length=str(len(header))
        )
        assert code == 400
    last = message(x[1:], sequence_id=2, sequence_end=True)
    answer = json.loads(post(server, json.dumps(last).encode()))
    data = np.array(answer["outputs"][0]["data"], np.float32).reshape(1, 1, BINS)
    np.testing.assert_array_equal(data, alone(x)[1:])


def test_results_that_are_no_numbers_of_json(server: Server) -> None:
    x = np.full((1, 1, BINS), np.inf, np.float32)
    body = message(x, sequence_id=9, sequence_start=True)
    code, said = refused(server, json.dumps(body).encode())
    assert code == 400
    assert "output 'mask'" in said and "binary_data" in said
    body = message(x, sequence_id=9, sequence_end=True, binary_data_output=True)
    answer = post(server, json.dumps(body).encode())
    assert np.isnan(np.frombuffer(answer[-4 * BINS :], np.float32)).any()


def test_sequences_that_are_not_as_they_should_be(server: Server) -> None:
    x = frames(3, 1)

    def said(**parameters: Any) -> tuple[int, str]:
        return refused(server, json.dumps(message(x, **parameters)).encode())

    assert said(sequence_id=30)[0] == 404
    assert "keeps states (state): send sequence_id" in said()[1]
    post(server, json.dumps(message(x, sequence_id=31, sequence_start=True)).encode())
    code, text = said(sequence_id=31, sequence_start=True)
    assert code == 409
    assert "sequence 31 is open" in text
    post(server, json.dumps(message(x, sequence_id=31, sequence_end=True)).encode())
    assert said(sequence_id=31)[0] == 404
    body = json.dumps(message(x)).encode()
    assert refused(server, body, "/v2/models/other/infer")[0] == 404
    assert refused(server, body, "/v2/models/m/versions/2/infer")[0] == 404


def test_a_silent_sequence_ends(server: Server) -> None:
    import time

    x = frames(4, 1)
    post(server, json.dumps(message(x, sequence_id=4, sequence_start=True)).encode())
    until = time.monotonic() + 20
    while server.metric("ostinato_sequences ") and time.monotonic() < until:
        time.sleep(0.1)
    code, text = refused(server, json.dumps(message(x, sequence_id=4)).encode())
    assert code == 404
    assert "silent for more than 1 s" in text


def test_metrics(server: Server) -> None:
    x = frames(5, 10)
    body = message(x, sequence_id=5, sequence_start=True, sequence_end=True)
    # A series is there once something has been counted.
    post(server, json.dumps(body).encode())
    before = server.metric("ostinato_signal_seconds_total")
    post(server, json.dumps(body).encode())
    assert server.metric("ostinato_signal_seconds_total") - before == pytest.approx(0.16)
    assert 0 < server.metric('ostinato_real_time_factor{model="m"}') < 1
    assert server.metric('ostinato_request_seconds_quantile{model="m",quantile="0.99"}') > 0
    assert server.metric('ostinato_batch_size_count{model="m"}') > 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"outptus": []}, "the request: 'outptus', expected some of id, parameters"),
        ({"id": 5}, "id 5: expected a text"),
        ({"parameters": {"sequence_id": 9, "priority": 1}}, "'priority' is not served"),
        ({"parameters": {"sequence_id": 9, "timeout": 100}}, "'timeout' is not served"),
        ({"parameters": {"sequence_id": 9, "mine": 1}}, "'mine' is not served: expected binary_da"),
        ({"parameters": {"binary_data_output": 1}}, "binary_data_output 1: expected true or false"),
        ({"parameters": {"sequence_id": "a" * 129}}, "a text of up to 128 characters"),
        ({"parameters": {"sequence_id": 2**64}}, "a number of 64 bits"),
        *(
            ({"outputs": [{"name": "mask", "parameters": {name: 2}}]}, f"{name!r} is not served")
            for name in ("classification", "shared_memory_region", "content_type")
        ),
    ],
)
def test_what_nobody_reads_is_refused_by_name(
    server: Server, change: dict[str, Any], text: str
) -> None:
    body = {**message(frames(2, 1), sequence_id=9, sequence_start=True), **change}
    status, error = refused(server, json.dumps(body).encode())
    assert status == 400 and text in error


def test_zeros_of_what_is_not_served_ask_for_nothing(server: Server) -> None:
    of_request = {"sequence_id": 9, "sequence_start": True, "sequence_end": True, "priority": 0}
    body = message(frames(2, 1), **of_request, timeout=0)
    body["outputs"] = [{"name": "mask", "parameters": {"classification": 0}}]
    assert post(server, json.dumps(body).encode())


def test_json_as_deep_as_the_stack_and_paths_that_are_none(server: Server) -> None:
    assert "no JSON" in refused(server, b"[" * 100_000)[1]
    long = {"Inference_Header_Content_Length": "9" * 5000}
    assert "expected at most" in refused(server, b"{}", **long)[1]
    assert refused(server, b"", "/v2/nothing")[0] == 404
    assert refused(server, b"", "/v2/models/m/ready")[0] == 405
    body = message(np.full((1, 1, BINS), 1e300), sequence_id=3, sequence_start=True)
    assert "values that no FP32 has" in refused(server, json.dumps(body).encode())[1]


def test_header_fields_have_an_end(server: Server) -> None:
    host, port = server.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"X-More: " + b"a" * 10_000 + b"\r\n")
            assert connection.recv(12) == b"HTTP/1.1 400"
    assert server.get("/v2/health/live") == {"live": True}
