"""Bounds of a Slice, wherever one is read: compiled, folded, on the reference kernel, gradients."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.model.values import constant_array
from ostinato.passes.simplify.constant_folding import constant_folding
from ostinato.sizes.slices import slice_range
from tests import witness

FALLING = """<ir_version: 9, opset_import: ["": 18]>
    falling (float[3] x) => (float[M] y, float[K] z)
    <int64[1] s = {-100}, int64[1] e = {-9223372036854775807}, int64[1] a = {0}, int64[1] t = {-1},
     float[2] c = {5, 6}>
    { y = Slice(x, s, e, a, t) z = Slice(c, s, e, a, t) }"""


def documented(start: int, end: int, step: int, extent: int) -> list[int]:
    """What the documents of Slice-13 say, word by word; nothing of an axis without elements."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    if step > 0:
        start, end = np.clip(start, 0, extent), np.clip(end, 0, extent)
    else:
        start, end = np.clip(start, 0, max(extent - 1, 0)), np.clip(end, -1, extent - 1)
    return list(range(int(start), int(end), step)) if extent else []


def test_all_small_bounds() -> None:
    bounds = range(-6, 7)
    for start, end, step, extent in itertools.product(bounds, bounds, (-3, -1, 1, 2), range(4)):
        taken = list(slice_range(start, end, step, extent))
        assert taken == documented(start, end, step, extent), (start, end, step, extent)


def test_one_that_falls_from_before_the_front_takes_the_first_element() -> None:
    model = onnx.parser.parse_model(FALLING)
    x = np.array([1, 2, 3], np.float32)
    expected = witness.run(model.SerializeToString(), {"x": x})
    for disable in ((), ("constant_folding",)):
        session = ostinato.InferenceSession(model, cache_dir=None, disable=disable)
        for got, wanted in zip(session.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_it_is_folded_to_that_element() -> None:
    model = load_model(onnx.parser.parse_model(FALLING))
    assert constant_folding(model) == 1
    made = constant_array(model.graph.outputs[1].producer().inputs[0])
    np.testing.assert_array_equal(made, [5])


@pytest.mark.parametrize("start", [-100, -3, -1, 1, 100])
def test_its_gradient_goes_to_that_element(start: int) -> None:
    text = FALLING.replace("{-100}", f"{{{start}}}").replace("float[M] y, float[K] z", "float l")
    text = text.replace("z = Slice(c, s, e, a, t)", "l = ReduceSum<keepdims = 0>(y)")
    model = ostinato.autodiff.gradient(onnx.parser.parse_model(text), "l", ["x"])
    (gradient,) = ostinato.InferenceSession(model, cache_dir=None).run(
        ["x_grad"], {"x": np.zeros(3, np.float32)}
    )
    expected = np.zeros(3)
    expected[list(slice_range(start, -(2**63) + 1, -1, 3))] = 1
    np.testing.assert_array_equal(gradient, expected)
