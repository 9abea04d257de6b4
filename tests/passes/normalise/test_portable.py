"""What leaves this package says what steps of loops are given: onnxruntime asks for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.autodiff import gradient
from ostinato.quantization import quantize
from tests import witness
from tests.golden import parse

# The data end the Loop, so that it stays one; the rows of a Scan in it are those of a state.
MODEL = parse("""
    g (float[N, 4] x, int64 most) => (float[N, 4] y, float total)
    <float[4, 4] W = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}, float limit = {20}> {
        yes = Constant <value = bool {1}> ()
        y = Loop <body = b (int64 i, bool going, float[N, 4] s) => (bool more, float[N, 4] t) {
            u = MatMul(s, W)
            r = Scan <num_scan_inputs = 1, body = c (float[4] row) => (float[4] made)
                { made = Sin(row) }> (u)
            n = Cast <to = 1> (i)
            t = Add(r, n)
            size = ReduceSum <keepdims = 0> (t)
            more = Less(size, limit)
        }> (most, yes, x)
        total = ReduceSum <keepdims = 0> (y)
    }""")
FEEDS = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), "most": np.array(3)}


@pytest.mark.parametrize(
    "written",
    [
        lambda model: ostinato.optimize(model),
        lambda model: quantize(model, "bf16"),
        lambda model: gradient(model, "total", ["x"]),
    ],
    ids=["optimize", "quantize", "gradient"],
)
def test_loops_that_are_written_run_in_onnxruntime(
    written: Callable[[onnx.ModelProto], onnx.ModelProto],
) -> None:
    wanted = witness.run(MODEL.SerializeToString(), FEEDS)
    made = written(MODEL)
    onnx.checker.check_model(made, full_check=True)
    got = witness.run(made.SerializeToString(), FEEDS)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-2)


def test_a_state_that_changes_its_size_keeps_its_rank_alone() -> None:
    model = parse("""
        g (float[N, 4] x, int64 most, bool go) => (float[M, 4] y) {
            y = Loop <body = b (int64 i, bool going, float[K, 4] s) => (bool more, float[L, 4] t) {
                more = Identity(going)
                t = Concat <axis = 0> (s, s)
            }> (most, go, x)
        }""")
    (loop,) = [n for n in ostinato.optimize(model).graph.node if n.op_type == "Loop"]
    number, going, state = loop.attribute[0].g.input
    assert number.type.tensor_type.HasField("shape") and going.type.tensor_type.HasField("shape")
    assert [d.dim_value for d in state.type.tensor_type.shape.dim] == [0, 4]
