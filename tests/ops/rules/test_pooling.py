from __future__ import annotations

import re

import numpy as np
import pytest

import ostinato
from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


@pytest.mark.parametrize(
    ("kernel", "passes"),
    [
        ((5, 7), ["5", "7"]),
        ((3, 1), ["3"]),
        ((2, 2), ["2, r < 2"]),
        ((2, 2, 2), ["2, r < 2, r < 2"]),
    ],
)
def test_maxima_of_many_taps_are_taken_along_one_axis_after_the_other(kernel, passes):
    image = ", ".join(["20"] * len(kernel))
    model = parse(
        f"g (float[1, 3, {image}] x) => (float[1, 3, {', '.join('abc'[: len(kernel)])}] y)"
        f" {{ y = MaxPool <kernel_shape = {list(kernel)}> (x) }}"
    )
    program = dict(stages(model, Options(cache_dir=None)))["program"]
    found = re.findall(r"max r\d+ < (.*?):", program)
    assert [re.sub(r"r\d+", "r", taps) for taps in found] == passes


@pytest.mark.parametrize(
    ("pads", "stride", "dilation", "is_masked"),
    [
        ((1, 1), 1, 1, False),
        ((2, 2), 2, 1, False),
        ((0, 1), 2, 1, False),
        # Some windows have no element of the data below them, or none next to the padding.
        ((3, 3), 1, 1, True),
        ((1, 2), 1, 2, True),
    ],
)
@pytest.mark.parametrize("lines", [3, 6])
def test_a_tap_in_padding_takes_the_element_beside_it(lines, pads, stride, dilation, is_masked):
    model = parse(
        f"g (float[1, 2, {lines}, 6] x) => (float[a, b, c, d] y) {{ y = MaxPool <"
        f"kernel_shape = [3, 3], pads = [{pads[0]}, 1, {pads[1]}, 1], strides = [{stride}, 1],"
        f" dilations = [{dilation}, 1]> (x) }}"
    )
    x = -1 - np.random.default_rng(lines).random((1, 2, lines, 6), np.float32)
    x[0, 0, -1, 2] = np.nan
    padded = np.pad(x, ((0, 0), (0, 0), pads, (1, 1)), constant_values=-np.inf)
    span = 2 * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (span, 3), (2, 3))
    expected = windows[:, :, ::stride, :, ::dilation].max((-1, -2))
    (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    np.testing.assert_array_equal(y, expected)
    program = dict(stages(model, Options(cache_dir=None)))["program"]
    first, *_ = re.findall(r"max r\d+ < 3: (.*)", program)
    assert (" if " in first) == is_masked
