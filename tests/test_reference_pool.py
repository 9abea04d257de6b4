"""Windows of pools that are looked at together give what each gives alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx.reference.ops import op_pool_common

from tests.reference_pool import one_by_one, pool

RANDOM = np.random.default_rng(7)
# Kernel, strides, pads and dilations.
WINDOWS = {
    "plain": ([2, 3], None, [0, 0, 0, 0], None),
    "padded": ([3, 2], [2, 1], [1, 0, 2, 1], [1, 1]),
    "dilated": ([2, 3], [1, 2], [1, 1, 1, 1], [3, 2]),
    "beyond the end": ([3, 3], [3, 2], [0, 1, 0, 0], [1, 1]),
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_windows_give_what_each_gives_alone(window: str, dtype: str) -> None:
    kernel, strides, pads, dilations = WINDOWS[window]
    x = RANDOM.standard_normal((2, 3, 9, 8)).astype(dtype)
    for kind, counts, is_ceil in itertools.product(("MAX", "AVG", "LPPOOL"), (0, 1), (False, True)):
        steps = strides or [1, 1]
        out, extra = op_pool_common.get_output_shape_explicit_padding(
            pads, x.shape[2:], kernel, steps, dilations, is_ceil
        )
        filled = 0 if counts and kind != "MAX" else np.nan
        around = [(0, 0), (0, 0), (extra[0], extra[2]), (extra[1], extra[3])]
        padded = np.pad(x, around, constant_values=filled)
        arguments = (padded, x.shape, kernel, strides, out, kind, extra, pads, dilations, counts, 3)
        got, expected = pool(*arguments), one_by_one(*arguments)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tobytes() == expected.tobytes(), (kind, counts, is_ceil)


def test_pools_without_pads_and_of_three_axes() -> None:
    x = RANDOM.standard_normal((1, 2, 5, 4, 3)).astype("f")
    arguments = (x, x.shape, [2, 2, 2], [1, 1, 1], [4, 3, 2])
    for kind in ("MAX", "AVG", "LPPOOL"):
        assert pool(*arguments, kind, p=2).tobytes() == one_by_one(*arguments, kind, p=2).tobytes()
