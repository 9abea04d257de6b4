from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytestmark = pytest.mark.extras

SUM = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 2] x, float[N, 2] s)
    => (float[N, 2] y, float[N, 2] t) { y = Add(x, s)  t = Add(x, s) }"""


@pytest.fixture
def served(tmp_path: Path) -> Any:
    from ostinato.serve.lanes import Served

    onnx.save(onnx.parser.parse_model(SUM), str(tmp_path / "m.onnx"))
    return Served("m", str(tmp_path / "m.onnx"), {"s": "t"}, streams=4)


def request(value: float, sequence: int, **flags: bool) -> Any:
    from ostinato.serve.protocol import Request

    return Request("m", {"x": np.full((1, 2), value, np.float32)}, None, sequence, **flags)


@pytest.mark.parametrize("workers", [0, 1])
def test_sequences_of_a_cluster(served: Any, workers: int) -> None:
    from ostinato.serve.cluster import Cluster, Limits
    from ostinato.serve.metrics import Metrics
    from ostinato.serve.protocol import ServeError

    async def work() -> None:
        cluster = Cluster({"m": served}, workers, Limits(), Metrics())
        await cluster.start()
        assert len(cluster.processes) == workers
        for turn in range(3):
            answers = await asyncio.gather(
                *(cluster.infer(request(n, n, start=not turn)) for n in range(1, 5))
            )
            sums = [float(answer["y"][0, 0]) for answer in answers]
            assert sums == [(turn + 1) * n for n in range(1, 5)]
        with pytest.raises(ServeError, match="all 4 sequences"):
            await cluster.infer(request(1, 5, start=True))
        answer = await cluster.infer(request(1, 1, end=True))
        assert float(answer["y"][0, 0]) == 4
        answer = await cluster.infer(request(1, 5, start=True))
        assert float(answer["y"][0, 0]) == 1
        with pytest.raises(ServeError, match="not open"):
            await cluster.infer(request(1, 1))
        # Clients that leave before their answer: their places are free again.
        cluster.close(("m", 2))
        for _ in range(10):
            task = asyncio.create_task(cluster.infer(request(1, 9, start=True)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await cluster.infer(request(1, 9, start=True))
        await cluster.drain(0)

    asyncio.run(work())


def test_messages_of_a_few_turns_of_the_loop_are_one_call(served: Any) -> None:
    from ostinato.serve.cluster import Cluster, Limits
    from ostinato.serve.metrics import Metrics

    async def work() -> None:
        metrics = Metrics()
        cluster = Cluster({"m": served}, 0, Limits(), metrics)
        await cluster.start()
        tasks = []
        for number in range(1, 5):
            tasks.append(asyncio.create_task(cluster.infer(request(1, number, start=True))))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        name, label = "ostinato_batch_size", {"model": "m"}
        assert metrics.registry.get_sample_value(f"{name}_sum", label) == 4
        assert metrics.registry.get_sample_value(f"{name}_count", label) == 1
        await cluster.drain(0)

    asyncio.run(work())


def test_a_lane_that_fails_takes_its_sequences_with_it(
    served: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ostinato.serve.cluster import Cluster, Limits
    from ostinato.serve.lanes import Lane
    from ostinato.serve.metrics import Metrics
    from ostinato.serve.protocol import ServeError, Status

    async def work() -> None:
        cluster = Cluster({"m": served}, 0, Limits(), Metrics())
        await cluster.start()
        await cluster.infer(request(1, 7, start=True))
        with monkeypatch.context() as patched:
            patched.setattr(Lane, "step", lambda self: 1 / 0)
            with pytest.raises(ServeError, match="ZeroDivisionError") as caught:
                await cluster.infer(request(1, 7))
        assert caught.value.status is Status.UNAVAILABLE
        while not cluster.is_ready:
            await asyncio.sleep(0.01)
        with pytest.raises(ServeError, match="lost: start them again"):
            await cluster.infer(request(1, 7))
        answer = await cluster.infer(request(1, 7, start=True))
        assert float(answer["y"][0, 0]) == 1
        await cluster.drain(0)

    asyncio.run(work())
    assert "lost sequences: 1 (7)" in caplog.text
