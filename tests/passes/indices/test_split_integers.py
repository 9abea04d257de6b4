"""Shapes that a Split takes apart become slices: same results, and sizes are seen through them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx.reference
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.model.write import to_model_proto
from ostinato.passes.indices.split_integers import split_integers
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.normalise.lift_constants import lift_constants


def model(opset: int, body: str, outputs: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {opset}]> g (float[N, 3, L] x) => ({outputs}) '
        f"{{ sizes = Shape(x) {body} }}"
    )


@pytest.mark.parametrize(
    ("opset", "body", "outputs", "expected"),
    [
        (18, "a, b, c = Split<num_outputs = 3>(sizes)", "int64[1] a, int64[1] c", 1),
        (18, "n = Constant<value_ints = [1, 2]>() a, b = Split(sizes, n)", "int64[K] b", 1),
        (11, "a, b = Split<split = [2, 1]>(sizes)", "int64[K] a, int64[M] b", 1),
        (13, "s = Cast<to = 6>(sizes) a, b, c = Split(s)", "int32[1] b", 1),
        (13, "s = Cast<to = 1>(sizes) a, b, c = Split(s)", "float[1] b", 0),
        (13, "z = Constant<value_ints = [0]>() m = Unsqueeze(sizes, z) a = Split(m)", "int64 a", 0),
        (13, "n = Size(x) z = Constant<value_ints = [-1]>() v = Reshape(n, z) "
         "w = Tile(sizes, v) a, b = Split(w)", "int64[K] a", 0),
    ],
)  # fmt: skip
def test_short_vectors_of_integers(opset: int, body: str, outputs: str, expected: int) -> None:
    loaded = load_model(model(opset, body, outputs))
    lift_constants(loaded)
    infer_shapes(loaded)
    before = to_model_proto(loaded)
    assert split_integers(loaded) == expected
    after = to_model_proto(loaded)
    onnx.checker.check_model(after)
    assert any(node.op_type == "Split" for node in after.graph.node) == (not expected)
    if expected:
        feeds = {"x": np.zeros((2, 3, 5), np.float32)}
        results = [
            onnx.reference.ReferenceEvaluator(one).run(None, feeds) for one in (before, after)
        ]
        for left, right in zip(*results, strict=True):
            np.testing.assert_array_equal(left, right)


UNSTACKED = """s = Cast<to = 6>(sizes)  a, b, c = Split<num_outputs = 3>(s)  rows = Cast<to = 7>(a)
    steps = Squeeze(c)  n = Cast<to = 7>(steps)  go = Constant<value = bool {1}>()
    three = Constant<value_ints = [3]>()  shape = Concat<axis = 0>(rows, three)
    h = ConstantOfShape(shape)
    y = Loop<body = step (int64 i, bool c, float[A, B] h) => (bool co, float[C, D] ho) {
        co = Identity(c)  k = Gather<axis = 2>(x, i)  t = Add(k, h)  ho = Tanh(t) }>(n, go, h)"""


def test_states_of_unstacked_sizes_keep_their_shape() -> None:
    proto = model(18, UNSTACKED, "float[N, 3] y")
    assert "Scan" in [node.op_type for node in ostinato.optimize(proto).graph.node]
    session = ostinato.InferenceSession(proto, cache_dir=None, fallback=False)
    x = np.random.default_rng(0).standard_normal((2, 3, 5), np.float32)
    h = np.zeros((2, 3), np.float32)
    for t in range(5):
        h = np.tanh(x[:, :, t] + h)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], h, rtol=1e-5)


def test_pieces_of_pieces_are_slices_of_slices() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        g (float[3, N] x) => (int64[K] y) <int64[2] one = {1, 1}, int64[2] none = {0, 1}> {
            s = Shape(x)
            a, b = Split<axis = -1>(s, one)
            c, y = Split<axis = 0>(b, none)
        }""")
    session = ostinato.InferenceSession(proto, cache_dir=None, fallback=False)
    assert session.run(None, {"x": np.zeros((3, 5), np.float32)})[0].tolist() == [5]
