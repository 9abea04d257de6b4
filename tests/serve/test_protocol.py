from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ostinato.serve.protocol import (
    ServeError,
    Status,
    array_of_bytes,
    array_of_values,
    datatype_of,
    named,
    sequence_of,
)


@pytest.mark.parametrize("datatype", ["BOOL", "INT8", "UINT16", "INT64", "FP16", "FP64"])
def test_bytes_and_values_are_the_same_array(datatype: str) -> None:
    values = [[0, 1, 1], [1, 0, 1]]
    array = array_of_values("x", datatype, [2, 3], values)
    assert datatype_of(array.dtype) == datatype
    again = array_of_bytes("x", datatype, [2, 3], array.tobytes())
    np.testing.assert_array_equal(again, array)
    assert again.dtype == array.dtype


@pytest.mark.parametrize(
    ("datatype", "shape", "values", "text"),
    [
        ("FP32", [2], [1.0], r"shape \[2\] has 2 elements, got 1"),
        ("FP32", [1], ["a"], "is no list of numbers"),
        ("FP32", [2, 2], [[1.0, 2.0], [3.0]], "input 'x': data: "),
        ("FP32", [1], None, "is no list of numbers"),
        ("INT8", [1], [300], "values that no INT8 has"),
        ("UINT8", [1], [-1], "values that no UINT8 has"),
        ("INT32", [1], [1.5], "values that no INT32 has"),
        ("BYTES", [1], ["a"], "datatype 'BYTES', expected one of BOOL"),
        ("FP32", [-1], [1.0], r"shape \[-1\], expected whole numbers"),
        ("FP32", [True], [1.0], "expected whole numbers"),
    ],
)
def test_values_that_are_no_tensor(datatype: str, shape: Any, values: Any, text: str) -> None:
    with pytest.raises(ServeError, match=text) as caught:
        array_of_values("x", datatype, shape, values)
    assert caught.value.status is Status.INVALID


def test_half_a_frame() -> None:
    with pytest.raises(ServeError, match=r"FP32 of shape \[2, 3\] has 24 bytes, got 12"):
        array_of_bytes("x", "FP32", [2, 3], b"\0" * 12)


def test_sizes_too_large_to_multiply_ask_for_no_memory() -> None:
    with pytest.raises(ServeError, match="got 0"):
        array_of_values("x", "FP32", [2**62, 2**62], [])


def test_no_elements() -> None:
    assert array_of_values("x", "FP32", [0, 3], []).shape == (0, 3)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, (None, False, False)),
        ({"sequence_id": 0}, (None, False, False)),
        ({"sequence_id": 3, "sequence_start": True}, (3, True, False)),
        ({"sequence_id": "a", "sequence_end": True}, ("a", False, True)),
    ],
)
def test_sequences(parameters: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert sequence_of(parameters) == expected


@pytest.mark.parametrize(
    "parameters",
    [
        {"sequence_id": 1.5},
        {"sequence_id": True},
        {"sequence_id": 1, "sequence_start": 1},
        {"sequence_end": True},
    ],
)
def test_parameters_that_are_no_sequence(parameters: dict[str, Any]) -> None:
    with pytest.raises(ServeError):
        sequence_of(parameters)


def test_types_of_onnx() -> None:
    assert named("tensor(float)") == "FP32"
    assert named("tensor(uint8)") == "UINT8"
    with pytest.raises(ServeError, match=r"tensor\(string\)"):
        named("tensor(string)")
