from __future__ import annotations

import re

import numpy as np
import pytest

import ostinato
from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


@pytest.mark.parametrize(
    ("stride", "dilation", "pads", "extra"),
    [(1, 1, (0, 0), 0), (2, 1, (1, 1), 1), (5, 1, (0, 2), 0), (3, 2, (1, 0), 2), (1, 3, (2, 2), 0)],
)
def test_a_single_element_meets_each_tap_once(stride, dilation, pads, extra):
    span, channels = 3 * dilation + 1, 7
    outputs = span - sum(pads) + extra
    model = parse(
        f"g (float[1, {channels}, 1] x, float[{channels}, 3, 4] w) => (float[1, 3, {outputs}] y)"
        f" {{ y = ConvTranspose <strides = [{stride}], dilations = [{dilation}],"
        f" pads = [{pads[0]}, {pads[1]}], output_padding = [{extra}]> (x, w) }}"
    )
    rng = np.random.default_rng(span)
    x, w = rng.integers(-9, 9, (1, channels, 1)), rng.integers(-9, 9, (channels, 3, 4))
    whole = np.zeros((1, 3, span + extra))
    whole[:, :, :span:dilation] = np.einsum("nci,cok->nok", x, w)
    expected = whole[:, :, pads[0] : pads[0] + outputs]
    feeds = {"x": x.astype(np.float32), "w": w.astype(np.float32)}
    (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, feeds)
    np.testing.assert_array_equal(y, expected)
    program = dict(stages(model, Options(cache_dir=None)))["program"]
    assert set(re.findall(r"= sum (.*?):", program)) == {
        f"r{n} < 7" for n in re.findall(r"= sum r(\d+)", program)
    }
