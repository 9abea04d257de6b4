from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ostinato.model.load import load_model
from ostinato.passes.normalise.batched_scan import batched_scan
from tests.golden import check, parse, run_onnxruntime

SCAN = """
    g (int64[2] n, float[2, 3] h, float[2, 4, 3] x, float[2, 4] z)
        => (float[2, 3] hn, float[2, 4, 3] y, float[2, 4] w) {
        hn, y, w = Scan <num_scan_inputs = 2, DIRECTIONS
            body = b (float[3] s, float[3] e, float f) => (float[3] t, float[3] o, float f_out) {
                u = Mul(s, f)
                t = Add(u, e)
                o = Neg(t)
                f_out = Identity(f)
            }> (LENGTHS, h, x, z)
    }
    """


def source(lengths: str = '""', directions: str = "") -> str:
    return SCAN.replace("LENGTHS", lengths).replace("DIRECTIONS", directions)


def test_a_scan_over_rows_around_a_scan_over_time():
    check(
        batched_scan,
        source(directions="directions = [0, 1],"),
        """
        <ir_version: 8, opset_import: ["": 9]>
        g (int64[2] n, float[2, 3] h, float[2, 4, 3] x, float[2, 4] z)
            => (float[2, 3] hn, float[2, 4, 3] y, float[2, 4] w) {
            hn, y, w = Scan <num_scan_inputs = 3,
                body = r (float[3] "hn/row/s", float[4, 3] "hn/row/e", float[4] "hn/row/f")
                    => ("hn/row/t_all", "hn/row/o_all", "hn/row/f_out_all") {
                "hn/row/t_all", "hn/row/o_all", "hn/row/f_out_all" = Scan <num_scan_inputs = 2,
                    scan_input_directions = [0, 1],
                    body = b (float[3] s, float[3] e, float f)
                        => (float[3] t, float[3] o, float f_out) {
                        u = Mul(s, f)
                        t = Add(u, e)
                        o = Neg(t)
                        f_out = Identity(f)
                    }> ("hn/row/s", "hn/row/e", "hn/row/f")
            }> (h, x, z)
        }
        """,
        opset=8,
        count=1,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize("lengths", [[4, 2], [1, 3], [4, 4]])
@pytest.mark.parametrize("directions", [[0, 0], [1, 0], [1, 1]])
def test_rows_of_different_lengths(lengths: list[int], directions: list[int]):
    model = parse(source("n", f"directions = {directions},"), 8)
    loaded = load_model(model)
    assert batched_scan(loaded) == 1
    after = ir.to_proto(loaded)
    onnx.checker.check_model(after, full_check=True)
    random = np.random.default_rng(0)
    feeds = {
        "n": np.array(lengths),
        "h": random.standard_normal((2, 3)).astype(np.float32),
        "x": random.standard_normal((2, 4, 3)).astype(np.float32),
        "z": random.standard_normal((2, 4)).astype(np.float32),
    }
    for got, expected in zip(
        run_onnxruntime(after, feeds), run_onnxruntime(model, feeds), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_models_with_operators_of_another_meaning_stay():
    other = "c = Upsample <scales = [1., 1.]> (h)  hn, y, w = Scan"
    text = source().replace("hn, y, w = Scan", other)
    model = load_model(parse(text, 8))
    assert batched_scan(model) == 0
    assert model.opset_imports[""] == 8


def test_later_versions_stay():
    text = """
        g (float[3] x) => (float[3] y) {
            y = Scan <num_scan_inputs = 1, body = b (float e) => (float o) { o = Neg(e) }> (x)
        }
        """
    check(batched_scan, text, text, opset=9, count=0)
