"""Values put together and cut again."""

from __future__ import annotations

import numpy as np
import onnx.parser
from onnx import numpy_helper

import ostinato


def test_a_slice_along_another_axis_keeps_the_parts_of_a_sum():
    """A stream has no slice where it has just the elements that are left."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((150, 24)).astype(np.float32)
    a, b = (rng.standard_normal((3, 8, n)).astype(np.float32) for n in (90, 60))
    results = []
    for body in (
        "c = Concat<axis = 2>(a, b)  d = Slice(c, first, last, axis)  y = MatMul(d, w)",
        "c = Slice(a, first, last, axis)  d = Slice(b, first, last, axis)"
        "e = Concat<axis = 2>(c, d)  y = MatMul(e, w)",
    ):
        model = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 21]>
            g (float[3, T, 90] a, float[3, T, 60] b) => (float[3, N, 24] y)
            <int64[1] first = {{2}}, int64[1] last = {{-1}}, int64[1] axis = {{1}}> {{ {body} }}"""
        )
        model.graph.initializer.append(numpy_helper.from_array(w, "w"))
        session = ostinato.InferenceSession(model, cache_dir=None)
        results.append(session.run(None, {"a": a, "b": b})[0])
    expected = np.concatenate([a, b], 2).astype(np.float64)[:, 2:-1] @ w
    np.testing.assert_allclose(results[0], expected, atol=1e-4)
    np.testing.assert_array_equal(*results)
