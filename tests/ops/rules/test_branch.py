"""An If of which no run can take one way to its end."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ostinato import InferenceSession
from ostinato.errors import RunError, ShapeError

# By sizes, and by an element of a run.
CONDITIONS = (
    "s = Squeeze(n)  c = Less(s, three)",
    "m = ReduceMin <keepdims = 0> (x)  c = Less(m, ten)",
)
# Takes N + 1 rows of N.
IMPOSSIBLE = "more = Concat <axis = 0> (n, one)  b, rest = Split <axis = 0> (x, more)"


def model(condition: str, first: str, second: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[N, 4] x) => (float[M, 4] y)
            <int64[1] one = {{1}}, int64 three = {{3}}, float ten = {{10}}> {{
            n = Shape <start = 0, end = 1> (x)
            {condition}
            y = If (c) <
                then_branch = t () => (float[P, 4] b) {{ {first} }},
                else_branch = e () => (float[Q, 4] b) {{ {second} }}
            >
        }}""")


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("taken", [True, False])
def test_a_way_whose_sizes_contradict_each_other_ends_runs_that_take_it(
    condition: str, taken: bool
) -> None:
    ways = ["b = Neg(x)", IMPOSSIBLE]
    session = InferenceSession(model(condition, *(ways if taken else ways[::-1])), cache_dir=None)
    for rows, value in ((2, 1), (5, 20), (2, 1)):
        x = np.full((rows, 4), value, np.float32)
        if (rows == 2) is taken:
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
        else:
            with pytest.raises(RunError, match="sum of the pieces and the axis"):
                session.run(None, {"x": x})
    assert session.report()["fallback"] == []


def test_two_such_ways_are_an_error_at_once() -> None:
    with pytest.raises(ShapeError, match="sum of the pieces"):
        InferenceSession(model(CONDITIONS[1], IMPOSSIBLE, IMPOSSIBLE), cache_dir=None)
