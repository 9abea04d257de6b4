"""What values stand for: which nodes are read, which are not."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.graph.quantised import quantised
from ostinato.model.load import load_model
from ostinato.passes.normalise.lift_constants import lift_constants
from tests.golden import parse

GRAPH = """<ir_version: 10, opset_import: ["": 23]>
g (uint8[2, 4] x{inputs}) => (float[2, 4] y) <{constants}> {{ y = DequantizeLinear {node} }}"""


@pytest.mark.parametrize(
    ("constants", "node", "scale", "zero"),
    [
        ("float s = {0.5}, uint8 z = {3}", "(x, s, z)", 0.5, 3),
        ("float[1] s = {0.5}", "(x, s)", 0.5, 0),
        ("float[2] s = {1, 2}, uint8[2] z = {3, 4}", "<axis = 0> (x, s, z)", [1, 2], [3, 4]),
    ],
)
def test_what_a_value_stands_for(constants: str, node: str, scale: object, zero: object) -> None:
    model = load_model(parse(GRAPH.format(inputs="", constants=constants, node=node)))
    lift_constants(model)
    found = quantised(model.graph.outputs[0])
    assert found is not None
    assert found.value is model.graph.inputs[0]
    np.testing.assert_array_equal(found.scale, np.float32(scale), strict=True)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.zero, np.array(zero, np.uint8), strict=True)
    assert found.is_single == (found.scale.ndim == 0)


@pytest.mark.parametrize(
    ("inputs", "constants", "node"),
    [
        (", float s", "", "(x, s)"),
        ("", "float[2, 2] s = {1, 2, 3, 4}", "<axis = 1, block_size = 2> (x, s)"),
        ("", "float16 s = {1}", "<output_dtype = 1> (x, s)"),
    ],
)
def test_what_is_not_read(inputs: str, constants: str, node: str) -> None:
    model = load_model(parse(GRAPH.format(inputs=inputs, constants=constants, node=node)))
    lift_constants(model)
    assert quantised(model.graph.outputs[0]) is None
    assert quantised(model.graph.inputs[0]) is None
