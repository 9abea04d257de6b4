from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse
from tests.oracle import ops


@pytest.mark.parametrize(
    ("mode", "about", "scale", "expected"),
    [
        ("linear", "half_pixel", 0.5, lambda x: (x[..., ::2] + x[..., 1::2]) / 2),
        ("linear", "half_pixel", 0.25, lambda x: (x[..., 1::4] + x[..., 2::4]) / 2),
        ("nearest", "asymmetric", 0.5, lambda x: x[..., ::2]),
    ],
)
def test_elements_that_are_evenly_spaced_are_not_looked_up(mode, about, scale, expected):
    model = parse(
        f"g (float[1, 3, 40] x) => (float[1, 3, n] y) <float[3] s = {{1.0, 1.0, {scale}}}>"
        f' {{ y = Resize <mode = "{mode}", coordinate_transformation_mode = "{about}",'
        ' nearest_mode = "floor"> (x, , s) }'
    )
    assert "int64" not in dict(stages(model, Options(cache_dir=None)))["schedule"]
    x = np.random.default_rng(0).standard_normal((1, 3, 40)).astype(np.float32)
    (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-6)


HEAD = """<ir_version: 8, opset_import: ["": OPSET]>
g (float[n, 2, 5, 3] x, float[n, 4, 7, 9] other) => (float[n, 2, 7, 9] y) <
    float[2] ones = {1, 1}, int64[1] two = {2}, int64[1] nine = {9}
> {
    after = Shape (other) picked = Slice PICKED (after BOUNDS) sizes = Cast <to = 1> (picked)
    before = Shape (x) part = Slice PICKED (before BOUNDS) old = Cast <to = 1> (part)
    scale = Div (sizes, old) scales = Concat <axis = 0> (ones, scale)
    y = """


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (9, 'Upsample <mode = "linear"> (x, scales)'),
        (10, 'Resize <mode = "linear"> (x, scales)'),
        (17, 'Resize <mode = "linear"> (x, , scales)'),
    ],
)
@pytest.mark.parametrize("rows", [1, 3])
def test_scales_of_sizes_that_are_numbers_are_known(opset, node, rows):
    """PyTorch writes `interpolate(x, size=other.shape[2:])` so; only the batch has a name."""
    picked = ("<starts = [2], ends = [9]>", "") if opset < 10 else ("", ", two, nine")
    text = HEAD.replace("OPSET", str(opset)).replace("PICKED", picked[0])
    model = onnx.parser.parse_model(text.replace("BOUNDS", picked[1]) + node + "}")
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, 2, 5, 3), np.float32)
    feed = {"x": x, "other": np.zeros((rows, 4, 7, 9), np.float32)}
    (y,) = ostinato.InferenceSession(model, cache_dir=None, fallback=False).run(None, feed)
    (expected,) = ops.run(model, feed)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
