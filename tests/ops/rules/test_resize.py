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


SIZES = HEAD.replace(
    "(float[n, 2, 5, 3] x, float[n, 4, 7, 9] other) => (float[n, 2, 7, 9] y)",
    "(float[1, 2, h, w] x, float[1, 2, a, b] other) => (float[1, 2, p, q] y)",
)

FIXED = """<ir_version: 8, opset_import: ["": OPSET]>
g (float[1, 2, h, w] x) => (float[1, 2, p, q] y) { y = """


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (9, 'Upsample <mode = "linear"> (x, scales)'),
        (10, 'Resize <mode = "nearest"> (x, scales)'),
        (17, 'Resize <mode = "linear"> (x, , scales)'),
    ],
)
def test_scales_of_images_of_any_size(opset, node):
    """As many outputs as the other image has rows, or one less where floats round so."""
    picked = ("<starts = [2], ends = [9]>", "") if opset < 10 else ("", ", two, nine")
    text = SIZES.replace("OPSET", str(opset)).replace("PICKED", picked[0])
    model = onnx.parser.parse_model(text.replace("BOUNDS", picked[1]) + node + "}")
    session = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    random = np.random.default_rng(0)
    for shape, other in [
        ((5, 3), (10, 4)),
        ((49, 41), (50, 60)),
        ((49, 7), (1, 7)),
        ((3, 4), (3, 4)),
    ]:
        x = random.standard_normal((1, 2, *shape), np.float32)
        feed = {"x": x, "other": np.zeros((1, 2, *other), np.float32)}
        (y,) = session.run(None, feed)
        scales = np.float32(other) / np.float32(shape)
        assert y.shape[2:] == tuple(np.floor(np.float32(shape) * scales))
        known = onnx.numpy_helper.from_array(np.float32([1, 1, *scales]), "scales")
        fixed = onnx.parser.parse_model(FIXED.replace("OPSET", str(opset)) + node + "}")
        fixed.graph.initializer.append(known)
        (same,) = ostinato.InferenceSession(fixed, cache_dir=None).run(None, {"x": x})
        np.testing.assert_array_equal(y, same)
    for shape, other in [((0, 3), (4, 4)), ((5, 3), (0, 3))]:
        feed = {
            name: np.zeros((1, 2, *size), np.float32)
            for name, size in (("x", shape), ("other", other))
        }
        with pytest.raises(ostinato.ShapeError, match="a scale is no positive number"):
            session.run(None, feed)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_what_lies_outside_along_one_axis_is_not_blended_along_another(mode):
    model = parse(
        "g (float[1, 1, 3, 4] x) => (float[1, 1, p, q] y) <int64[4] n = {1, 1, 5, 6},"
        " float[8] region = {0, 0, 0.1, -0.5, 1, 1, 0.9, 0.5}> {"
        f' y = Resize <mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize",'
        " extrapolation_value = -3e38> (x, region, , n) }"
    )
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 4)).astype(np.float32)
    (y,) = ostinato.InferenceSession(model, cache_dir=None, fallback=False).run(None, {"x": x})
    assert (y[..., :3] == np.float32(-3e38)).all()
    assert (abs(y[..., 3:]) < 10).all()
