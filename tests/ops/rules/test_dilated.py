"""Dilated convolutions, by parts of an image and by phases, give the sums of the document."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from tests.ops.rules.sessions import opened, run

RNG = np.random.default_rng(5)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def convolution(
    w: np.ndarray, size: tuple[int | str, int | str], dilation: int, pads: int, stride: int = 1
) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[N, {w.shape[1]}, {size[0]}, {size[1]}] x) => (float[N, {w.shape[0]}, H, W] y) {{
            y = Conv<pads = [{pads}, {pads}, {pads}, {pads}], strides = [{stride}, {stride}],
                     dilations = [{dilation}, {dilation}]>(x, w, b)
        }}"""
    )
    bias = np.linspace(-1, 1, len(w), dtype=np.float32)
    model.graph.initializer.extend(
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")]
    )
    return model


def exact(w: np.ndarray, x: np.ndarray, dilation: int, pads: int, stride: int = 1) -> np.ndarray:
    """The sums and biases in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    span = [(n - 1) * dilation + 1 for n in w.shape[2:]]
    below = np.lib.stride_tricks.sliding_window_view(padded, span, (2, 3))
    below = below[:, :, ::stride, ::stride, ::dilation, ::dilation]
    sums = np.einsum("nchwij,kcij->nkhw", below, w.astype(np.float64))
    return sums + np.linspace(-1, 1, len(w))[:, None, None]


# Weights, size of the image, dilation, pads, stride.
CASES = [
    ((32, 24, 3, 3), (14, 14), 12, 12, 1),
    ((17, 128, 3, 3), (9, 11), 6, 6, 1),
    ((8, 5, 3, 3), (14, 14), 24, 24, 1),
    ((8, 5, 3, 2), (20, 12), 7, 9, 2),
    ((8, 5, 2, 3), (6, 9), 4, 3, 1),
    # Some places have no tap on data.
    ((4, 3, 2, 2), (4, 4), 2, 5, 1),
    ((64, 64, 3, 3), (28, 28), 2, 2, 1),
    ((64, 64, 3, 3), (29, 30), 3, 3, 1),
    ((96, 64, 3, 3), (33, 33), 6, 6, 1),
    ((64, 48, 5, 5), (24, 24), 2, 4, 1),
    # Parts whose places have different taps on data.
    ((8, 12, 1, 29), (1, 51), 2, 28, 1),
    ((8, 6, 1, 9), (4, 21), 3, 12, 2),
]


@pytest.mark.parametrize(("shape", "size", "dilation", "pads", "stride"), CASES)
def test_sums_are_those_of_the_document(shape, size, dilation, pads, stride):
    w, x = numbers(*shape), numbers(2, shape[1], *size)
    model = convolution(w, size, dilation, pads, stride)
    expected = exact(w, x, dilation, pads, stride)
    function = opened(model)
    got = function(x)
    np.testing.assert_allclose(got, expected, rtol=0, atol=3e-6 * np.abs(expected).max())
    # Whatever the batch, the number of threads and the passes.
    np.testing.assert_array_equal(np.concatenate([function(x[:1]), function(x[1:])]), got)
    np.testing.assert_array_equal(run(model, x, threads=2), got)
    np.testing.assert_array_equal(run(model, x, disable=("layout", "fuse")), got)


@pytest.mark.parametrize(("shape", "size", "dilation", "pads", "stride"), CASES)
def test_parts_have_the_bits_of_the_whole(shape, size, dilation, pads, stride):
    """A program for any size has no parts: it adds the zeros of the padding."""
    w, x = numbers(*shape), numbers(1, shape[1], *size)
    known = run(convolution(w, size, dilation, pads, stride), x, winograd=False)
    any_size = convolution(w, ("A", "B"), dilation, pads, stride)
    np.testing.assert_array_equal(known, run(any_size, x, winograd=False))
    # The sizes of a run decide nothing that bits depend on.
    np.testing.assert_array_equal(known, run(any_size, x))


def test_products_of_padding_are_left_out():
    """One tap of nine lies on the image."""
    model = convolution(numbers(32, 32, 3, 3), (14, 14), 24, 24)
    session = ostinato.InferenceSession(model, cache_dir=None)
    products = 32 * 32 * 14 * 14
    assert sum(kernel["flops"] for kernel in session.report().kernels) < 3 * products


def test_infinite_weights_meet_the_padding():
    w, x = numbers(4, 3, 3, 3), numbers(1, 3, 8, 8)
    w[0, 0, 0, 0] = np.inf
    got = run(convolution(w, (8, 8), 7, 7), x)
    assert np.isnan(got[0, 0]).any() and np.isfinite(got[0, 1:]).all()


def test_channels_that_only_a_run_tells():
    w, x = numbers(4, 6, 3, 3), numbers(2, 6, 9, 9)
    model = convolution(w, (9, 9), 5, 5)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "C"
    np.testing.assert_array_equal(run(model, x), run(convolution(w, (9, 9), 5, 5), x))


@pytest.mark.parametrize("dilation", [1, 3])
def test_windows_beyond_the_image_are_refused(dilation: int):
    with pytest.raises(ostinato.ShapeError, match=r"output: -\d is negative"):
        run(convolution(numbers(2, 1, 1, 4), (4, 1), dilation, 0), numbers(1, 1, 4, 1))
