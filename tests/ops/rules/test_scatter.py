"""Where what is scattered into lies in memory."""

from __future__ import annotations

import onnx
import pytest

import ostinato

STEP = """<ir_version: 9, opset_import: ["": 17]>
g (float[2, 64, 3] s, int64[T, 1, 1, 1] i, float[T, 1, 2, 3] u) => (float[2, 64, 3] last) {{
    last = Scan<num_scan_inputs = 2, body = step
        (float[2, 64, 3] h, int64[1, 1, 1] p, float[1, 2, 3] v) => (float[2, 64, 3] next) {{
        f = Transpose<perm = [1, 0, 2]>(h)
        r = Constant<value_ints = [1, 2, 3]>()  k = Constant<value_ints = [1, 1]>()
        {scatter}
        next = Transpose<perm = [1, 0, 2]>(n)
    }}>(s, i, u)
}}"""


@pytest.mark.parametrize(
    "scatter",
    [
        "t = Reshape(p, k)  n = ScatterND(f, t, v)",
        "e = Expand(p, r)  n = ScatterElements<axis = 0>(f, e, v)",
    ],
    ids=["ScatterND", "ScatterElements"],
)
def test_a_step_that_stores_along_a_later_axis_copies_no_state(scatter: str) -> None:
    model = onnx.parser.parse_model(STEP.format(scatter=scatter))
    kernels = ostinato.InferenceSession(model, cache_dir=None).report()["kernels"]
    assert all(kernel["bytes"] < 128 for kernel in kernels if kernel["in_loop"])
