"""The gradient of GridSample."""

from __future__ import annotations

import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import feeds_of, parse

# Attributes, and shapes of the image, the grid and the result.
PLANES = ("N,2,3,T", "N,2,2,2", "N,2,2,2")
CASES = [
    ("", PLANES),
    ("align_corners = 1", PLANES),
    ('mode = "nearest"', PLANES),
    ('padding_mode = "border"', PLANES),
    ('padding_mode = "reflection"', PLANES),
    ('padding_mode = "reflection", align_corners = 1', PLANES),
    ("", ("1,1,3,4,2", "1,2,2,1,3", "1,1,2,2,1")),
    ('padding_mode = "reflection"', ("1,2,5", "1,4,1", "1,2,4")),
]


@pytest.mark.parametrize(("attributes", "shapes"), CASES)
def test_grid_sample(attributes: str, shapes: tuple[str, str, str]) -> None:
    x, grid, y = shapes
    model = parse(
        f"g (float[{x}] x, float[{grid}] grid) => (float[{y}] y) "
        f"{{ y = GridSample<{attributes}>(x, grid) }}".replace("<>", ""),
        opset=20,
    )
    # onnxruntime has no GridSample of one spatial axis.
    check(model, feeds_of(model, N=2, T=4), onnxruntime=x.count(",") > 2)


def test_cubic_is_refused() -> None:
    model = parse(
        "g (float[1,1,4,4] x, float[1,2,2,2] grid) => (float l) "
        '{ y = GridSample<mode = "cubic">(x, grid) l = ReduceSum<keepdims = 0>(y) }',
        opset=20,
    )
    with pytest.raises(ostinato.UnsupportedError, match="no gradient with mode 'cubic'"):
        gradient(model, "l", ["x"])
