"""Where what is scattered into lies in memory."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ostinato
from tests.golden import parse

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


@pytest.mark.parametrize("reduction", ["none", "max"])
def test_one_element_of_constants_is_updated(reduction: str) -> None:
    """The result has an axis more than the updates."""
    model = parse(
        f"""g (float[1] z) => (float[3] y)
            <float[3] x = {{1, 1, 1}}, int64[1] i = {{-1}}, float u = {{2.5}}> {{
            r = ScatterND <reduction = "{reduction}"> (x, i, u) y = Add(r, z)
        }}""",
        opset=18,
    )
    session = ostinato.InferenceSession(model, cache_dir=None)
    np.testing.assert_array_equal(session.run(None, {"z": np.zeros(1, "f")})[0], [1, 1, 2.5])


def test_ranks_tell_how_many_axes_are_indexed() -> None:
    model = parse(
        """g (float[N, M] x, int64[R, K] i, float[R] u) => (float[N, M] y) {
            y = ScatterND(x, i, u)
        }""",
        opset=18,
    )
    session = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    places = np.array([[0, 1], [1, -1]])
    feeds = {"x": np.zeros((2, 3), "f"), "i": places, "u": np.array([1, 2], "f")}
    np.testing.assert_array_equal(session.run(None, feeds)[0], [[0, 1, 0], [0, 0, 2]])
    with pytest.raises(ostinato.OstinatoError, match="axes to index"):
        session.run(None, feeds | {"i": places[:, :1]})
