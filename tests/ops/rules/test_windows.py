from __future__ import annotations

import numpy as np
import pytest

from ostinato.program import interpreter
from tests.golden import parse
from tests.one_model import OneModel


@pytest.mark.parametrize(
    ("columns", "pads", "taps", "extra"),
    [
        (14, (1, 1), 3, 1),
        (13, (1, 1), 3, 0),
        (16, (1, 0), 3, 1),
        (14, (0, 1), 1, 0),
    ],
)
def test_padded_rows_do_not_evict_each_other(columns, pads, taps, extra):
    """64 channels of 16 columns are 4,096 bytes."""
    above, left = pads
    model = parse(
        f"g (float[1, 64, 5, {columns}] x, float[2, 64, {taps}, 3] w) => (float[1, 2, h, n] y)"
        f" {{ y = Conv <pads = [{above}, {left}, {above}, {left}]> (x, w) }}"
    )
    (program,) = OneModel(model).programs
    rows = 5 + 2 * above
    padded = {buffer.size for buffer in program.buffers.values() if buffer.kind == "arena"}
    assert 64 * rows * (columns + 2 * left + extra) in padded
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 64, 5, columns)).astype(np.float32)
    w = random.standard_normal((2, 64, taps, 3)).astype(np.float32)
    (y,) = interpreter.run(program, {"x": x, "w": w}).values()
    around = np.pad(x, ((0, 0), (0, 0), (above, above), (left, left))).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(around, (taps, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, w)
    np.testing.assert_allclose(y.reshape(expected.shape), expected, atol=2e-4)
