"""Integers move in place of the floats that stand for them: same results, what differs stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato import InferenceSession
from ostinato.model.load import load_model
from ostinato.model.write import to_model_proto
from ostinato.optimization import run_all_passes
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.simplify.stay_quantised import stay_quantised
from tests.golden import parse

OPSET = 21
FRAME = """<ir_version: 10, opset_import: ["": {opset}]>
g (float[2, 3, 4, 4] x) => ({kind}[A, B, C, D] y)
<float s = {{0.03}}, float t = {{0.05}}, {kind} z = {{7}}, int64[4] shape = {{2, 4, 3, 4}},
 {kind}[2, 1, 4, 4] c = {{{numbers}}},
 int64[2] two = {{0, 2}}, bool[4] mask = {{1, 0, 0, 1}}, float tiny = {{1e-39}},
 float huge = {{1e30}}>
{{ q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z) {body} }}"""
AGAIN = "y = QuantizeLinear (m, s, z)"
# What is done with `d`, and which nodes of floats are left between the integers.
MOVED = {
    "nothing": "y = QuantizeLinear (d, s, z)",
    "reshape": f"m = Reshape (d, shape)  {AGAIN}",
    "two moves": "n = Transpose <perm = [0, 2, 3, 1]> (d)  "
    f"m = Gather <axis = 1> (n, two)  {AGAIN}",
    "quantised twice": "n = Transpose (d)  p = QuantizeLinear (n, s, z)  "
    f"e = DequantizeLinear (p, s, z)  m = Tile (e, shape)  {AGAIN}",
    "joined": f"n = Transpose <perm = [0, 1, 3, 2]> (d)  m = Concat <axis = 1> (d, n, d)  {AGAIN}",
    "chosen": f"n = Transpose <perm = [0, 1, 3, 2]> (d)  m = Where (mask, d, n)  {AGAIN}",
    "parts": "a, b = Split <axis = 3, num_outputs = 2> (d)  m = Concat <axis = 2> (b, a)  " + AGAIN,
    "largest": f"m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d)  {AGAIN}",
    "beside constants": f"e = DequantizeLinear (c, t, z)  m = Concat <axis = 1> (d, e)  {AGAIN}",
    "constants alone": "e = DequantizeLinear (c, t, z)  m = Concat <axis = 1> (e, e)  " + AGAIN,
    "floats as well": "m = Transpose (d)  r = ReduceMax (m)  i = QuantizeLinear (r, s, z)  "
    "w = QuantizeLinear (m, s, z)  y = Max (w, i)",
}
STAYS = {
    "another scale": "m = Transpose (d)  y = QuantizeLinear (m, t, z)",
    "computed": f"m = Neg (d)  {AGAIN}",
    "partly floats": f"m = Concat <axis = 1> (d, x)  {AGAIN}",
    "filled": f"m = Pad (d, edges)  {AGAIN}",
    "an input": f"m = Transpose (x)  {AGAIN}",
    "constants beyond any integer": "e = DequantizeLinear (c, huge, z)  m = Transpose (e)  "
    + AGAIN,
    "numbers that are not normal": "e = DequantizeLinear (q, tiny, z)  m = Transpose (e)  "
    "y = QuantizeLinear (m, tiny, z)",
}


def model_of(body: str, kind: str, opset: int = OPSET) -> onnx.ModelProto:
    numbers = ", ".join(str(4 * i) for i in range(32))
    text = FRAME.format(body=body, kind=kind, opset=opset, numbers=numbers)
    edges = "int64[8] edges = {0, 0, 1, 1, 0, 0, 0, 0}, float tiny"
    return parse(text.replace("float tiny", edges))


def rewritten(source: onnx.ModelProto) -> tuple[int, onnx.ModelProto]:
    model = load_model(source)
    lift_constants(model)
    infer_shapes(model)
    count = stay_quantised(model)
    result = to_model_proto(model)
    onnx.checker.check_model(result, full_check=True)
    return count, result


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("form", MOVED)
def test_integers_move(form: str, kind: str) -> None:
    source = model_of(MOVED[form], kind)
    count, _ = rewritten(source)
    if form == "largest" and kind.endswith("16"):
        assert not count
        return
    assert count == {"quantised twice": 2}.get(form, 1)
    x = np.random.default_rng(0).uniform(-9, 9, (2, 3, 4, 4)).astype(np.float32)
    x[0, 0, 0] = np.inf, -np.inf, np.nan, 0
    (got,), (expected,) = (
        InferenceSession(source, cache_dir=None, disable=disable).run(None, {"x": x})
        for disable in ((), ("stay_quantised",))
    )
    np.testing.assert_array_equal(got, expected, strict=True)


def test_no_float_is_left_between_integers() -> None:
    model = load_model(model_of(MOVED["quantised twice"], "uint8"))
    run_all_passes(model)
    kinds = [node.op_type for node in model.graph]
    assert kinds == ["QuantizeLinear", "Transpose", "Tile"]


@pytest.mark.parametrize("form", STAYS)
def test_what_stays(form: str) -> None:
    count, _ = rewritten(model_of(STAYS[form], "uint8"))
    assert count == 0


def test_pools_of_floats_alone_stay() -> None:
    body = MOVED["largest"]
    assert rewritten(model_of(body, "uint8", 11))[0] == 0
    assert rewritten(model_of(body, "uint8", 12))[0] == 1


def test_bodies_of_loops() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (uint8[3, 5] x, float[5] h) => (float[5] g, uint8[3, 5] y) <float s = {0.1}, uint8 z = {9}> {
        d = DequantizeLinear (x, s, z)
        e = Identity (d)
        g, y = Scan <num_scan_inputs = 1, body = b (float[5] a, uint8[5] r)
                                                => (float[5] c, uint8[5] w) {
            k = DequantizeLinear (r, s, z)  c = Add (a, k)
            l = Reshape (k, five)  w = QuantizeLinear (l, s, z)
        }> (h, x)
    }"""
    model = load_model(parse(text.replace("uint8 z =", "int64[1] five = {5}, uint8 z =")))
    lift_constants(model)
    infer_shapes(model)
    assert stay_quantised(model) == 1
    onnx.checker.check_model(to_model_proto(model), full_check=True)


@given(st.floats(2.0**-126, 2.0**110, width=32), st.integers(0, 65535))
def test_integers_are_what_they_were(scale: float, zero: int) -> None:
    """`round(((q - z) * s) / s)` is `q - z` for all differences of 16 bits."""
    difference = np.arange(65536) - zero
    quotient = (difference.astype(np.float32) * np.float32(scale)) / np.float32(scale)
    np.testing.assert_array_equal(np.rint(quotient), difference)
