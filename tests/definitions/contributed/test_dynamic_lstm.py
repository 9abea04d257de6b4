"""DynamicQuantizeLSTM, against onnxruntime."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import helper, numpy_helper

from ostinato import InferenceSession, ShapeError
from tests.definitions.contributed.nodes import agrees, graph, normal


@pytest.mark.parametrize("direction", ("forward", "reverse", "bidirectional"))
@pytest.mark.parametrize("per_column", (False, True))
def test_dynamic_lstm(direction: str, per_column: bool) -> None:
    random, (steps, inputs, hidden) = np.random.default_rng(3), (6, 7, 5)
    count = 2 if direction == "bidirectional" else 1
    sizes = (count, 4 * hidden) if per_column else (count,)
    arrays = {
        "W": random.integers(-127, 128, (count, inputs, 4 * hidden)).astype(np.int8),
        "R": random.integers(-127, 128, (count, hidden, 4 * hidden)).astype(np.int8),
        "B": random.standard_normal((count, 8 * hidden)).astype(np.float32),
        **{n: random.uniform(0.001, 0.01, sizes).astype(np.float32) for n in ("ws", "rs")},
        **{n: np.zeros(sizes, np.int8) for n in ("wz", "rz")},
    }
    names = ["X", "W", "R", "B", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["Y", "Y_h", "Y_c"],
        domain="com.microsoft",
        direction=direction,
        hidden_size=hidden,
    )
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = graph([node], {"X": [steps, 1, inputs]}, ["Y", "Y_h", "Y_c"], constants)
    agrees(model, {"X": normal(steps, 1, inputs)})


@pytest.mark.parametrize("clip", (None, 0.5))
def test_dynamic_lstm_of_rows_that_end(clip: float | None) -> None:
    """Ranges are those of rows that still run, which all begin in the first step."""
    random, (steps, rows, inputs, hidden) = np.random.default_rng(4), (6, 3, 7, 5)
    arrays = {
        "W": random.integers(-127, 128, (2, inputs, 4 * hidden)).astype(np.int8),
        "R": random.integers(-127, 128, (2, hidden, 4 * hidden)).astype(np.int8),
        **{n: np.full(2, 0.02, np.float32) for n in ("ws", "rs")},
        **{n: np.zeros(2, np.int8) for n in ("wz", "rz")},
        "lengths": np.array([2, 5, 3], np.int32),
        "h": normal(2, rows, hidden) * 3,
    }
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["X", "W", "R", "", "lengths", "h", "", "", "ws", "wz", "rs", "rz"],
        ["Y", "Y_h", "Y_c"],
        domain="com.microsoft",
        direction="bidirectional",
        hidden_size=hidden,
        **({"clip": clip} if clip else {}),
    )
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = graph([node], {"X": [steps, rows, inputs]}, ["Y", "Y_h", "Y_c"], constants)
    x = normal(steps, rows, inputs)
    x[-1] *= 5
    agrees(model, {"X": x})


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    (
        ("ws", (5,), "[1] or [1, 20]"),
        ("rs", (20,), "[1] or [1, 20]"),
        ("wz", (0,), "[1] or [1, 20]"),
        ("rz", (2, 20), "[1] or [1, 20]"),
        ("W", (7, 20), "[directions, inputs, 4 * hidden]"),
    ),
)
def test_dynamic_lstm_in_other_sizes(name: str, shape: tuple[int, ...], expected: str) -> None:
    sizes = {"W": (1, 7, 20), "R": (1, 5, 20), "ws": (1,), "wz": (1,), "rs": (1,), "rz": (1,)}
    constants = [
        numpy_helper.from_array(np.ones(size, np.float32 if key[1:] == "s" else np.int8), key)
        for key, size in {**sizes, name: shape}.items()
    ]
    names = ["X", "W", "R", *[""] * 5, "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["Y"], domain="com.microsoft", hidden_size=5
    )
    words = re.escape(f"has shape {list(shape)}, expected {expected}")
    with pytest.raises(ShapeError, match=words):
        InferenceSession(graph([node], {"X": [6, 1, 7]}, ["Y"], constants))
