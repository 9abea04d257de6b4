from __future__ import annotations

import numpy as np
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.loops.sequence_to_growing import sequence_to_growing
from tests.golden import parse

# Step i appends the first i + 1 columns of the rows.
MODEL = """
    g (float[{rows}, 4] x, int64 n) => (float[{rows}, m] y{more})
        <int64[1] first = {{0}}, int64[1] one = {{1}}, int64[1] axis = {{1}}, bool c = {{1}}> {{
        e = SequenceEmpty()
        z = Loop <body = b (int64 i, bool p, seq(float[{rows}, k]) q) =>
            (bool p, seq(float[{rows}, k]) r) {{
                till = Add(i, one)
                part = Slice(x, first, till, axis)
                t = Tanh(part)
                r = SequenceInsert(q, t)
            }}> (n, c, e)
        y = ConcatFromSequence <axis = -1> (z)
        {reader}
    }}
"""


@pytest.mark.parametrize("rows", ["2", "rows"])
@pytest.mark.parametrize("steps", [1, 3, 4])
def test_pieces_of_different_sizes_are_joined(rows: str, steps: int) -> None:
    model = parse(MODEL.format(rows=rows, more="", reader=""))
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    feed = {"x": x, "n": np.array(steps)}
    (y,) = ostinato.InferenceSession(model, fallback=False, cache_dir=None).run(None, feed)
    expected = np.concatenate([np.tanh(x[:, : i + 1]) for i in range(steps)], 1)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_branches_append_or_do_not() -> None:
    model = parse("""
        g (float[n, 2] x, int64 count) => (float[m, 2] y)
            <int64[1] axis = {0}, int64[1] first = {0}, int64 col = {0}, float zero = {0},
             bool c = {1}> {
            head = Gather <axis = 0> (x, first)
            e = SequenceConstruct(head)
            z = Loop <body = b (int64 i, bool p, seq(float[k, 2]) q) =>
                (bool p, seq(float[k, 2]) r) {
                    row = Gather(x, i)
                    piece = Unsqueeze(row, axis)
                    value = Gather(row, col)
                    above = Greater(value, zero)
                    r = If <then_branch = t () => (seq(float[k, 2]) a) {
                            a = SequenceInsert(q, piece)
                        }, else_branch = f () => (seq(float[k, 2]) same) {
                            same = Identity(q)
                        }> (above)
                }> (count, c, e)
            y = ConcatFromSequence <axis = 0> (z)
        }
    """)
    x = np.random.default_rng(0).standard_normal((9, 2)).astype(np.float32)
    feed = {"x": x, "count": np.array(9)}
    (y,) = ostinato.InferenceSession(model, fallback=False, cache_dir=None).run(None, feed)
    np.testing.assert_array_equal(y, np.concatenate([x[:1], x[x[:, 0] > 0]]))


def test_bodies_say_the_rank_of_number_and_condition_for_other_runtimes() -> None:
    model = load_model(parse(MODEL.format(rows=2, more="", reader="")))
    assert sequence_to_growing(model) == 1
    (loop,) = (node for node in model.graph if node.op_type == "Loop")
    assert [value.shape for value in loop.attributes["body"].as_graph().inputs[:2]] == [[], []]


@pytest.mark.parametrize(
    ("more", "reader"),
    [
        (", int64 count", "count = SequenceLength(z)"),
        (", float[2, k] second", "second = SequenceAt(z, one)"),
        (", float[l, 4] rows", "rows = ConcatFromSequence <axis = 0> (z)"),
    ],
)
def test_what_else_is_read_needs_the_sequence(more: str, reader: str) -> None:
    model = load_model(parse(MODEL.format(rows=2, more=more, reader=reader)))
    assert sequence_to_growing(model) == 0
