"""Frames merged with the batch: chunks give the bits of the whole; what mixes rows is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ostinato.streaming import ConversionError, convert
from tests.streaming.streams import assert_streams, model

SIZES = {
    "z": np.array([0]),
    "o": np.array([1]),
    "two": np.array([2]),
    "m": np.array([-1]),
    "three": np.array([3]),
    "six": np.array([6]),
}
# The sizes N, T and N*T of x [N, T, 6], and rows of all frames: r [N*T, 3, 2].
MERGED = (
    "n = Shape <start=0, end=1> (x)  t = Shape <start=1, end=2> (x)  nt = Mul (n, t)"
    "  sr = Concat <axis=0> (nt, three, two)  r = Reshape (x, sr)"
)
CELL = {"W": (1, 20, 2), "R": (1, 20, 5), "B": (1, 40)}
BOTH = {"W": (2, 12, 2), "R": (2, 12, 4)}

# Nodes from x [N, T, 6] to y [N, T, ..].
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "a product of rows": (
        "a = Reshape (x, s)  b = Gemm (a, W, c)  p = Shape <end=2> (x)"
        "  q = Concat <axis=0> (p, m)  y = Reshape (b, q)",
        {"s": np.array([-1, 6]), "W": (6, 3), "c": (3,)},
    ),
    "a product of rows that Flatten makes": (
        "a = Flatten <axis=-1> (x)  b = Gemm (a, W)  p = Shape <end=2> (x)"
        "  q = Concat <axis=0> (p, m)  y = Reshape (b, q)",
        {"W": (6, 3)},
    ),
    "a recurrence within each frame": (
        f"{MERGED}  i = Concat <axis=0> (o, nt, five)  h = Expand (none, i)"
        "  v = Transpose <perm=[1, 0, 2]> (r)  a, b, c = LSTM <hidden_size=5> (v, W, R, B, , h, h)"
        "  d = Transpose <perm=[2, 0, 1, 3]> (a)  q = Concat <axis=0> (n, t, m)"
        "  y = Reshape (d, q)",
        CELL | {"none": np.zeros((1, 1, 1)), "five": np.array([5])},
    ),
    "in both directions, and zeros as a constant": (
        f"{MERGED}  v = Transpose <perm=[1, 0, 2]> (r)"
        '  a, b = GRU <hidden_size=4, direction = "bidirectional"> (v, W, R)'
        "  d = Transpose <perm=[2, 0, 1, 3]> (a)  q = Concat <axis=0> (n, t, m)"
        "  y = Reshape (d, q)",
        BOTH,
    ),
    "the last state of each frame": (
        f"{MERGED}  v = Transpose <perm=[1, 0, 2]> (r)  a, h, c = LSTM <hidden_size=5> (v, W, R, B)"
        "  d = Squeeze (h, z)  q = Concat <axis=0> (n, t, m)  y = Reshape (d, q)",
        CELL,
    ),
    "a state that is computed from each frame": (
        f"{MERGED}  v = Transpose <perm=[1, 0, 2]> (r)  e = ReduceMax <keepdims=1> (v, z)"
        "  w = MatMul (e, V)  a, h = GRU <hidden_size=5> (v, W, R, , , w)"
        "  d = Squeeze (h, z)  q = Concat <axis=0> (n, t, m)  y = Reshape (d, q)",
        {"W": (1, 15, 2), "R": (1, 15, 5), "V": (2, 5)},
    ),
    "what looks ahead": (
        "a = Transpose <perm=[0, 2, 1]> (x)  b = Conv <pads=[1, 1]> (a, V)"
        "  c = Transpose <perm=[0, 2, 1]> (b)  d = Reshape (c, s)  e = Softmax (d)"
        "  p = Shape <end=2> (x)  q = Concat <axis=0> (p, six)  f = Reshape (e, q)  y = Add (f, x)",
        {"s": np.array([-1, 6]), "V": (6, 6, 3)},
    ),
    "merged with more, and taken apart": (
        f"{MERGED}  k = Reshape (r, flat)  f = Tanh (k)  u = Reshape (f, sr)"
        "  w = MatMul (u, V)  q = Concat <axis=0> (n, t, m)  y = Reshape (w, q)",
        {"flat": np.array([-1, 2]), "V": (2, 3)},
    ),
    "time in front of the batch": (
        "v = Transpose <perm=[1, 0, 2]> (x)  a = Reshape (v, s)  b = Gemm (a, W)"
        "  t = Shape <start=1, end=2> (x)  q = Concat <axis=0> (t, m, three)  c = Reshape (b, q)"
        "  y = Transpose <perm=[1, 0, 2]> (c)",
        {"s": np.array([-1, 6]), "W": (6, 3)},
    ),
    "images": (
        "a = Reshape (x, s)  b = Conv <pads=[1, 1]> (a, V)  c = Relu (b)"
        "  n = Shape <end=2> (x)  q = Concat <axis=0> (n, m)  y = Reshape (c, q)",
        {"s": np.array([-1, 2, 3]), "V": (4, 2, 3)},
    ),
    "layers that share their weights": (
        "h0 = Reshape (x, s)"
        + "".join(f" a{i} = MatMul (h{i}, W)  h{i + 1} = Tanh (a{i})" for i in range(8))
        + "  p = Shape <end=2> (x)  q = Concat <axis=0> (p, m)  y = Reshape (h8, q)",
        {"s": np.array([-1, 6]), "W": (6, 6)},
    ),
    "attention among the features of each frame": (
        f"{MERGED}  v = Transpose <perm=[0, 2, 1]> (r)  a = MatMul (r, v)  b = Softmax (a)"
        "  c = MatMul (b, r)  q = Concat <axis=0> (n, t, m)  y = Reshape (c, q)",
        {},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_frames(name: str) -> None:
    nodes, weights = ROWS[name]
    conversion = assert_streams(
        model(f"g (float[N, T, 6] x) => (float[N, T, C] y) {{ {nodes} }}", SIZES | weights)
    )
    assert conversion.delay == {"y": 1 if "ahead" in name else 0}


def test_frames_are_the_batch_of_a_recurrence() -> None:
    text = """g (float[T, 3, 2] x) => (float[T, 5] y) {
        v = Transpose <perm=[1, 0, 2]> (x)
        a, h = GRU <hidden_size=5> (v, W, R)
        y = Squeeze (h, z)
    }"""
    assert_streams(model(text, {"W": (1, 15, 2), "R": (1, 15, 5), "z": SIZES["z"]}))


def test_a_state_of_several_rows_for_each_sequence_names_its_sizes() -> None:
    text = """g (float[N, T, 6] x) => (float[N, T, 15] y) {
        t = Shape <start=1, end=2> (x)
        n = Shape <end=1> (x)
        s = Concat <axis=0> (n, t, three, two)
        a = Reshape (x, s)
        b = Transpose <perm=[0, 2, 1, 3]> (a)
        nk = Mul (n, three)
        r = Concat <axis=0> (nk, t, two)
        c = Reshape (b, r)
        d = Transpose <perm=[1, 0, 2]> (c)
        e, h = GRU <hidden_size=5> (d, W, R)
        f = Transpose <perm=[2, 0, 1, 3]> (e)
        q = Concat <axis=0> (n, three, t, m)
        g0 = Reshape (f, q)
        i = Transpose <perm=[0, 2, 1, 3]> (g0)
        u = Concat <axis=0> (n, t, m)
        y = Reshape (i, u)
    }"""
    weights = {name: SIZES[name] for name in ("two", "three", "m")}
    conversion = assert_streams(model(text, weights | {"W": (1, 15, 2), "R": (1, 15, 5)}))
    assert [state.shape for state in conversion.state_list] == [(1, "N", 3, 5)]


@pytest.mark.parametrize("rows", [1, 2])
def test_a_sequence_of_fixed_length_is_merged_too(rows: int) -> None:
    text = """g (float[2, 336, 6] x) => (float[2, 336, 5] y) {
        r = Reshape (x, s)
        v = Transpose <perm=[1, 0, 2]> (r)
        a, h = GRU <hidden_size=5> (v, W, R, , , zero)
        d = Squeeze (h, z)
        y = Reshape (d, q)
    }""".replace("[2,", f"[{rows},")
    weights = {
        "s": np.array([336 * rows, 3, 2]),
        "zero": np.zeros((1, 336 * rows, 5)),
        "q": np.array([rows, 336, 5]),
        "z": SIZES["z"],
    }
    assert_streams(model(text, weights | {"W": (1, 15, 2), "R": (1, 15, 5)}), {"x": 1})


# name: (nodes from x [N, T, 6] and k [N, T, 6] to y, constants, part of the reason)
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a mean over rows": (
        "a = Reshape (x, s)  b = ReduceMean (a, z)  c = Tanh (b)  y = Identity (c)",
        {"s": np.array([-1, 6]), "z": np.array([0])},
        "reduces along time",
    ),
    "rows by number": (
        "a = Reshape (x, s)  y = Gather (a, z)",
        {"s": np.array([-1, 6]), "z": np.array([0])},
        "along time",
    ),
    "rows in two orders": (
        "a = Reshape (x, s)  b = Transpose <perm=[1, 0, 2]> (x)  c = Reshape (b, s)"
        "  y = Add (a, c)",
        {"s": np.array([-1, 6])},
        "in two ways",
    ),
    "equal frames of each sequence, and rows in another order": (
        "p = Shape (x)  h = Expand (k, p)  a = Reshape (h, s)  b = Transpose <perm=[1, 0, 2]> (x)"
        "  c = Reshape (b, s)  y = Add (a, c)",
        {"s": np.array([-1, 6]), "k": (2, 1, 6)},
        "in two ways",
    ),
    "merged and returned": (
        "y = Reshape (x, s)",
        {"s": np.array([-1, 6])},
        "let a Reshape take them apart",
    ),
    "rows of parts of several frames": (
        "y = Reshape (x, s)",
        {"s": np.array([-1, 4])},
        "is not an axis of the result",
    ),
    "groups of the frames of all rows": (
        "y = Reshape (x, s)",
        {"s": np.array([-1, 4, 6])},
        "counts groups of 4 frames of all rows together",
    ),
    "a loop over features": (
        "a = Reshape (x, s)  b = Transpose <perm=[1, 0]> (a)"
        "  l, y = Scan <num_scan_inputs=1, body = step (float e0, float e) => (float f, float o)"
        "  { f = Add (e0, e)  o = Tanh (f) }> (h, b)",
        {"s": np.array([-1, 6]), "h": np.array(0, np.float32)},
        "does more than treat each row",
    ),
    "an initial state for all frames": (
        "a = Reshape (x, s)  b = Transpose <perm=[1, 0, 2]> (a)"
        "  c, h = GRU <hidden_size=5> (b, W, R, , , h0)  y = Identity (c)",
        {"s": np.array([-1, 3, 2]), "W": (1, 15, 2), "R": (1, 15, 5), "h0": (1, 9, 5)},
        "has an initial state",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_rows_is_refused(name: str) -> None:
    nodes, weights, message = REFUSED[name]
    proto = model(f"g (float[N, T, 6] x) => (float[A, B] y) {{ {nodes} }}", weights)
    with pytest.raises(ConversionError) as caught:
        convert(proto, "T")
    assert message in str(caught.value)
