from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from tests.extras.serve.servers import Server, alone, frames, serving

pytestmark = pytest.mark.extras


def infer(server: Server, sequence: int, x: np.ndarray, **parameters: bool) -> Any:
    """The mask of a message, over gRPC; raises `grpc.RpcError`."""
    import grpc

    from ostinato.serve.messages import MESSAGES, SERVICE

    request = MESSAGES["ModelInferRequest"](model_name="m", raw_input_contents=[x.tobytes()])
    request.inputs.add(name="magnitude", datatype="FP32", shape=x.shape)
    request.parameters["sequence_id"].int64_param = sequence
    for name, flag in parameters.items():
        request.parameters[name].bool_param = flag
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=MESSAGES["ModelInferRequest"].SerializeToString,
            response_deserializer=MESSAGES["ModelInferResponse"].FromString,
        )
        answer = call(request, timeout=30)
    return np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(x.shape)


def failure(*arguments: Any, **parameters: bool) -> tuple[str, str]:
    import grpc

    with pytest.raises(grpc.RpcError) as caught:
        infer(*arguments, **parameters)
    return caught.value.code().name, caught.value.details()


def test_a_worker_that_is_killed_loses_its_own_sequences_alone() -> None:
    x = frames(1, 2)
    with serving() as server:
        for sequence in range(1, 9):
            infer(server, sequence, x[:1], sequence_start=True)
        os.kill(server.workers[0], signal.SIGKILL)
        time.sleep(0.5)
        lost = 0
        for sequence in range(1, 9):
            try:
                mask = infer(server, sequence, x[1:])
            except Exception as error:
                lost += 1
                assert error.code().name == "UNAVAILABLE"  # type: ignore[attr-defined]
                assert "ended by signal 9" in str(error)
            else:
                np.testing.assert_array_equal(mask, alone(x)[1:])
        assert lost == 4
        assert "lost sequences: 4 (1, 3, 5, 7)" in server.log.read_text()
        assert server.metric("ostinato_worker_deaths_total") == 1
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if server.get("/v2/health/ready")["ready"]:
                    break
            except OSError:
                time.sleep(0.1)
        np.testing.assert_array_equal(infer(server, 1, x, sequence_start=True), alone(x))


def test_back_pressure() -> None:
    x = frames(2, 1)
    with serving("--streams", "2") as server:
        for sequence in range(1, 5):
            infer(server, sequence, x, sequence_start=True)
        status, text = failure(server, 5, x, sequence_start=True)
        assert status == "RESOURCE_EXHAUSTED"
        assert "all 2 sequences of each worker are open" in text
        infer(server, 3, x, sequence_end=True)
        infer(server, 5, x, sequence_start=True)


def test_open_sequences_may_end_before_the_server_stops() -> None:
    x = frames(3, 2)
    with serving() as server:
        infer(server, 1, x[:1], sequence_start=True)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert failure(server, 2, x[:1], sequence_start=True)[0] == "UNAVAILABLE"
        infer(server, 1, x[1:], sequence_end=True)
        assert server.process.wait(20) == 0
        assert "stopping; open sequences (1) have 5 s to end" in server.log.read_text()
    with serving() as server:
        assert server.stop() == 0
        assert server.log.read_text().endswith("stopping\n")


def test_a_second_signal_ends_a_server_whose_sequences_are_open() -> None:
    x = frames(4, 2)
    with serving("--drain", "60") as server:
        infer(server, 1, x[:1], sequence_start=True)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.stop(20) == 0
        assert "ended by signal 15; lost sequences: 1 (1)" in server.log.read_text()


def test_a_worker_that_dies_while_the_server_stops_has_its_clients_told() -> None:
    x = frames(5, 2)
    with serving("--drain", "60", "--workers", "1") as server:
        infer(server, 1, x[:1], sequence_start=True)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        os.kill(server.workers[0], signal.SIGKILL)
        assert server.process.wait(20) == 0
        assert "ended by signal 9; lost sequences: 1 (1)" in server.log.read_text()


def test_bytes_that_are_no_message_are_refused_and_a_stream_goes_on() -> None:
    import grpc

    from ostinato.serve.messages import MESSAGES, SERVICE

    with serving("--workers", "0") as server, grpc.insecure_channel(server.grpc) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/{SERVICE}/ModelInfer")(b"\xff" * 9, timeout=30)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "the request is no ModelInferRequest" in caught.value.details()
        stream = channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            response_deserializer=MESSAGES["ModelStreamInferResponse"].FromString,
        )
        unknown = MESSAGES["ModelInferRequest"](model_name="none").SerializeToString()
        first, second = stream(iter((b"\xff" * 9, unknown)), timeout=30)
        assert "the request is no ModelInferRequest" in first.error_message
        assert "no model 'none'" in second.error_message
        assert "Traceback" not in server.log.read_text()


def test_a_server_whose_parent_dies_leaves_no_worker() -> None:
    with serving() as server:
        server.process.kill()
        server.process.wait()
        until = time.monotonic() + 20
        while any(_runs(pid) for pid in server.workers) and time.monotonic() < until:
            time.sleep(0.1)
        assert not any(_runs(pid) for pid in server.workers)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("workers", ["0", "2"])
def test_clients_that_come_and_go_have_the_bits_of_singles(workers: str) -> None:
    from benchmarks import serve_load

    with serving("--workers", workers) as server:
        result = asyncio.run(serve_load.churn(server.grpc, clients=60, seconds=4.0, seed=0))
    assert result.sequences > 60
    assert result.wrong == result.errors == 0
