"""The gradient of Resize."""

from __future__ import annotations

import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import feeds_of, parse

SIZES = {"N": 2, "T": 4}
# Attributes, shape, scales or sizes, and whether onnxruntime has this form.
RESIZES = [
    ("", "N,2,T", "scales", [1, 1, 3], True),
    (
        'coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"',
        "N,2,3,4",
        "scales",
        [1, 1, 2, 3],
        True,
    ),
    ('nearest_mode = "ceil"', "N,2,3,4", "scales", [1, 1, 2, 3], True),
    ("", "1,2,3,4", "scales", [1, 1, 1.5, 0.5], True),
    ("", "1,2,3,4", "sizes", [1, 2, 5, 8], True),
    ("axes = [2]", "N,2,3", "sizes", [7], True),
    ("axes = [-1]", "N,2,3", "scales", [2.5], True),
    ('mode = "linear"', "N,2,3,4", "scales", [1, 1, 2, 1.5], True),
    ('mode = "linear"', "N,2,3,T", "scales", [1, 1, 2, 2], True),
    (
        'mode = "linear", coordinate_transformation_mode = "align_corners"',
        "1,2,3,4",
        "sizes",
        [1, 2, 5, 4],
        True,
    ),
    (
        'mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"',
        "1,2,6,4",
        "sizes",
        [1, 2, 3, 1],
        True,
    ),
    ('mode = "linear", antialias = 1', "1,2,6,7", "scales", [1, 1, 0.5, 0.6], True),
    ('mode = "cubic"', "1,2,6,4", "scales", [1, 1, 2, 0.6], True),
    (
        'mode = "cubic", cubic_coeff_a = -0.5, exclude_outside = 1',
        "1,2,6,4",
        "sizes",
        [1, 2, 8, 7],
        True,
    ),
]


@pytest.mark.parametrize(("attributes", "shape", "what", "values", "witnessed"), RESIZES)
def test_resize(
    attributes: str, shape: str, what: str, values: list[float], witnessed: bool
) -> None:
    numbers = [float(value) for value in values] if what == "scales" else values
    kind = "value_floats" if what == "scales" else "value_ints"
    empty = ", " if what == "scales" else ", , "
    result = ",".join(f"y{i}" for i in range(shape.count(",") + 1))
    model = parse(
        f"g (float[{shape}] x) => (float[{result}] y) {{ s = Constant<{kind} = {numbers}>()"
        f" y = Resize<{attributes}>(x,{empty}s) }}".replace("<>", "")
    )
    check(model, feeds_of(model, **SIZES), onnxruntime=witnessed)


def test_regions_are_refused() -> None:
    model = parse(
        "g (float[1,1,4] x, float[6] roi) => (float l) { s = Constant<value_ints = [1, 1, 2]>()"
        ' y = Resize<coordinate_transformation_mode = "tf_crop_and_resize">(x, roi, , s)'
        " l = ReduceSum<keepdims = 0>(y) }"
    )
    with pytest.raises(ostinato.UnsupportedError, match="or a region"):
        gradient(model, "l", ["x"])
