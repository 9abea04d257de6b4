"""Attention whose heads have a size that only a run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import ostinato

SIZE, VALUE_SIZE = 6, 8
PACKED = {"q": (2, 3, 4 * SIZE), "k": (2, 5, 2 * SIZE), "v": (2, 5, 2 * VALUE_SIZE)}
APART = {"q": (2, 4, 3, SIZE), "k": (2, 2, 5, SIZE), "v": (2, 2, 5, VALUE_SIZE)}
PAST = {"past_k": (2, 2, 7, SIZE), "past_v": (2, 2, 7, VALUE_SIZE)}


def model(shapes: dict[str, tuple[Any, ...]], element: int, is_packed: bool) -> onnx.ModelProto:
    inputs = ["q", "k", "v", *(["", "past_k", "past_v"] if "past_k" in shapes else [])]
    outputs = ["y", "keys", "values"] if "past_k" in shapes else ["y"]
    heads = {"q_num_heads": 4, "kv_num_heads": 2} if is_packed else {}
    node = helper.make_node("Attention", inputs, outputs, is_causal=1, **heads)
    taken = [helper.make_tensor_value_info(n, element, s) for n, s in shapes.items()]
    given = [helper.make_tensor_value_info(n, element, None) for n in outputs]
    graph = helper.make_graph([node], "attention", taken, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("has_past", [True, False])
@pytest.mark.parametrize("known", [(), ("k",)])
def test_sizes_of_a_run_have_the_bits_of_known_ones(
    dtype: Any, is_packed: bool, has_past: bool, known: tuple[str, ...]
) -> None:
    shapes = (PACKED if is_packed else APART) | (PAST if has_past else {})
    # All but the last axis, whose size the queries or the keys may tell.
    named = {
        name: shape if name in known else (*shape[:-1], f"{name}_width")
        for name, shape in shapes.items()
    }
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    expected = ostinato.InferenceSession(model(shapes, element, is_packed)).run(None, feeds)
    session = ostinato.InferenceSession(model(named, element, is_packed), fallback=False)
    for got, wanted in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
