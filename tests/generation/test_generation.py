"""Decoders as PyTorch exports them, and whole searches: native, and right to the token.

`tools/export_decoders.py` wrote the files in tests/models/generation, with what PyTorch generates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import compose, helper

import ostinato
from benchmarks.bench_generation import transducer_loop
from ostinato import decoding
from tests import witness
from tests.decoding.test_search import NEW, generate, sampler, search_beams
from tests.models.test_real_models import ULPS, assert_close

FOLDER = Path(__file__).parents[1] / "models" / "generation"
TRANSDUCER = tuple(f"transducer_{part}" for part in ("encoder", "predictor", "joint"))
CALLED_ONCE = ("transducer_search", *TRANSDUCER, "tacotron", "whisper_encoder")
TWO_LAYERS = {name: f"next_{name}" for name in ("keys_0", "values_0", "keys_1", "values_1")}
# Sums whose terms are larger than what they add up to.
OF_LARGER_TERMS = {"gates": 128}

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]


@dataclass(frozen=True)
class Decoder:
    """A step, as `decoding.loop` takes it. counted: the input that tells how many tokens came."""

    states: Mapping[str, str]
    counted: str | None = None
    is_mask: bool = False

    @property
    def options(self) -> dict[str, Any]:
        parts = (
            {} if self.counted is None else {"mask" if self.is_mask else "position": self.counted}
        )
        return {"states": self.states, "token": "token", **parts}


DECODERS = {
    "gpt2": Decoder(TWO_LAYERS, "position"),
    "llama": Decoder(TWO_LAYERS, "mask", is_mask=True),
    "t5": Decoder(TWO_LAYERS),
    "whisper": Decoder({"keys": "next_keys", "values": "next_values"}, "position"),
}
every_decoder = pytest.mark.parametrize("name", DECODERS)


@cache
def calls(name: str) -> list[tuple[Arrays, Arrays]]:
    """Inputs and PyTorch's outputs of each recorded call."""
    found: dict[str, tuple[Arrays, Arrays]] = {}
    with np.load(FOLDER / f"{name}.npz") as file:
        for key in file.files:
            call, side, value = key.split("/")
            found.setdefault(call, ({}, {}))[side == "out"][value] = file[key]
    return list(found.values())


@cache
def ours(name: str) -> ostinato.InferenceSession:
    """The model of a file; nothing in it may need a fallback kernel."""
    return ostinato.InferenceSession(FOLDER / f"{name}.onnx", fallback=False, cache_dir=None)


@cache
def theirs(name: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(FOLDER / f"{name}.onnx", options)


def loop(name: str, **options: Any) -> onnx.ModelProto:
    return decoding.loop(FOLDER / f"{name}.onnx", **DECODERS[name].options, **options)


def native(model: onnx.ModelProto) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(model, fallback=False, cache_dir=None)


class Steps:
    """A plain Python loop over the step: what each token gives, from empty caches."""

    def __init__(self, name: str, run: Run, others: Arrays, rows: int) -> None:
        self._decoder, self._run, self._others, self._rows = DECODERS[name], run, others, rows
        inputs = {node.name: node for node in ours(name).get_inputs()}
        self._inputs = inputs
        self.states = {state: self._empty(inputs[state].shape) for state in self._decoder.states}
        self.count = 0

    def _empty(self, shape: list[Any]) -> np.ndarray:
        extents = {"N": self._rows, "P": 0}
        return np.zeros([extents.get(size, size) for size in shape], np.float32)

    def __call__(self, token: np.ndarray) -> np.ndarray:
        """token: int64[rows] -> logits [rows, tokens]."""
        feeds = {"token": token[:, None], **self._others, **self.states}
        if self._decoder.counted is not None:
            shape = self._inputs[self._decoder.counted].shape
            extents = {"N": self._rows, "Q": self.count + 1}
            value = 1 if self._decoder.is_mask else self.count
            filled = np.full([extents.get(size, size) for size in shape], value)
            feeds[self._decoder.counted] = filled
        logits, *following = self._run(feeds)
        if following:
            self.states = dict(zip(self._decoder.states, following, strict=True))
        self.count += 1
        return logits[:, -1]


def steps_of(name: str, others: Arrays, rows: int, is_ours: bool) -> Steps:
    session = ours(name) if is_ours else theirs(name)
    return Steps(name, lambda feeds: session.run(None, feeds), others, rows)


def greedy(steps: Steps, prompt: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The most likely tokens and, for every step, what they were chosen from."""
    tokens, logits = prompt, []
    for number in range(prompt.shape[1] + count - 1):
        logits.append(steps(tokens[:, number]))
        if number + 1 >= prompt.shape[1]:
            tokens = np.concatenate([tokens, logits[-1].argmax(1)[:, None]], 1)
    return tokens[:, prompt.shape[1] :], np.stack(logits)


def given(name: str, call: int) -> tuple[np.ndarray, Arrays, Arrays]:
    """The prompt of a recorded call, the other inputs, and what PyTorch made of them."""
    feeds, expected = calls(name)[call]
    others = {key: value for key, value in feeds.items() if key != "prompt"}
    return feeds["prompt"], others, expected


def whole(name: str, others: Arrays) -> Callable[[np.ndarray], np.ndarray]:
    """The logits after whole sequences, by onnxruntime."""

    def step(tokens: np.ndarray) -> np.ndarray:
        steps = steps_of(name, others, len(tokens), is_ours=False)
        return [steps(token) for token in tokens.T][-1]

    return step


def observed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model that also gives the logits of every step and the last caches."""
    (node,) = (node for node in model.graph.node if node.op_type == "Loop")
    (body,) = (attribute.g for attribute in node.attribute)
    body.output.append(helper.make_tensor_value_info("step/logits", 1, [None, None, None]))
    node.output.append("logits")
    model.graph.output.append(helper.make_tensor_value_info("logits", 1, [None] * 4))
    for result in node.output:
        if "last_state" in result:
            model.graph.output.append(helper.make_tensor_value_info(result, 1, [None] * 4))
    return model


@cache
def watched(name: str) -> ostinato.InferenceSession:
    """The loop of a decoder that also gives the logits of every step and the last caches."""
    return native(observed(loop(name)))


def test_the_files_are_small_and_recorded() -> None:
    models, records = ({p.stem for p in FOLDER.glob(f"*.{end}")} for end in ("onnx", "npz"))
    assert models == records == {*DECODERS, *CALLED_ONCE}
    assert all(path.stat().st_size < 100_000 for path in FOLDER.iterdir())


@every_decoder
def test_greedy_tokens_are_those_of_pytorch_and_of_steps(name: str) -> None:
    session = watched(name)
    for call in range(len(calls(name))):
        prompt, others, expected = given(name, call)
        count = expected["tokens"].shape[1]
        feeds = {"prompt": prompt, "max_tokens": np.array(count), **others}
        tokens, logits, *states = session.run(None, feeds)
        np.testing.assert_array_equal(tokens, expected["tokens"])
        assert_close(logits[:, :, -1], expected["logits"], ULPS, "logits against PyTorch")
        for is_ours in (True, False):
            steps = steps_of(name, others, len(prompt), is_ours)
            same, each = greedy(steps, prompt, count)
            np.testing.assert_array_equal(tokens, same)
            ulps = 0 if is_ours else ULPS
            assert_close(logits[:, :, -1], each, ulps, f"logits of steps, {is_ours=}")
            for state, value in zip(states, steps.states.values(), strict=True):
                assert_close(state, value, ulps, f"caches of steps, {is_ours=}")


@every_decoder
@pytest.mark.parametrize("capacity", [None, 60])
def test_a_stream_has_the_bits_of_the_loop(name: str, capacity: int | None) -> None:
    """With room for all tokens or with one that doubles."""
    decoder, (prompt, others, expected) = DECODERS[name], given(name, 0)
    count = expected["tokens"].shape[1]
    feeds = {"prompt": prompt, "max_tokens": np.array(count), **others}
    tokens, logits, *_ = watched(name).run(None, feeds)
    empty = steps_of(name, others, len(prompt), is_ours=True).states
    stream = ours(name).stream(decoder.states, empty, capacity=capacity)
    steps = Steps(name, lambda given: [stream.step(given)[0]], others, len(prompt))
    steps.states = {}
    same, each = greedy(steps, prompt, count)
    np.testing.assert_array_equal(tokens, same)
    np.testing.assert_array_equal(logits[:, :, -1], each)


@every_decoder
def test_samples_are_those_of_a_python_loop(name: str) -> None:
    options = {"temperature": 1.5, "top_k": 12, "top_p": 0.9}
    session = native(loop(name, method="sample", **options))
    for call in (0, 1):
        prompt, others, _ = given(name, call)
        uniform = np.random.default_rng(call).random((len(prompt), NEW), np.float32)
        feeds = {"prompt": prompt, "max_tokens": np.array(NEW), "uniform": uniform, **others}
        (tokens,) = session.run(None, feeds)
        choose = sampler(uniform, *options.values())
        expected = generate(whole(name, others), prompt, choose, None)
        np.testing.assert_array_equal(tokens, expected)


@every_decoder
def test_beams_are_those_of_a_python_loop(name: str) -> None:
    session = native(loop(name, method="beam", beams=3, end_token=4))
    prompt, others, _ = given(name, 1)
    feeds = {"prompt": prompt, "max_tokens": np.array(NEW), **others}
    tokens, scores = session.run(None, feeds)
    expected, best = search_beams(whole(name, others), prompt[0], 3, 4, 1.0)
    length = len(expected[0])
    np.testing.assert_array_equal(tokens[0][:, :length], expected)
    np.testing.assert_allclose(scores[0], best, rtol=1e-5)


def test_whisper_is_one_model_from_audio_to_tokens() -> None:
    encoder = onnx.load(FOLDER / "whisper_encoder.onnx")
    decoder = loop("whisper", max_tokens=NEW)
    encoder.ir_version = decoder.ir_version
    names = [value.name for value in encoder.graph.output]
    joined = compose.merge_models(
        compose.add_prefix(encoder, "encoder/", rename_inputs=False, rename_outputs=False),
        decoder,
        [(name, name) for name in names],
    )
    session = native(joined)
    for feeds, made in calls("whisper_encoder"):
        prompt = np.arange(len(feeds["mel"]))[:, None]
        (tokens,) = session.run(None, {**feeds, "prompt": prompt})
        expected, _ = greedy(steps_of("whisper", made, len(prompt), False), prompt, NEW)
        np.testing.assert_array_equal(tokens, expected)


@pytest.mark.parametrize("name", CALLED_ONCE)
def test_what_is_called_once_computes_what_pytorch_and_onnxruntime_do(name: str) -> None:
    outputs = [node.name for node in ours(name).get_outputs()]
    serialised = (FOLDER / f"{name}.onnx").read_bytes()
    for feeds, expected in calls(name):
        other = witness.run(serialised, feeds, optimized=True)
        results = ours(name).run(None, feeds)
        for output, result, theirs in zip(outputs, results, other, strict=True):
            ulps = OF_LARGER_TERMS.get(output, ULPS)
            assert_close(result, expected[output], ulps, f"{output} of PyTorch")
            assert_close(result, theirs, ulps, f"{output} of onnxruntime")


def test_a_transducer_is_searched_as_by_a_python_loop_over_three_sessions() -> None:
    for feeds, _ in calls("transducer_search"):
        tokens, _ = ours("transducer_search").run(None, feeds)
        for session in (ours, theirs):
            loops = [session(part).run for part in TRANSDUCER]
            np.testing.assert_array_equal(tokens[1:], transducer_loop(feeds["x"], *loops))


def test_records_show_what_they_are_for() -> None:
    lengths = [made["mel"].shape[1] for _, made in calls("tacotron")]
    assert lengths[0] < 40 and lengths[1] < lengths[0] and lengths[2] == 40, "it stops in between"
    _, spoken = calls("transducer_search")[2]
    times = np.bincount(spoken["frames"][1:], minlength=60)
    assert set(times) == {0, 1, 2, 3}, "frames of no token, and of as many as there may be"
    assert all(len(np.unique(made["tokens"])) > 1 for name in DECODERS for _, made in calls(name))
