"""Whole networks, converted: chunks of any size give the bits of the whole after the delay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.streaming import convert
from tests.streaming.streams import assert_streams, model

MODELS = Path(__file__).parent.parent / "models"
HANN = np.hanning(17)[:16]


def test_a_stack_of_gru_and_lstm() -> None:
    conversion = assert_streams(
        model(
            """g (float[T, N, 6] x) => (float[T, N, 3] y) {
                a, ah = GRU <hidden_size=5, linear_before_reset=1> (x, W0, R0, B0)
                b = Squeeze (a, one)
                c, ch, cc = LSTM <hidden_size=4> (b, W1, R1, B1)
                d = Squeeze (c, one)
                e = Add (d, bias)
                y = MatMul (e, V)
            }""",
            {
                "W0": (1, 15, 6),
                "R0": (1, 15, 5),
                "B0": (1, 30),
                "W1": (1, 16, 5),
                "R1": (1, 16, 4),
                "B1": (1, 32),
                "one": np.array([1]),
                "bias": (4,),
                "V": (4, 3),
            },
        )
    )
    assert [state.shape for state in conversion.state_list] == [(1, "N", 5), *[(1, "N", 4)] * 2]
    assert conversion.delay == {"y": 0} and conversion.latency == 0


EXPORTED = ("gru", "gru_2_layers", "gru_time_first", "lstm", "lstm_projected", "slstm", "tcn")


@pytest.mark.parametrize(
    "path",
    [path for name in EXPORTED for path in sorted(MODELS.glob(f"{name}.*.onnx"))],
    ids=lambda path: path.stem,
)
def test_networks_as_pytorch_exports_them(path: Path) -> None:
    assert_streams(onnx.load(path))


@pytest.mark.parametrize("name", ["mamba", "tcn_streaming", "mingru", "mingru_parallel"])
def test_networks_that_take_their_past_as_an_input(name: str) -> None:
    # Running products of mingru_parallel overflow in longer sequences.
    conversion = assert_streams(onnx.load(MODELS / f"{name}.dynamo.onnx"), T=42)
    assert set(conversion.delay.values()) == {0}


TCN = """g (float[N, 6, T] x) => (float[N, 3, T] y) {
    a = Conv <pads=[2, 0]> (x, W0, B0)
    b = Relu (a)
    c = Add (b, x)
    p = Pad (c, left)
    d = Conv <dilations=[4]> (p, W1, B1)
    e = Tanh (d)
    f = Add (e, c)
    h = Conv <pads=[8, 8], dilations=[4]> (f, W2)
    i = Slice (h, zero, end, two)
    y = Conv (i, V)
}"""
TCN_WEIGHTS = {
    "W0": (6, 6, 3),
    "B0": (6,),
    "W1": (6, 6, 3),
    "B1": (6,),
    "W2": (6, 6, 3),
    "V": (3, 6, 1),
    "left": np.array([0, 0, 8, 0, 0, 0]),
    "zero": np.array([0]),
    "end": np.array([-8]),
    "two": np.array([2]),
}


def test_a_conversion_shows_what_it_carries_in_a_line() -> None:
    text = "g (float[T, 2] x) => (float[T, 2] y) { y = CumSum (x, zero) }"
    conversion = convert(model(text, {"zero": np.array(0)}), "T")
    ((state, output),) = conversion.states.items()
    assert repr(conversion) == (
        f"<Conversion along axis 0 of x, chunk 1, latency 0: {state} <- {output}>"
    )


def test_a_causal_tcn_has_no_delay() -> None:
    conversion = assert_streams(model(TCN, TCN_WEIGHTS))
    assert conversion.latency == 0
    assert [state.shape[-1] for state in conversion.state_list] == [2, 8, 8]


def test_look_ahead_is_a_delay_and_branches_wait() -> None:
    conversion = assert_streams(
        model(
            """g (float[N, 4, T] x) => (float[N, 4, T] y, float[N, 4, T] z) {
                a = Conv <pads=[1, 1]> (x, W, B)
                b = Conv <pads=[2, 2], dilations=[2]> (a, W, B)
                z = Add (b, x)
                c = Conv <pads=[2, 0]> (z, W, B)
                y = Mul (c, a)
            }""",
            {"W": (4, 4, 3), "B": (4,)},
        )
    )
    assert conversion.delay == {"y": 3, "z": 3} and conversion.latency == 3
    assert any("waits" in note.text for note in conversion.notes)


def test_a_recurrence_passes_over_frames_that_come_before_the_first() -> None:
    conversion = assert_streams(
        model(
            """g (float[T, N, 4] x) => (float[N, T, 5] y) {
                a = Transpose <perm=[1, 2, 0]> (x)
                b = Conv <pads=[1, 3]> (a, W, B)
                c = Transpose <perm=[2, 0, 1]> (b)
                d, dh = GRU <hidden_size=5> (c, W0, R0, B0)
                e = Squeeze (d, one)
                y = Transpose <perm=[1, 0, 2]> (e)
            }""",
            {
                "W": (4, 4, 5),
                "B": (4,),
                "W0": (1, 15, 4),
                "R0": (1, 15, 5),
                "B0": (1, 30),
                "one": np.array([1]),
            },
        )
    )
    assert conversion.delay == {"y": 3}


def test_a_crnn() -> None:
    conversion = assert_streams(
        model(
            """g (float[N, 1, T, 16] x) => (float[N, T, 3] y) {
                a = Conv <pads=[2, 1, 0, 1]> (x, W0, B0)
                b = Relu (a)
                p = MaxPool <kernel_shape=[1, 2], strides=[1, 2]> (b)
                c = Conv <pads=[1, 1, 1, 1]> (p, W1)
                t = Transpose <perm=[0, 2, 1, 3]> (c)
                r = Reshape (t, rows)
                s = Transpose <perm=[1, 0, 2]> (r)
                d, dh = GRU <hidden_size=8> (s, W, R)
                e = Squeeze (d, one)
                f = Transpose <perm=[1, 0, 2]> (e)
                y = MatMul (f, V)
            }""",
            {
                "W0": (3, 1, 3, 3),
                "B0": (3,),
                "W1": (4, 3, 3, 3),
                "W": (1, 24, 32),
                "R": (1, 24, 8),
                "V": (8, 3),
                "rows": np.array([0, -1, 32]),
                "one": np.array([1]),
            },
        )
    )
    assert conversion.delay == {"y": 1}


def test_a_spectral_network_with_transforms_as_convolutions() -> None:
    rng = np.random.default_rng(3)
    forward = rng.standard_normal((18, 1, 16)) * HANN / 4
    conversion = assert_streams(
        model(
            """g (float[N, 1, T] x) => (float[N, 1, S] y) {
                f = Conv <strides=[4]> (x, forward)
                t = Transpose <perm=[2, 0, 1]> (f)
                d, dh = GRU <hidden_size=18> (t, W, R)
                e = Squeeze (d, one)
                m = Transpose <perm=[1, 2, 0]> (e)
                g = Mul (f, m)
                y = ConvTranspose <strides=[4]> (g, back)
            }""",
            {
                "forward": forward,
                "back": forward,
                "W": (1, 54, 18),
                "R": (1, 54, 18),
                "one": np.array([1]),
            },
        ),
        T=4 * 168,
    )
    assert conversion.multiple == 4
    # The last samples of a window of 16 come with the chunk of 4 that completes it.
    assert conversion.delay == {"y": 12} and conversion.latency == 12


def test_rates_down_and_up_again_with_a_skip_connection() -> None:
    conversion = assert_streams(
        model(
            """g (float[N, 4, T] x) => (float[N, 4, T] y, float[N, 6, S] z) {
                z = Conv <strides=[2], pads=[1, 1]> (x, W0, B0)
                a = Relu (z)
                b = Conv <strides=[2], pads=[1, 1]> (a, W1)
                c = ConvTranspose <strides=[2], pads=[1, 1]> (b, W2)
                d = Add (c, a)
                e = ConvTranspose <strides=[2], pads=[1, 1]> (d, W3, B3)
                y = Add (e, x)
            }""",
            {
                "W0": (6, 4, 4),
                "B0": (6,),
                "W1": (6, 6, 4),
                "W2": (6, 6, 4),
                "W3": (6, 4, 4),
                "B3": (4,),
            },
            22,
        ),
        T=640,
    )
    assert conversion.multiple == 4
    assert conversion.outputs["z"].rate * 2 == 1


def test_a_stream_carries_the_states() -> None:
    proto = model(TCN, TCN_WEIGHTS)
    conversion = convert(proto, "T", 3)
    stream = ostinato.InferenceSession(conversion.model, cache_dir=None).stream(
        conversion.states, conversion.initial
    )
    x = np.random.default_rng(0).standard_normal((2, 6, 30)).astype(np.float32)
    steps = [stream.step({"x": x[..., at : at + 3].copy()})[0] for at in range(0, 30, 3)]
    (whole,) = ostinato.InferenceSession(proto, cache_dir=None).run(None, {"x": x})
    np.testing.assert_array_equal(np.concatenate(steps, 2), whole)
