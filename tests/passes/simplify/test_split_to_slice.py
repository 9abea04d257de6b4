"""Pieces of a SplitToSequence become slices: same results, what is not there stays."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx.reference
import onnxruntime
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.model.write import to_model_proto
from ostinato.optimization import run_all_passes
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.simplify.split_to_slice import split_to_slice


@pytest.mark.parametrize(
    ("split", "place", "attributes", "expected"),
    [
        ("int64 {2}", 1, "axis=1", 1),
        ("int64 {2}", -1, "axis=-1", 1),
        ("int64[3] {1, 4, 2}", 1, "axis=1", 1),
        ("", 3, "axis=1, keepdims=0", 1),
        ("", 0, "axis=1", 1),
        ("int64 {2}", 4, "axis=1", 0),
        ("int64[2] {1, 4}", 0, "axis=1", 0),
    ],
)
def test_pieces(split: str, place: int, attributes: str, expected: int) -> None:
    constant = f"n = Constant <value: tensor = {split}> ()" if split else ""
    text = f"""<ir_version: 9, opset_import: ["": 20]>
g (float[3, 7] x) => (float[A, B] y) {{
{constant} i = Constant <value: tensor = int64 {{{place}}}> ()
s = SplitToSequence<{attributes}>(x{", n" if split else ""})
p = SequenceAt(s, i)
y = Relu(p) }}"""
    model = load_model(onnx.parser.parse_model(text))
    lift_constants(model)
    before = to_model_proto(model)
    assert split_to_slice(model) == expected
    if expected:
        x = np.random.default_rng(0).standard_normal((3, 7), np.float32)
        results = [
            onnx.reference.ReferenceEvaluator(one).run(None, {"x": x})[0]
            for one in (before, to_model_proto(model))
        ]
        np.testing.assert_array_equal(*results)


RUN_TIME = """<ir_version: 9, opset_import: ["": 18]>
g (float[N, 3] x, int64 p, int64 k) => (float[T, 3] y, float[T] w, int64 count, float[M, 3] z) {{
    {constant} c = Constant<value = bool {{1}}>()
    s = SplitToSequence<axis = -2>(x, {size})  count = SequenceLength(s)
    e = SequenceAt(s, k)  f = Tanh(e)
    h = ConcatFromSequence<axis = -2>(s)  z = Add(h, h)
    y, w = Loop<body = b (int64 i, bool g, float[L, 3] a) => (bool q, float[O, 3] r, float u) {{
        q = Identity(g)  m = SequenceAt(s, i)  t = Sin(m)  r = Concat<axis = 0>(a, t)
        u = ReduceSum<keepdims = 0>(r)
    }}>(count, c, f)
}}"""


@pytest.mark.parametrize("size", ["p", "three"])
def test_pieces_that_only_a_run_tells(size: str) -> None:
    constant = "three = Constant<value_int = 3>()"
    proto = onnx.parser.parse_model(RUN_TIME.format(size=size, constant=constant))
    session = ostinato.InferenceSession(proto, fallback=False)
    witness = onnxruntime.InferenceSession(proto.SerializeToString())
    random = np.random.default_rng(0)
    for rows, length, place in [(7, 3, -1), (9, 3, 0), (1, 3, 0), (8, 3, 2), (4, 3, -2)]:
        feeds = {
            "x": random.integers(-3, 3, (rows, 3)).astype(np.float32),
            "p": np.array(length),
            "k": np.array(place),
        }
        for got, expected in zip(session.run(None, feeds), witness.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5)
    with pytest.raises(ostinato.RunError, match="out of range"):
        session.run(None, feeds | {"k": np.array(2)})
    if size == "p":
        for wrong in (0, -3):
            with pytest.raises(ostinato.OstinatoError):
                session.run(None, feeds | {"p": np.array(wrong)})


ROWS = """<ir_version: 9, opset_import: ["": 18]>
g (float[N, 3] x, int64 k) => (float[A, B, C] y, int64 count, float[D, E] z, float[N, 3] w) {{
    c = Constant<value = bool {{1}}>()  {one}
    s = SplitToSequence<axis = 0{attribute}>(x{split})  count = SequenceLength(s)
    e = SequenceAt(s, k)  z = Tanh(e)
    h = ConcatFromSequence<axis = -2, new_axis = {is_new}>(s)  w = Add(h, h)
    m, y = Loop<body = b (int64 i, bool g, float[O, P] a)
        => (bool q, float[O, P] r, float[O, P] u) {{
        q = Identity(g)  t = SequenceAt(s, i)  r = Add(a, t)  u = Identity(r)
    }}>(count, c, z)
}}"""


ONE = "o = Constant<value_int = 1>()"
ONES = "n = Shape<end = 1>(x)  o = ConstantOfShape<value = int64[1] {1}>(n)"


@pytest.mark.parametrize(("keeps", "one"), [(True, ONE), (True, ONES), (True, ""), (False, "")])
def test_rows_that_only_a_run_tells(keeps: bool, one: str) -> None:
    text = ROWS.format(
        one=one,
        split=", o" if one else "",
        attribute="" if keeps else ", keepdims = 0",
        is_new=int(not keeps),
    )
    proto = onnx.parser.parse_model(text)
    model = load_model(proto)
    run_all_passes(model)
    assert "Scan" in [node.op_type for node in model.graph]
    session = ostinato.InferenceSession(proto, fallback=False)
    witness = onnxruntime.InferenceSession(proto.SerializeToString())
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for rows, place in ((5, 1), (5, -5), (1, 0)):
        feeds = {"x": x[:rows], "k": np.array(place)}
        for got, expected in zip(session.run(None, feeds), witness.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5)
    with pytest.raises(ostinato.RunError, match="out of range"):
        session.run(None, {"x": x, "k": np.array(5)})


REPEATED = """<ir_version: 9, opset_import: ["": 18]>
g (float[N, 3] x, int64[M] counts) => (float[K, 3] y) {
    n = Shape(counts)  ones = ConstantOfShape<value = int64[1] {1}>(n)  e = SequenceEmpty()
    r = SplitToSequence(x, ones)  k = SplitToSequence(counts, ones)
    c = Constant<value = bool {1}>()  zero = Constant<value_int = 0>()
    size = Gather(n, zero)  three = Constant<value_ints = [3]>()
    s = Loop<body = b (int64 i, bool g, seq(float[?, 3]) q) => (bool h, seq(float[?, 3]) o) {
        h = Identity(g)  row = SequenceAt(r, i)  times = SequenceAt(k, i)
        shape = Concat<axis = 0>(times, three)  part = Expand(row, shape)
        o = SequenceInsert(q, part)
    }>(size, c, e)
    y = ConcatFromSequence<axis = 0>(s)
}"""


def test_rows_repeated_as_often_as_a_run_tells() -> None:
    """`repeat_interleave` of PyTorch's scripts, as length regulators have it."""
    proto = onnx.parser.parse_model(REPEATED)
    session = ostinato.InferenceSession(proto, fallback=False)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for counts in ([2, 0, 1, 3, 1], [1], [0, 4]):
        feeds = {"x": x[: len(counts)], "counts": np.array(counts)}
        (y,) = session.run(None, feeds)
        np.testing.assert_array_equal(y, np.repeat(x[: len(counts)], counts, axis=0))
    with pytest.raises(ostinato.OstinatoError, match="number of elements"):
        session.run(None, {"x": x, "counts": np.array([2, 1, 1])})
