"""Gradients of convolutions and pooling."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check
from tests.autodiff.models import feeds_of, parse

SIZES = {"N": 2, "T": 9, "S": 5, "C": 2}


def check_window(
    node: str,
    shapes: dict[str, str],
    opset: int = 18,
    wrt: list[str] | None = None,
    onnxruntime: bool = True,
) -> None:
    """Check a model of one node, whose inputs have these shapes."""
    inputs = ", ".join(f"float[{shape}] {name}" for name, shape in shapes.items())
    rank = shapes["x"].count(",") + 1
    result = ",".join(f"y{i}" for i in range(rank))
    model = parse(
        f"g ({inputs}) => (float[{result}] y) {{ y = {node}({', '.join(shapes)}) }}", opset
    )
    check(model, feeds_of(model, **SIZES), wrt, onnxruntime=onnxruntime)


CONVS = [
    # attributes, shapes of image and weights
    ("", "2,3,8", "4,3,3"),
    ("", "N,3,T", "4,3,3"),
    ("strides = [2]", "2,2,9", "3,2,3"),
    ("strides = [2]", "2,2,10", "3,2,3"),
    ("strides = [2], pads = [1, 0]", "N,2,10", "3,2,3"),
    ("strides = [3], pads = [1, 2], dilations = [2]", "N,2,11", "3,2,3"),
    ("strides = [3], pads = [1, 2], dilations = [2]", "N,2,T", "3,2,3"),
    ("strides = [2]", "N,2,T", "3,2,2"),
    ("strides = [2], pads = [2, 3], kernel_shape = [1]", "1,2,5", "3,2,1"),
    ("group = 2", "N,4,7", "6,2,3"),
    ("group = 4, pads = [1, 1], strides = [2]", "N,4,T", "4,1,3"),
    ('auto_pad = "SAME_UPPER", strides = [2]', "2,2,8", "3,2,3"),
    ('auto_pad = "SAME_LOWER", strides = [3]', "2,2,8", "3,2,5"),
    ('auto_pad = "SAME_LOWER"', "N,2,T", "3,2,4"),
    ('auto_pad = "VALID"', "N,2,T", "3,2,4"),
    ("", "N,2,5,T", "3,2,2,3"),
    ("strides = [2, 1], pads = [1, 0, 0, 2], dilations = [1, 2]", "2,4,6,7", "3,4,3,2"),
    ("strides = [2, 3], pads = [1, 0, 0, 2], group = 2", "N,4,S,T", "6,2,3,2"),
    ("strides = [1, 2, 1], pads = [0, 1, 1, 1, 0, 0], group = 2", "1,2,4,5,3", "4,1,2,3,2"),
]


@pytest.mark.parametrize(("attributes", "image", "weight"), CONVS)
def test_conv(attributes: str, image: str, weight: str) -> None:
    shapes = {"x": image, "w": weight, "b": weight.split(",")[0]}
    check_window(f"Conv<{attributes}>" if attributes else "Conv", shapes)


def test_conv_without_bias() -> None:
    check_window("Conv", {"x": "N,2,6", "w": "3,2,3"})
    check_window("Conv", {"x": "N,2,6", "w": "3,2,3"}, wrt=["w"])


def test_conv_of_nothing() -> None:
    """Which ends onnxruntime with a division by zero."""
    check_window("Conv", {"x": "0,2,5", "w": "3,2,2"}, onnxruntime=False)


CONV_TRANSPOSES = [
    ("", "2,3,5", "3,4,3"),
    ("", "N,3,S", "3,4,3"),
    ("strides = [2]", "N,3,S", "3,2,3"),
    ("strides = [3]", "N,3,S", "3,2,2"),
    ("strides = [2], pads = [1, 2], output_padding = [1]", "N,3,S", "3,2,4"),
    ("strides = [2], output_shape = [9]", "N,3,5", "3,2,3"),
    ('strides = [2], auto_pad = "SAME_UPPER"', "N,3,5", "3,2,3"),
    ('strides = [2], auto_pad = "SAME_LOWER"', "N,3,5", "3,2,3"),
    ("group = 2", "N,4,S", "4,3,3"),
    ("strides = [2, 1], pads = [1, 0, 0, 1], group = 2", "N,4,3,S", "4,1,3,2"),
]


@pytest.mark.parametrize(("attributes", "image", "weight"), CONV_TRANSPOSES)
def test_conv_transpose(attributes: str, image: str, weight: str) -> None:
    group = 2 if "group" in attributes else 1
    shapes = {"x": image, "w": weight, "b": str(int(weight.split(",")[1]) * group)}
    check_window(f"ConvTranspose<{attributes}>" if attributes else "ConvTranspose", shapes)


def test_conv_transpose_with_a_row_of_zeros() -> None:
    """Which onnxruntime refuses: an output_padding that is not below the stride."""
    node = "ConvTranspose<strides = [2], dilations = [3], output_padding = [2]>"
    check_window(node, {"x": "N,3,S", "w": "3,2,3"}, onnxruntime=False)


COLUMNS = [
    # attributes, columns, image and block
    ("", "N,6,16", [5, 4], [2, 1]),
    ("strides = [2, 3], pads = [1, 0, 2, 1], dilations = [1, 2]", "2,12,6", [4, 9], [2, 3]),
    ("strides = [2]", "N,6,4", [9], [3]),
]


@pytest.mark.parametrize(("attributes", "columns", "image", "block"), COLUMNS)
def test_col2im(attributes: str, columns: str, image: list[int], block: list[int]) -> None:
    node = f"Col2Im<{attributes}>" if attributes else "Col2Im"
    result = ",".join(f"y{i}" for i in range(len(image) + 2))
    model = parse(
        f"g (float[{columns}] x) => (float[{result}] y) {{ s = Constant<value_ints = {image}>()"
        f" b = Constant<value_ints = {block}>() y = {node}(x, s, b) }}"
    )
    check(model, feeds_of(model, **SIZES), onnxruntime=len(image) > 1)


POOLS = [
    ("kernel_shape = [2]", "N,3,T"),
    ("kernel_shape = [2], strides = [2]", "N,3,T"),
    ("kernel_shape = [3], strides = [2], pads = [1, 1]", "N,3,T"),
    ("kernel_shape = [3], strides = [2], pads = [1, 1]", "N,3,8"),
    ("kernel_shape = [3], strides = [2], dilations = [2]", "N,3,8"),
    ("kernel_shape = [3], strides = [2], ceil_mode = 1", "N,3,8"),
    ("kernel_shape = [3], strides = [3], ceil_mode = 1, pads = [1, 1]", "N,3,9"),
    ("kernel_shape = [3, 2], strides = [3, 2], ceil_mode = 1", "N,3,7,5"),
    ('kernel_shape = [3], strides = [2], auto_pad = "SAME_UPPER"', "N,3,8"),
    ("kernel_shape = [2, 3], strides = [2, 1], pads = [0, 1, 1, 1]", "N,2,5,T"),
    ("kernel_shape = [2, 2], strides = [2, 2]", "N,2,6,4"),
    ("kernel_shape = [2, 1, 2], strides = [2, 1, 1]", "1,2,4,3,3"),
    ("kernel_shape = [2]", "0,3,4"),
]


@pytest.mark.parametrize(("attributes", "image"), POOLS)
def test_average_pool(attributes: str, image: str) -> None:
    check_window(f"AveragePool<{attributes}>", {"x": image}, 19)
    check_window(f"AveragePool<{attributes}, count_include_pad = 1>", {"x": image}, 19)


@pytest.mark.parametrize(("attributes", "image"), POOLS)
def test_max_pool(attributes: str, image: str) -> None:
    check_window(f"MaxPool<{attributes}>", {"x": image})


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize(("attributes", "image"), POOLS[:9])
def test_lp_pool(attributes: str, image: str, power: int) -> None:
    check_window(f"LpPool<{attributes}, p = {power}>", {"x": image})


def test_equal_maxima_share_the_gradient() -> None:
    model = parse(
        "g (float[1,1,4] x) => (float l) { y = MaxPool<kernel_shape = [2], strides = [2]>(x)"
        " l = ReduceSum<keepdims = 0>(y) }"
    )
    session = ostinato.InferenceSession(gradient(model, "l", ["x"]))
    x = np.array([[[1, 1, 2, 3]]], np.float32)
    np.testing.assert_array_equal(session.run(["x_grad"], {"x": x})[0], [[[0.5, 0.5, 0, 1]]])


@pytest.mark.parametrize("node", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("image", ["N,3,4", "N,C,S,T", "1,2,2,3,2"])
def test_global_pools(node: str, image: str) -> None:
    check_window(node, {"x": image})


@pytest.mark.parametrize(
    ("node", "image", "reason"),
    [
        ('Conv<auto_pad = "SAME_UPPER", strides = [2]>', "N,2,T", "auto_pad"),
        ("AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1>", "N,2,T", "ceil_mode"),
        (
            "MaxPool<kernel_shape = [3], strides = [3], pads = [1, 1], ceil_mode = 1>",
            "N,2,8",
            "lies",
        ),
        ("MaxPool<kernel_shape = [3]>", "N,C,T", "channels of a run-time size"),
    ],
)
def test_what_depends_on_run_time_sizes_is_refused(node: str, image: str, reason: str) -> None:
    operands = "x, w" if node.startswith("Conv") else "x"
    model = parse(
        f"g (float[{image}] x, float[3,2,3] w) => (float l) {{ y = {node}({operands})"
        " l = ReduceSum<keepdims = 0>(y) }"
    )
    with pytest.raises(ostinato.UnsupportedError, match=reason):
        gradient(model, "l", ["x"])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_types_of_16_bits(kind: str) -> None:
    """Of sums of ones, which are exact."""
    dtype = np.float16 if kind == "float16" else ml_dtypes.bfloat16
    model = parse(
        f"g ({kind}[2,2,6] x, {kind}[3,2,3] w) => ({kind} l) {{ c = Conv<pads = [1, 1]>(x, w)"
        " y = AveragePool<kernel_shape = [1]>(c) l = ReduceSum<keepdims = 0>(y) }",
        opset=22,
    )
    session = ostinato.InferenceSession(gradient(model, "l", ["x", "w"]), fallback=False)
    feeds = {"x": np.ones((2, 2, 6), dtype), "w": np.ones((3, 2, 3), dtype)}
    x, w = session.run(["x_grad", "w_grad"], feeds)
    assert x.dtype == w.dtype == dtype
    np.testing.assert_array_equal(x[0, 0].astype(float), [6, 9, 9, 9, 9, 6])
    np.testing.assert_array_equal(w[0, 0].astype(float), [10, 12, 10])
