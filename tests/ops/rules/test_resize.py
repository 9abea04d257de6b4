from __future__ import annotations

import numpy as np
import pytest

import ostinato
from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


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
