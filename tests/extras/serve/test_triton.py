from __future__ import annotations

import pytest

from tests.extras import environments
from tests.extras.serve.servers import serving

pytestmark = pytest.mark.extras

PROGRAM = """
import sys
import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http

x = np.random.default_rng(0).random((30, 1, 161), np.float32)


def through(module, client, sequence):
    parts = []
    for k in range(3):
        part = module.InferInput("magnitude", [10, 1, 161], "FP32")
        part.set_data_from_numpy(x[10 * k : 10 * k + 10])
        flags = dict(sequence_id=sequence, sequence_start=k == 0, sequence_end=k == 2)
        parts.append(client.infer("m", [part], **flags).as_numpy("mask"))
    return np.concatenate(parts)


over_http = http.InferenceServerClient(sys.argv[1].removeprefix("http://"))
over_grpc = grpc.InferenceServerClient(sys.argv[2])
for client in (over_http, over_grpc):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m")
assert over_http.get_model_metadata("m")["inputs"][0]["shape"] == [-1, -1, 161]
assert over_grpc.get_model_metadata("m").outputs[0].name == "mask"
first = through(http, over_http, 7)
assert np.array_equal(first, through(grpc, over_grpc, 7))
assert np.array_equal(first, through(grpc, over_grpc, "text"))
try:
    over_grpc.infer("m", [], sequence_id=99)
    raise SystemExit("an unknown sequence was taken")
except grpc.InferenceServerException as error:
    assert "is not open" in str(error), error

frame = grpc.InferInput("magnitude", [10, 1, 161], "FP32")
frame.set_data_from_numpy(x[:10])
labels = grpc.InferRequestedOutput("mask", class_count=3)
shared = grpc.InferRequestedOutput("mask")
shared.set_shared_memory("region", 1000)
for options, name in (
    (dict(outputs=[labels]), "classification"),
    (dict(outputs=[shared]), "shared_memory"),
    (dict(priority=1), "priority"),
    (dict(timeout=1000), "timeout"),
    (dict(parameters={"mine": 1}), "mine"),
):
    try:
        over_grpc.infer("m", [frame], sequence_id=98, sequence_start=True, **options)
        raise SystemExit(f"{name} was taken and ignored")
    except grpc.InferenceServerException as error:
        assert f"parameter '{name}" in str(error) and "is not served" in str(error), error

answers = []
over_grpc.start_stream(lambda result, error: answers.append((result, error)))
for k in range(3):
    part = grpc.InferInput("magnitude", [10, 1, 161], "FP32")
    part.set_data_from_numpy(x[10 * k : 10 * k + 10])
    flags = dict(sequence_id=8, sequence_start=k == 0, sequence_end=k == 2)
    over_grpc.async_stream_infer("m", [part], **flags)
over_grpc.stop_stream()
assert np.array_equal(first, np.concatenate([result.as_numpy("mask") for result, _ in answers]))
# A channel that is closed while the interpreter ends may wait for ever.
over_grpc.close()
over_http.close()
print("all equal")
"""


def test_nvidias_client() -> None:
    environments.python("triton")
    with serving() as server:
        done = environments.run("triton", "-c", PROGRAM, server.http, server.grpc)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all equal\n"
