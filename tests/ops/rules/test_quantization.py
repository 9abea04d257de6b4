"""Quantised values and conversions that contradict themselves, and exactness of long sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato
from ostinato.errors import InputError, ModelError, OstinatoError, ShapeError
from tests.cases.case import Array, In, element_type, node

X = In((4, 6))
BYTES = In((4, 6), "uint8")
HALF = np.float32(0.5)


def compiled(op: str, *operands: In | Array | None, **about: Any) -> ostinato.InferenceSession:
    case = node("n", op, *operands, **{"ranks": [2], **about})
    return ostinato.InferenceSession(case.model, cache_dir=None, fallback=False)


def scales(*shape: int) -> Array:
    return np.full(shape, 0.5, np.float32)


@pytest.mark.parametrize(
    ("operands", "attributes", "message"),
    [
        ((scales(5),), {"axis": 1}, "scales and the quantised axis: 5 and 6 differ"),
        ((scales(6),), {"axis": 2}, "axis 2 is out of range for rank 2"),
        ((scales(4, 6),), {}, r"a scale of shape \(4, 6\) without a block_size"),
        ((scales(6), np.zeros(4, np.uint8)), {"axis": 1}, "axis 0 of scale and zero point"),
        ((scales(6), np.zeros((1, 6), np.uint8)), {"axis": 1}, "zero points of shape"),
        ((scales(4, 2),), {"block_size": 2, "axis": 1}, "axis 1 of the scale: 2 and 3 differ"),
        ((scales(3),), {"block_size": 2, "axis": 1}, "block_size 2 and a scale of shape"),
        ((scales(4, 3),), {"block_size": -2, "axis": 1}, "block_size -2"),
        (
            (HALF, np.uint8(1)),
            {"output_dtype": element_type("int8")},
            "attribute 'output_dtype' is 3, the zero point is uint8",
        ),
    ],
)
def test_wrong_granularity_is_refused(operands, attributes, message):
    with pytest.raises((ModelError, ShapeError), match=message):
        compiled("QuantizeLinear", X, *operands, opset=21, **attributes)


def test_run_time_scales_must_fit():
    session = compiled("DequantizeLinear", BYTES, In(("N",)), axis=0)
    feeds = {"x0": np.ones((4, 6), np.uint8), "x1": np.ones(3, np.float32)}
    with pytest.raises((InputError, ShapeError), match="scales and the quantised axis"):
        session.run(None, feeds)


def test_products_of_other_depths_are_refused():
    with pytest.raises(ShapeError, match="contracted axes: 6 and 5 differ"):
        compiled("MatMulInteger", BYTES, np.zeros((5, 3), np.int8), opset=10)


def test_zero_points_of_other_rows_are_refused():
    with pytest.raises(ShapeError, match=r"(3 and 4|4 and 3) differ"):
        compiled("MatMulInteger", BYTES, np.zeros((6, 3), np.int8), np.ones(3, np.uint8), opset=10)


@pytest.mark.parametrize("to", ["int8", "float64"])
def test_bits_of_another_size_are_refused(to):
    with pytest.raises(OstinatoError, match=f"float32 and {to} differ in size"):
        compiled("BitCast", X, to=element_type(to), opset=26)


def test_an_unknown_direction_is_refused():
    with pytest.raises(ModelError, match="attribute 'direction' is 'UP'"):
        compiled("BitShift", BYTES, np.uint8(1), direction="UP")


@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "uint8")])
def test_sums_wrap_in_32_bits(left, right):
    """More products of the largest size than int32 holds."""
    depth = 70_000
    a = np.full((2, depth), np.iinfo(left).max, left)
    b = np.full((depth, 3), np.iinfo(right).max, right)
    zeros = np.array(np.iinfo(left).min, left), np.array(np.iinfo(right).min, right)
    session = compiled("MatMulInteger", In(a.shape, left), b, *zeros, opset=10)
    (total,) = session.run(None, {"x0": a})
    exact = depth * 255 * 255
    assert exact > 2**31
    assert (total == (exact + 2**31) % 2**32 - 2**31).all()


@pytest.mark.parametrize(
    ("position", "name"),
    [(1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")],
)
def test_one_scale_for_all_of_an_image(position: int, name: str) -> None:
    zero, weights = np.uint8(0), np.ones((6, 4, 3, 3), np.uint8)
    operands = [In((1, 4, 8, 8), "uint8"), HALF, zero, weights, HALF, zero, HALF, zero]
    # As many as the result has columns.
    operands[position] = np.ones(6, np.asarray(operands[position]).dtype)
    with pytest.raises(ShapeError, match=f"'{name}' and of a scalar: 6 and 1 differ"):
        compiled("QLinearConv", *operands, ranks=[4])


WEIGHTS, FILTERS = np.ones((6, 3), np.int8), np.ones((5, 6, 1, 1), np.int8)
ONE, NONE = np.uint8(1), np.zeros(0, np.int8)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ((WEIGHTS, ONE, NONE), "elements of 'b_zero_point' and columns: 0 and 3 differ"),
        ((WEIGHTS, ONE, np.ones((4, 3), np.int8)), "axis -2 of 'b_zero_point' and a single one"),
        ((WEIGHTS, ONE, np.ones((3, 1), np.int8)), "axis -1 of 'b_zero_point' and columns"),
        ((WEIGHTS, np.ones(3, np.uint8)), "elements of 'a_zero_point' and rows: 3 and 4 differ"),
        ((WEIGHTS, np.ones((4, 3), np.uint8)), "axis -1 of 'a_zero_point' and a single one"),
    ],
)
def test_zero_points_of_products_are_of_rows_and_columns(operands, message):
    with pytest.raises(ShapeError, match=message):
        compiled("MatMulInteger", BYTES, *operands, opset=10)


@pytest.mark.parametrize(
    ("position", "operand", "message"),
    [
        (1, np.ones((1, 3), np.float32), "axis -2 of 'a_scale' and rows: 1 and 4 differ"),
        (2, np.ones(0, np.uint8), "elements of 'a_zero_point' and rows: 0 and 4 differ"),
        (4, np.ones((4, 1), np.float32), "axis -1 of 'b_scale' and columns: 1 and 3 differ"),
        (5, NONE, "elements of 'b_zero_point' and columns: 0 and 3 differ"),
        (6, np.ones(3, np.float32), "elements of 'y_scale' and rows: 3 and 4 differ"),
        (7, np.ones((1, 3), np.uint8), "axis -2 of 'y_zero_point' and rows: 1 and 4 differ"),
        (1, np.float32("nan"), "input 'a_scale' has nan, expected finite numbers"),
        (6, np.float32(0), "input 'y_scale' has 0.0, expected finite numbers other than 0"),
    ],
)
def test_operands_of_quantised_products_are_of_rows_and_columns(position, operand, message):
    operands = [BYTES, HALF, ONE, WEIGHTS, HALF, np.int8(0), HALF, ONE]
    operands[position] = operand
    with pytest.raises((ModelError, ShapeError), match=message):
        compiled("QLinearMatMul", *operands, opset=21)


@pytest.mark.parametrize(
    ("position", "operand", "message"),
    [
        (4, np.ones((3, 3), np.float32), r"'w_scale' has shape \(3, 3\), expected one axis"),
        (4, np.ones(6, np.float32), "elements of 'w_scale' and filters: 6 and 5 differ"),
        (5, NONE, "elements of 'w_zero_point' and filters: 0 and 5 differ"),
        (5, np.zeros(6, np.int8), "elements of 'w_zero_point' and filters: 6 and 5 differ"),
        (1, np.float32("inf"), "input 'x_scale' has inf, expected finite numbers"),
    ],
)
def test_operands_of_quantised_convolutions_are_of_filters(position, operand, message):
    image = In((1, 6, 2, 2), "uint8")
    operands = [image, HALF, ONE, FILTERS, HALF, np.int8(0), HALF, ONE]
    operands[position] = operand
    with pytest.raises((ModelError, ShapeError), match=message):
        compiled("QLinearConv", *operands, opset=10, ranks=[4])


@pytest.mark.parametrize(
    ("op", "number", "message"),
    [
        ("QuantizeLinear", 0, "input 'y_scale' has 0.0, expected finite numbers other than 0"),
        ("QuantizeLinear", np.nan, "input 'y_scale' has nan, expected finite numbers other than 0"),
        ("DequantizeLinear", np.inf, "input 'x_scale' has inf, expected finite numbers"),
    ],
)
def test_scales_that_are_no_numbers_are_refused(op, number, message):
    x = X if op == "QuantizeLinear" else BYTES
    with pytest.raises(ModelError, match=message):
        compiled(op, x, np.float32(number), opset=21)


@pytest.mark.parametrize("filters", [1, 3])
def test_a_number_for_all_filters_may_be_a_vector_of_any_length(filters):
    """Where the model does not say how many zero points there are."""
    w = np.arange(filters * 2, dtype=np.uint8).reshape(filters, 1, 2)
    operands = In((1, 1, 4), "uint8"), w, None, In(("S",), "uint8")
    session = compiled("ConvInteger", *operands, opset=10, ranks=[3])
    x = np.array([[[1, 2, 4, 8]]], np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(x[0, 0].astype(int), 2)
    for zeros in (np.uint8([3]), np.arange(filters, dtype=np.uint8)):
        wanted = (w[:, 0].astype(int) - zeros[:, None]) @ windows.T
        np.testing.assert_array_equal(session.run(None, {"x0": x, "x3": zeros})[0], wanted[None])
    with pytest.raises(ShapeError, match="elements of 'w_zero_point' and filters"):
        session.run(None, {"x0": x, "x3": np.zeros(2, np.uint8)})
