from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato

pytestmark = pytest.mark.extras
ROOT = Path(ostinato.__file__).parents[1]
DENOISER = ROOT / "ostinato" / "demo" / "denoiser.onnx"
STATES = {"state": "state_out"}


def alone(magnitudes: np.ndarray) -> np.ndarray:
    session = ostinato.InferenceSession(DENOISER)
    feeds = {"magnitude": magnitudes[:, None], "state": np.zeros((1, 1, 96), np.float32)}
    return np.asarray(session.run(["mask"], feeds)[0])[:, 0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def test_a_corpus_through_two_actors(cluster: Any) -> None:
    from ostinato.ray import Predictor

    rng = np.random.default_rng(0)
    rows = [
        {"id": i, "magnitude": rng.random((rng.integers(5, 8), 161), np.float32)} for i in range(30)
    ]
    rows[3]["magnitude"] = np.zeros((5, 100), np.float32)
    scored = (
        cluster.data.from_items(rows)
        .map_batches(
            Predictor,
            fn_constructor_args=(str(DENOISER),),
            fn_constructor_kwargs={"states": STATES, "errors": "error"},
            batch_size=8,
            compute=cluster.data.ActorPoolStrategy(size=2),
        )
        .take_all()
    )
    assert len(scored) == len(rows)
    for row in scored:
        if row["id"] == 3:
            assert "'magnitude'" in row["error"]
        else:
            assert not row["error"]
            np.testing.assert_array_equal(row["mask"], alone(rows[row["id"]]["magnitude"]))


def test_sequences_stay_with_their_state(cluster: Any) -> None:
    from ray import serve

    from ostinato.ray import application

    # As many shards as there are CPUs: the ingress takes none.
    app = application(DENOISER, STATES, shards=2)
    serve.run(app, route_prefix="/")
    address = "http://127.0.0.1:8000/v2/models/denoiser/infer"
    x = np.random.default_rng(1).random((20, 161), np.float32)

    def post(part: np.ndarray, **parameters: Any) -> np.ndarray:
        shape = [len(part), 1, 161]
        tensor = {"name": "magnitude", "datatype": "FP32", "shape": shape}
        body = {"inputs": [{**tensor, "data": part.ravel().tolist()}], "parameters": parameters}
        with urllib.request.urlopen(address, json.dumps(body).encode(), timeout=60) as response:
            (output,) = json.loads(response.read())["outputs"]
        return np.array(output["data"], np.float32).reshape(part.shape)

    try:
        for sequence in range(1, 7):
            first = post(x[:10], sequence_id=sequence, sequence_start=True)
            second = post(x[10:], sequence_id=sequence, sequence_end=True)
            np.testing.assert_array_equal(np.concatenate([first, second]), alone(x))
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(x, sequence_id=1)
        assert caught.value.code == 404
        post(x, sequence_id=9, sequence_start=True)
        with urllib.request.urlopen("http://127.0.0.1:8000/metrics", timeout=60) as response:
            lines = dict(
                line.rsplit(" ", 1) for line in response.read().decode().splitlines()[::-1]
            )
        # What shards count comes with their answers.
        assert float(lines['ostinato_batch_size_count{model="denoiser"}']) == 13
        assert float(lines['ostinato_busy_seconds_total{model="denoiser"}']) > 0
        assert float(lines["ostinato_sequences"]) == 1
        assert float(lines["ostinato_queue_messages"]) == 0
    finally:
        serve.shutdown()


def test_the_example_scores_a_folder_with_a_file_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    rng = np.random.default_rng(0)
    for number in range(3):
        with wave.open(str(tmp_path / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes((rng.standard_normal(8000) * 3000).astype("<i2").tobytes())
    (tmp_path / "broken.wav").write_bytes(b"RIFF and nothing else")
    table = tmp_path / "scores.csv"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "score_corpus.py"), str(tmp_path), str(table)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "3 recordings scored, 1 could not be read" in done.stdout
    with open(table) as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["error"]) for row in rows] == [False, False, False, True]
    assert all(float(row["removed_db"]) > 0 for row in rows[:3])
