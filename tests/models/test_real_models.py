"""Networks as PyTorch exports them: right, native, for all lengths of one session, in chunks.

`tools/export_models.py` wrote the files beside this one, with what PyTorch computes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ostinato
from tests import unoptimized, witness

FOLDER = Path(__file__).parent
MODELS = sorted(path.stem for path in FOLDER.glob("*.onnx"))
ULPS = 16
"""Allowed error, in units in the last place of an output's largest element."""

# How far the results of chunks may be from those of the whole: 0 for networks that add up the same
# numbers in the same order, whatever the chunk.
STREAMS = {
    "cached_decoder": 0,
    "conformer_streaming": ULPS,  # a key's place in the sum over keys depends on the chunk
    "gru": 0,
    "gru_2_layers": 0,
    "lstm": 0,
    "lstm_2_layers": 0,
    "lstm_projected": 0,
    "mamba": 0,
    "mingru": 0,
    "mingru_parallel": ULPS,  # running sums start anew in each chunk
    "rnn": 0,
    "rnn_relu_2_layers": 0,
    "slstm": 0,
    "tcn_streaming": 0,
}

Arrays = dict[str, np.ndarray]

every_model = pytest.mark.parametrize("model", MODELS)


@cache
def session(model: str) -> ostinato.InferenceSession:
    """The compiled model, from the cache of the run; nothing in it may need a fallback kernel.

    Of a network that two exporters wrote, one model does without LLVM's optimizations, in short
    registers.
    """
    network, _, exporter = model.partition(".")
    path, options = FOLDER / f"{model}.onnx", {"fallback": False}
    if exporter == "script" and f"{network}.dynamo" in MODELS:
        with pytest.MonkeyPatch.context() as patch:
            unoptimized.patch(patch, is_short=True)
            return ostinato.InferenceSession(path, **options)
    return ostinato.InferenceSession(path, **options)


@cache
def calls(model: str) -> list[tuple[Arrays, Arrays]]:
    """Inputs and PyTorch's outputs of each recorded call."""
    found: dict[str, tuple[Arrays, Arrays]] = {}
    with np.load(FOLDER / f"{model.partition('.')[0]}.npz") as file:
        for key in file.files:
            call, side, name = key.split("/")
            found.setdefault(call, ({}, {}))[side == "out"][name] = file[key]
    return list(found.values())


def run(model: str, feeds: Arrays) -> Arrays:
    names = [output.name for output in session(model).get_outputs()]
    return dict(zip(names, session(model).run(None, feeds), strict=True))


def assert_close(got: np.ndarray, expected: np.ndarray, ulps: int, what: str) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), what
    if got.dtype.kind != "f" or not ulps:
        np.testing.assert_array_equal(got, expected, err_msg=what)
    else:
        allowed = ulps * np.spacing(np.abs(expected).max(initial=0.0).astype(got.dtype))
        np.testing.assert_allclose(got, expected, rtol=0, atol=allowed, err_msg=what)


def test_every_model_is_recorded_and_every_record_is_a_models() -> None:
    assert {model.partition(".")[0] for model in MODELS} == {
        path.stem for path in FOLDER.glob("*.npz")
    }


def test_the_files_are_small() -> None:
    sizes = [path.stat().st_size for path in FOLDER.iterdir() if path.is_file()]
    assert max(sizes) < 100_000 and sum(sizes) < 1_000_000


@every_model
def test_it_computes_what_pytorch_does(model: str) -> None:
    assert len(calls(model)) == 4
    for call, (feeds, expected) in enumerate(calls(model)):
        got = run(model, feeds)
        assert got.keys() == expected.keys()
        for name in expected:
            assert_close(got[name], expected[name], ULPS, f"call {call}, output {name}")


@every_model
def test_it_computes_what_onnxruntime_does(model: str) -> None:
    serialised = (FOLDER / f"{model}.onnx").read_bytes()
    for call, (feeds, _) in enumerate(calls(model)):
        expected = witness.run(serialised, feeds, optimized=True)
        for (name, got), value in zip(run(model, feeds).items(), expected, strict=True):
            assert_close(got, value, ULPS, f"call {call}, output {name}")


@every_model
def test_a_session_compiles_once_for_all_sizes(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = session(model)

    def refuse(*_: object) -> None:
        raise AssertionError("compiled while running")

    monkeypatch.setattr("ostinato.compiler.compile_model", refuse)
    shapes = {tuple(value.shape for value in feeds.values()) for feeds, _ in calls(model)}
    assert len(shapes) > 1
    for feeds, _ in calls(model):
        assert session(model) is compiled
        run(model, feeds)


@every_model
def test_a_bound_call_gives_the_same_bits(model: str) -> None:
    feeds, _ = calls(model)[0]
    call = session(model).bind({name: np.ascontiguousarray(value) for name, value in feeds.items()})
    call()
    for name, value in run(model, feeds).items():
        np.testing.assert_array_equal(call.outputs[name], value, err_msg=name)


@pytest.mark.parametrize("chunk", [1, 3, 5])
@pytest.mark.parametrize("model", [m for m in MODELS if m.partition(".")[0] in STREAMS])
def test_chunks_with_the_state_passed_on_give_the_whole(model: str, chunk: int) -> None:
    feeds, _ = calls(model)[2]
    whole = run(model, feeds)
    state = {name: value for name, value in feeds.items() if f"next_{name}" in whole}
    moving = {name: value for name, value in feeds.items() if name not in state}
    (steps,) = {value.shape[1] for value in moving.values()}
    parts = []
    for start in range(0, steps, chunk):
        part = {name: value[:, start : start + chunk] for name, value in moving.items()}
        results = run(model, part | state)
        state = {name: results.pop(f"next_{name}") for name in state}
        parts.append(results)
    assert len(parts) > 1
    joined = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    final = joined | {f"next_{name}": value for name, value in state.items()}
    assert final.keys() == whole.keys()
    for name, value in whole.items():
        assert_close(final[name], value, STREAMS[model.partition(".")[0]], name)


def test_the_documentation_names_every_network() -> None:
    page = (FOLDER.parents[1] / "docs" / "real_models.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    exporters = {"both": {"dynamo", "script"}, "dynamo": {"dynamo"}, "script": {"script"}}
    named = {
        f"{name}.{exporter}"
        for names, *_, last in (row.strip("| ").split(" | ") for row in rows)
        if last in exporters
        for name in names.replace("`", "").split(", ")
        for exporter in exporters[last]
    }
    assert named == set(MODELS)
