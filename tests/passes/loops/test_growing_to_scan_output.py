from __future__ import annotations

import numpy as np
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.loops.growing_to_scan_output import growing_to_scan_output
from tests.golden import parse


def model(row: str, begin: str, axis: int = 1, more: str = "") -> str:
    return f"""
        g (float[2, T, 4] x, float[2, 4] h) => (float[2, S, 4] y, float[2, 4] hn)
        <bool c = {{1}}, int64 one = {{1}}, int64[1] axis = {{1}}> {{
            k = Shape <start = 1, end = 2> (x)
            n = Squeeze (k)
            o = {begin}
            hn, y = Loop <body = b (int64 i, bool p, float[2, 4] s, float[2, M, 4] a) =>
                (bool q, float[2, 4] t, float[2, R, 4] r) {{
                    q = Identity (p)
                    e = Gather <axis = 1> (x, i)
                    f = Add (s, e)
                    t = Tanh (f)
                    {row}
                    {more}
                    r = Concat <axis = {axis}> (a, u)
                }}> (n, c, h, o)
        }}
        """


ROW = "u = Unsqueeze (t, axis)"


@pytest.mark.parametrize("begin", ["Slice (x, axis, axis, axis)", "Unsqueeze (h, axis)"])
@pytest.mark.parametrize("frames", [1, 5])
def test_rows_have_the_same_bits(begin: str, frames: int) -> None:
    text = model(ROW, begin)
    loaded = load_model(parse(text))
    assert growing_to_scan_output(loaded) == 1
    (loop,) = (node for node in loaded.graph if node.op_type == "Loop")
    assert len(loop.attributes["body"].as_graph().inputs) == 3
    random = np.random.default_rng(0)
    feed = {
        "x": random.standard_normal((2, frames, 4), np.float32),
        "h": random.standard_normal((2, 4), np.float32),
    }
    results = [
        ostinato.InferenceSession(parse(text), cache_dir=None, disable=off).run(None, feed)
        for off in ((), ("growing_to_scan_output",))
    ]
    for got, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("row", "more"),
    [
        ("u = Concat <axis = 1> (e1, e1)", "e1 = Unsqueeze (t, axis)"),
        (ROW, "w = Neg (a)  z = ReduceSum (w)"),
        ("u = Identity (x)", ""),
    ],
)
def test_what_stays(row: str, more: str) -> None:
    if more.startswith("e1"):
        row, more = more, row
    loaded = load_model(parse(model(row, "Unsqueeze (h, axis)", more=more)))
    assert growing_to_scan_output(loaded) == 0


def test_what_is_read_as_a_whole_stays() -> None:
    joined = "r = Concat <axis = 1> (a, u)"
    text = model(ROW, "Unsqueeze (h, axis)").replace(joined, f"{joined}  w = Neg (r)")
    assert growing_to_scan_output(load_model(parse(text))) == 0
