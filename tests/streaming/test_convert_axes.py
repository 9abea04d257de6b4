"""Time along axes that operators seldom have frames along, and frames of seldom types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato
from ostinato.cli.stream_check import compare, runner, step_by_step
from ostinato.streaming import ConversionError, convert
from tests.streaming.streams import assert_streams, model

# name: (graph, constants)
STREAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "channels interpolated to a size": (
        "g (float[N, 1, 5, T] x) => (float[N, 1, 12, T] y)"
        '{ y = Resize <mode="cubic", axes=[-2]> (x, , , n) }',
        {"n": np.array([12])},
    ),
    "no part": ("g (float[T, 2] x, int64[0] b) => (float[S, C] y) { y = Slice (x, b, b, b) }", {}),
    "a transposed convolution that pads nothing": (
        'g (float[N, 2, T] x) => (float[N, 3, S] y){ y = ConvTranspose <auto_pad="VALID"> (x, w) }',
        {"w": (2, 3, 4)},
    ),
    "from far in front": (
        "g (float[2, T] x) => (float[2, S] y) { y = Slice (x, b, e, a) }",
        {"b": np.array([-(2**63)]), "e": np.array([2**31 - 1]), "a": np.array([1])},
    ),
}


@pytest.mark.parametrize("name", STREAMED)
def test_steps_are_as_the_whole(name: str) -> None:
    text, weights = STREAMED[name]
    assert_streams(model(text, weights), "T", (1, 3))


# name: (graph, constants, opset, part of the message)
REFUSED: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "filters of groups": (
        "g (float[T, 2, 3] x) => (float[1, T, S] y) { y = Conv <group=2> (i, x) }",
        {"i": (1, 4, 9)},
        18,
        "changes with time",
    ),
    "rows that a diagonal has too": (
        'g (float[4, T] x) => (float[4, T] y) { y = Einsum <equation="ab,bb->ab"> (x, d) }',
        {"d": (3, 3)},
        18,
        "sums along time",
    ),
    "one scale for all axes": (
        "g (float[1, 1, 3, T] x) => (float[A, B, C, D] y) {"
        "  h = Shape <start=3> (x)  l = Mul (h, two)  n = Concat <axis=0> (six, l)"
        '  y = Resize <axes=[2, 3], keep_aspect_ratio_policy="not_smaller"> (x, , , n)'
        "}",
        {"two": np.array([2]), "six": np.array([9])},
        18,
        "scales are not constant",
    ),
    "more than there is": (
        "g (float[1, T] x) => (float[A, S] y) { y = Pad (x, w) }",
        {"w": np.array([-2, 1, 0, 0])},
        18,
        "takes more elements away than there are",
    ),
    "a table of float8": (
        "g (float[6] x) => (float8e4m3fn[6] y) {"
        "  w = Cast <to=17> (z)  y = QuantizeLinear <axis=0> (x, s, w)"
        "}",
        {"s": np.arange(1.0, 7.0), "z": np.arange(6.0)},
        19,
        "no operator moves those of type float8e4m3fn",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_relates_frames_or_moves_none_is_refused(name: str) -> None:
    text, weights, opset, message = REFUSED[name]
    proto = model(text, weights, opset)
    with pytest.raises(ConversionError, match=message):
        convert(proto, "T" if "T" in text else {"x": 0})


@pytest.mark.filterwarnings("ignore:.*not all native")
@pytest.mark.parametrize("value", ["", "v"])
def test_strings_are_padded_and_wait(value: str) -> None:
    proto = model(
        "g (string[1, T] x) => (string[2, S] y) {"
        f"  a = Slice (x, one, far, one)  p = Pad (x, w, {value})"
        "  q = Slice (p, zero, end, one)  y = Concat <axis=0> (a, q)"
        "}",
        {
            **{"zero": np.array([0]), "one": np.array([1]), "far": np.array([2**40])},
            **{"end": np.array([-2]), "w": np.array([0, 1, 0, 0])},
            **({value: np.array(value, object)} if value else {}),
        },
    )
    conversion = convert(proto, "T")
    values = [v for v in conversion.initial_values({}).values() if v.dtype == object]
    assert {text for strings in values for text in strings.flat} == {"", value}
    feeds = {"x": np.array([["a", "b", "c", "d"]], object)}
    whole, step = (
        runner(ostinato.InferenceSession(m, cache_dir=None)) for m in (proto, conversion.model)
    )
    (found,) = compare(whole(feeds), list(step_by_step(step, conversion, feeds, 1)), conversion, 1)
    assert found.frames == 3
    assert not found.wrong


def test_lengths_of_the_whole_sequence_say_nothing() -> None:
    weights = {"W": (1, 15, 4), "R": (1, 15, 5), "n": np.array([6, 6], np.int32)}
    node = "y = GRU <hidden_size=5> (x, W, R, , n)"
    text = f"g (float[6, 2, 4] x) => (float[6, 1, 2, 5] y) {{ {node} }}"
    proto = model(text, weights)
    made = convert(proto, {"x": 0})
    x = np.random.default_rng(2).standard_normal((6, 2, 4)).astype(np.float32)
    (whole,) = ostinato.InferenceSession(proto, cache_dir=None).run(None, {"x": x})
    stream = ostinato.InferenceSession(made.model, cache_dir=None).stream(made.states)
    steps = [stream.step({"x": x[t : t + 1]})[0] for t in range(6)]
    assert np.concatenate(steps).tobytes() == whole.tobytes()
