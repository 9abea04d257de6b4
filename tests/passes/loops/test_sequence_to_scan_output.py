from __future__ import annotations

import pytest

from ostinato.model.load import load_model
from ostinato.passes.loops.sequence_to_scan_output import sequence_to_scan_output
from tests.golden import check, parse

CONSTANTS = "int64 n = {3}, bool c = {1}, int64 last = {-1}"


def before(result: str, reader: str, constants: str = CONSTANTS) -> str:
    return f"""
        g (float[2, 4] h) => ({result}) <{constants}> {{
            e = SequenceEmpty <dtype = 1> ()
            hn, z = Loop <body = b (int64 i, bool p, float[2, 4] s, seq(float[2, 4]) q) =>
                (bool p, float[2, 4] t, seq(float[2, 4]) r) {{
                    t = Tanh(s)
                    r = SequenceInsert(q, t)
                }}> (n, c, h, e)
            {reader}
        }}
        """


def after(result: str, reader: str, constants: str = "") -> str:
    return f"""
        g (float[2, 4] h) => ({result}) <{CONSTANTS}{constants}> {{
            e = SequenceEmpty <dtype = 1> ()
            hn, z_stacked = Loop <body = b (int64 i, bool p, float[2, 4] s) =>
                (bool p_output, float[2, 4] t, float[2, 4] t_output) {{
                    t = Tanh(s)
                    p_output = Identity(p)
                    t_output = Identity(t)
                }}> (n, c, h)
            {reader}
        }}
        """


@pytest.mark.parametrize(
    ("result", "reader", "stacked_reader", "constants"),
    [
        (
            "float[3, 2, 4] y",
            "v = ConcatFromSequence <axis = 0, new_axis = 1> (z)  y = Neg(v)",
            "y = Neg(z_stacked)",
            "",
        ),
        (
            "float[2, 3, 4] y",
            "y = ConcatFromSequence <axis = 1, new_axis = 1> (z)",
            "y = Transpose <perm = [1, 0, 2]> (z_stacked)",
            "",
        ),
        (
            "float[2, 4, 3] y",
            "y = ConcatFromSequence <axis = -1, new_axis = 1> (z)",
            "y = Transpose <perm = [1, 2, 0]> (z_stacked)",
            "",
        ),
        (
            "float[6, 4] y",
            "y = ConcatFromSequence <axis = 0> (z)",
            'y = Reshape(z_stacked, "z/constant")',
            ', int64[2] "z/constant" = {-1, 4}',
        ),
        (
            "float[2, 12] y",
            "y = ConcatFromSequence <axis = -1> (z)",
            """"z/moved" = Transpose <perm = [1, 0, 2]> (z_stacked)
               y = Reshape("z/moved", "z/constant")""",
            ', int64[2] "z/constant" = {0, -1}',
        ),
        (
            "float[2, 4] y",
            "v = SequenceAt(z, last)  y = Neg(v)",
            '"z/element" = Gather <axis = 0> (z_stacked, last)  y = Neg("z/element")',
            "",
        ),
        (
            "int64 y, float[3, 2, 4] w",
            "y = SequenceLength(z)  v = ConcatFromSequence <axis = 0, new_axis = 1> (z) w = Neg(v)",
            """"z/shape" = Shape(z_stacked)  y = Gather <axis = 0> ("z/shape", "z/constant")
               w = Neg(z_stacked)""",
            ', int64 "z/constant" = {0}',
        ),
    ],
)
def test_readers(result: str, reader: str, stacked_reader: str, constants: str):
    check(
        sequence_to_scan_output,
        before(result, reader),
        after(result, stacked_reader, constants),
        count=1,
        evaluate="onnxruntime",
    )


def test_run_time_sizes():
    """Elements of run-time size that come from outside of the loop, joined on an inner axis."""
    check(
        sequence_to_scan_output,
        """
        g (float[T, N, M] x, float[N, M] h) => (float[X, M] y)
        <int64 zero = {0}, bool c = {1}> {
            d = Shape(x)
            n = Gather(d, zero)
            e = SequenceEmpty <dtype = 1> ()
            z = Loop <body = b (int64 i, bool p, seq(float[N, M]) q) =>
                (bool p, seq(float[N, M]) r) {
                    k = Gather(x, i)
                    t = Add(k, h)
                    r = SequenceInsert(q, t)
                }> (n, c, e)
            y = ConcatFromSequence <axis = 0> (z)
        }
        """,
        """
        g (float[T, N, M] x, float[N, M] h) => (float[X, M] y)
        <int64 zero = {0}, bool c = {1}, int64[1] "z/constant" = {2}, int64[1] "z/constant_1" = {3},
         int64[1] "z/constant_2" = {-1}> {
            d = Shape(x)
            n = Gather(d, zero)
            e = SequenceEmpty <dtype = 1> ()
            z_stacked = Loop <body = b (int64 i, bool p) => (bool p_output, float[N, M] t) {
                    k = Gather(x, i)
                    t = Add(k, h)
                    p_output = Identity(p)
                }> (n, c)
            "z/shape" = Shape(z_stacked)
            "z/sizes" = Slice("z/shape", "z/constant", "z/constant_1")
            "z/target" = Concat <axis = 0> ("z/constant_2", "z/sizes")
            y = Reshape(z_stacked, "z/target")
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_two_sequences_of_a_loop_with_a_condition():
    check(
        sequence_to_scan_output,
        """
        g (float[2] h, int64 n) => (float[X, 2] y, float[X, 2] w)
        <bool c = {1}, float[2] limit = {0.01, 0.01}> {
            e = SequenceEmpty <dtype = 1> ()
            hn, z, v = Loop <body = b
                (int64 i, bool p, float[2] s, seq(float[2]) q, seq(float[2]) u) =>
                (bool l, float[2] t, seq(float[2]) r, seq(float[2]) o) {
                    t = Tanh(s)
                    k = ReduceMax <keepdims = 0> (t)
                    m = ReduceMax <keepdims = 0> (limit)
                    l = Less(m, k)
                    r = SequenceInsert(q, t)
                    f = Neg(t)
                    o = SequenceInsert(u, f)
                }> (n, c, h, e, e)
            y = ConcatFromSequence <axis = 0, new_axis = 1> (z)
            w = ConcatFromSequence <axis = 0, new_axis = 1> (v)
        }
        """,
        """
        g (float[2] h, int64 n) => (float[X, 2] y, float[X, 2] w)
        <bool c = {1}, float[2] limit = {0.01, 0.01}> {
            e = SequenceEmpty <dtype = 1> ()
            hn, y, w = Loop <body = b (int64 i, bool p, float[2] s)
                => (bool l, float[2] t, float[2] t_output, float[2] f) {
                    t = Tanh(s)
                    k = ReduceMax <keepdims = 0> (t)
                    m = ReduceMax <keepdims = 0> (limit)
                    l = Less(m, k)
                    f = Neg(t)
                    t_output = Identity(t)
                }> (n, c, h)
        }
        """,
        count=2,
        evaluate="nobody",
    )


@pytest.mark.parametrize(
    ("result", "reader", "constants"),
    [
        ("seq(float[2, 4]) y", "y = Identity(z)", CONSTANTS),
        ("float[2, 4] y", "w = SequenceErase(z, last)  y = SequenceAt(w, last)", CONSTANTS),
        ("seq(float[2, 4]) z", "", CONSTANTS),
    ],
)
def test_sequences_that_are_read_as_such_stay(result: str, reader: str, constants: str):
    model = load_model(parse(before(result, reader, constants)))
    assert sequence_to_scan_output(model) == 0


@pytest.mark.parametrize(
    "body",
    [
        "t = Tanh(s)  r = SequenceInsert(q, t, zero)",  # in front
        "t = Tanh(s)  l = SequenceLength(q)  r = SequenceInsert(q, t)",  # read in the body
        "t = Tanh(s)  k = SequenceInsert(q, t)  r = SequenceInsert(k, t)",  # two in a step
        "t = Tanh(s)  f = SequenceEmpty <dtype = 1> ()  r = SequenceInsert(f, t)",  # begun anew
        # of another size in each step
        "t = Tanh(s)  u = Unsqueeze(i, ax)  k = Slice(s, zeros, u)  r = SequenceInsert(q, k)",
    ],
)
def test_sequences_that_are_made_otherwise_stay(body: str):
    text = f"""
        g (float[2, 4] h) => (float[X, 4] y)
        <{CONSTANTS}, int64 zero = {{0}}, int64[1] ax = {{0}}, int64[1] zeros = {{0}}> {{
            e = SequenceEmpty <dtype = 1> ()
            hn, z = Loop <body = b (int64 i, bool p, float[2, 4] s, seq(float[2, 4]) q) =>
                (bool p, float[2, 4] t, seq(float[2, 4]) r) {{ {body} }}> (n, c, h, e)
            y = ConcatFromSequence <axis = 0> (z)
        }}
        """
    model = load_model(parse(text))
    assert sequence_to_scan_output(model) == 0


def test_a_sequence_that_did_not_begin_empty_stays():
    text = f"""
        g (float[2] h) => (float[X, 2] y) <{CONSTANTS}> {{
            e = SequenceConstruct(h)
            z = Loop <body = b (int64 i, bool p, seq(float[2]) q) => (bool p, seq(float[2]) r) {{
                r = SequenceInsert(q, h)
            }}> (n, c, e)
            y = ConcatFromSequence <axis = 0, new_axis = 1> (z)
        }}
        """
    assert sequence_to_scan_output(load_model(parse(text))) == 0
