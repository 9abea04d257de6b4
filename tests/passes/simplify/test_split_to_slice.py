"""Pieces of a SplitToSequence become slices: same results, what is not there stays."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx.reference
import pytest

from ostinato.model.load import load_model
from ostinato.model.write import to_model_proto
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.simplify.split_to_slice import split_to_slice


@pytest.mark.parametrize(
    ("split", "place", "attributes", "expected"),
    [
        ("int64 {2}", 1, "axis=1", 1),
        ("int64 {2}", -1, "axis=-1", 1),
        ("int64[3] {1, 4, 2}", 1, "axis=1", 1),
        ("", 3, "axis=1, keepdims=0", 1),
        ("", 0, "axis=1", 1),
        ("int64 {2}", 4, "axis=1", 0),
        ("int64[2] {1, 4}", 0, "axis=1", 0),
    ],
)
def test_pieces(split: str, place: int, attributes: str, expected: int) -> None:
    constant = f"n = Constant <value: tensor = {split}> ()" if split else ""
    text = f"""<ir_version: 9, opset_import: ["": 20]>
g (float[3, 7] x) => (float[A, B] y) {{
{constant} i = Constant <value: tensor = int64 {{{place}}}> ()
s = SplitToSequence<{attributes}>(x{", n" if split else ""})
p = SequenceAt(s, i)
y = Relu(p) }}"""
    model = load_model(onnx.parser.parse_model(text))
    lift_constants(model)
    before = to_model_proto(model)
    assert split_to_slice(model) == expected
    if expected:
        x = np.random.default_rng(0).standard_normal((3, 7), np.float32)
        results = [
            onnx.reference.ReferenceEvaluator(one).run(None, {"x": x})[0]
            for one in (before, to_model_proto(model))
        ]
        np.testing.assert_array_equal(*results)
