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


def test_images_of_any_height_have_positions_too():
    model = parse(
        "g (float[1, 2, H, W] x) => (float[1, 2, A, B] y)"
        " { y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x) }"
    )
    session = ostinato.InferenceSession(model, cache_dir=None)
    for height, width in ((1, 1), (2, 5), (7, 40), (0, 3)):
        x = np.random.default_rng(height).standard_normal((1, 2, height, width), np.float32)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        (y,) = session.run(None, {"x": x})
        if height == 0:
            assert y.shape == (1, 2, 0, 2)
            continue
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        np.testing.assert_array_equal(y, windows[:, :, ::2, ::2].max((-1, -2)))


def test_an_image_without_lines_has_nothing_but_padding():
    model = parse(
        "g (float[1, 2, H, 6] x) => (float[1, 2, A, 7] y)"
        " { y = MaxPool <kernel_shape = [4, 4], pads = [3, 2, 3, 2]> (x) }"
    )
    x = np.zeros((1, 2, 0, 6), np.float32)
    (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    assert y.shape == (1, 2, 3, 7) and (y == -np.inf).all()
