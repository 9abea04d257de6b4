"""The forms are those of tf2onnx 1.17: `x[:, i]`, with an `i` that a run computes."""

from __future__ import annotations

import numpy as np
import onnx.reference
import onnxruntime
import pytest

from ostinato import InferenceSession
from ostinato.model.load import load_model
from ostinato.passes.indices.far_slices import far_slices
from ostinato.passes.pipeline import run_passes
from tests.golden import parse

CONSTANTS = """<int64[1] first = {0}, int64[1] second = {1}, int32[2] both = {0, 1},
    int32[1] zero = {0}, int32[1] two = {2}, int32 one = {1}, int64 longest = {9223372036854775807},
    bool yes = {1}, float[2] far_floats = {1e9, 1e9}, int32 far = {1000000000},
    int32 near = {-1000000000}, bool[2] none = {0, 0}, int32[1] far_step = {1000000000},
    float[1] far_float = {1e9}, int32[2] steps = {1, 1000000000}, int32[2] ones = {1, 1},
    int32[2] far_steps = {1000000000, 1000000000}>"""

CUT = """
    at = Unsqueeze(i, first)
    starts = Concat <axis = 0> (zero, at)
    j = Add(i, one)
    after = Unsqueeze(j, first)
    behind = Concat <axis = 0> (zero, after)
    begin = Where(none, far, starts)
    float_ends = Cast <to = 1> (behind)
    most = Max(float_ends, far_floats)
    most_ends = Cast <to = 6> (most)
    is_end = Equal(most_ends, far)
    turned = And(is_end, none)
    ends = Where(turned, near, most_ends)
    cut = Slice(x, begin, ends, both, steps)
"""

ONE = f"""
    g (float[N, T, 3] x, int32 i) => (float[N, 3] y) {CONSTANTS} {{
        {CUT}
        y = Squeeze(cut, second)
    }}
"""


def taken(text: str) -> tuple[int, list[str]]:
    model = load_model(parse(text))
    count = far_slices(model)
    return count, [node.op_type for node in model.graph.all_nodes()]


def test_an_element_of_an_axis_that_a_run_chooses():
    count, operators = taken(ONE)
    assert count == 1
    assert "Slice" not in operators and operators.count("Gather") == 2


@pytest.mark.parametrize("i", [0, 4, -1, -5, -6, -100])
def test_results_are_those_of_the_slice(i: int):
    x = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    feed = {"x": x, "i": np.array(i, np.int32)}
    expected = onnxruntime.InferenceSession(parse(ONE).SerializeToString()).run(None, feed)[0]
    session = InferenceSession(parse(ONE), cache_dir=None, fallback=False)
    np.testing.assert_array_equal(session.run(None, feed)[0], expected)


@pytest.mark.parametrize("i", [5, 100])
def test_positions_that_do_not_exist_are_errors(i: int):
    session = InferenceSession(parse(ONE), cache_dir=None)
    with pytest.raises(Exception, match="out of range"):
        session.run(None, {"x": np.ones((2, 5, 3), np.float32), "i": np.array(i, np.int32)})


@pytest.mark.parametrize(
    ("cut", "squeezed"),
    [
        ("Slice(x, begin, ends, both, ones)", "second"),  # everything behind i
        ("Slice(x, begin, behind, both, steps)", "second"),  # an end that may be before i
        ("Slice(x, begin, ends, both, far_steps)", "second"),  # an axis that stays
    ],
)
def test_what_stays(cut: str, squeezed: str):
    text = ONE.replace("Slice(x, begin, ends, both, steps)", cut).replace("second)", f"{squeezed})")
    count, operators = taken(text)
    assert count == 0 and "Slice" in operators


def test_other_axes_may_be_cut():
    text = ONE.replace("(zero, at)", "(two, at)").replace("float[N, 3] y", "float[M, 3] y")
    count, operators = taken(text)
    assert count == 1 and operators.count("Slice") == 1
    x = np.arange(4 * 5 * 3, dtype=np.float32).reshape(4, 5, 3)
    session = InferenceSession(parse(text), cache_dir=None, fallback=False)
    result = session.run(None, {"x": x, "i": np.array(1, np.int32)})[0]
    np.testing.assert_array_equal(result, x[2:, 1])


LOOP = f"""
    g (float[N, T, 3] x, float[N, 3] h) => (float[N, 3] last) {CONSTANTS} {{
        shape = Shape <start = 1, end = 2> (x)
        trips = Squeeze(shape)
        begin_i = Squeeze(zero)
        i_last, last = Loop <body = b (int64 k, bool go, int32 i, float[N, 3] s)
            => (bool go_on, int32 j, float[N, 3] t) {{
            go_on = Identity(go)
            {CUT}
            e = Squeeze(cut, second)
            total = Add(s, e)
            t = Tanh(total)
        }}> (trips, yes, begin_i, h)
    }}
"""


def test_a_loop_over_time_becomes_a_scan_over_what_it_reads():
    model = load_model(parse(LOOP))
    run_passes(model)
    operators = [node.op_type for node in model.graph.all_nodes()]
    assert "Scan" in operators and not {"Loop", "Slice", "Gather"} & {*operators}
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    feed = {"x": x, "h": np.zeros((2, 3), np.float32)}
    session = InferenceSession(parse(LOOP), cache_dir=None, fallback=False)
    expected = onnx.reference.ReferenceEvaluator(parse(LOOP)).run(None, feed)[0]
    np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-5)
