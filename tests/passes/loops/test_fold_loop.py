from __future__ import annotations

import pytest

from ostinato.model.load import load_model
from ostinato.passes.loops.fold_loop import fold_loop
from tests.golden import check, parse

BODY = """body = b (int64 i, bool p, float[2] s) => (bool q, float[2] t, float[2] o) {
    q = Not(p)
    t = Tanh(s)
    o = Neg(t)
}"""


@pytest.mark.parametrize("condition", ["c", '""'])
def test_one_trip(condition: str):
    check(
        fold_loop,
        f"""
        g (float[2] h) => (float[2] hn, float[1, 2] y) <int64 n = {{1}}, bool c = {{1}}> {{
            hn, y = Loop <{BODY}> (n, {condition}, h)
        }}
        """,
        """
        g (float[2] h) => (float[2] hn, float[1, 2] y)
        <int64 n = {1}, bool c = {1}, bool "hn/p" = {1}, int64[1] "hn/constant" = {0}> {
            q = Not("hn/p")
            hn = Tanh(h)
            o = Neg(hn)
            y = Unsqueeze(o, "hn/constant")
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_axes_as_attribute_before_opset_13():
    check(
        fold_loop,
        """
        g (float[2] h) => (float[1, 2] y) <int64[1] n = {1}> {
            hn, y = Loop <body = b (int64 i, bool p, float[2] s) =>
                (bool p, float[2] t, float[2] o) {
                t = Tanh(s)
                o = Neg(t)
            }> (n, "", h)
        }
        """,
        """
        g (float[2] h) => (float[1, 2] y) <int64[1] n = {1}, bool "hn/p" = {1}> {
            t = Tanh(h)
            o = Neg(t)
            y = Unsqueeze <axes = [0]> (o)
        }
        """,
        opset=11,
        count=1,
        evaluate="onnxruntime",
    )


def test_the_step_number_and_values_handed_through():
    check(
        fold_loop,
        """
        g (float[2] h) => (float[2] hn, int64[1] k, float[1, 2] y)
        <int64 n = {1}, int64[1] z = {7}> {
            hn, k, y = Loop <body = b (int64 i, bool p, float[2] s, int64[1] r) =>
                (bool q, float[2] t, int64[1] m, float[2] s) {
                    q = Identity(p)
                    m = Add(i, r)
                    f = Cast <to = 1> (i)
                    t = Add(s, f)
                }> (n, "", h, z)
        }
        """,
        """
        g (float[2] h) => (float[2] hn, int64[1] k, float[1, 2] y)
        <int64 n = {1}, int64[1] z = {7}, int64 "hn/i" = {0}, bool "hn/p" = {1},
         int64[1] "hn/constant" = {0}> {
            q = Identity("hn/p")
            k = Add("hn/i", z)
            f = Cast <to = 1> ("hn/i")
            hn = Add(h, f)
            y = Unsqueeze(h, "hn/constant")
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize(
    ("constants", "arguments"),
    [
        ("int64 n = {0}, bool c = {1}", "n, c, k"),
        ("int64 n = {-3}, bool c = {1}", "n, c, k"),
        ("int64 n = {4}, bool c = {0}", "n, c, k"),
        ("int64 n = {1}, bool c = {0}", "n, c, k"),
        ("int64 n = {1}, bool c = {0}", '"", c, k'),
    ],
)
def test_no_trips(constants: str, arguments: str):
    check(
        fold_loop,
        f"""
        g (float[2] h) => (float[2] hn, float[0, 2] y) <{constants}> {{
            k = Exp(h)
            hn, y = Loop <{BODY}> ({arguments})
        }}
        """,
        f"""
        g (float[2] h) => (float[2] hn, float[0, 2] y) <{constants}, float[0, 2] y_empty = {{}}> {{
            hn = Exp(h)
            y = Identity(y_empty)
        }}
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_no_trips_and_an_output_of_unknown_shape():
    text = """
        g (float[N] h) => (float[0, N] y) <int64 n = {0}> {
            hn, y = Loop <body = b (int64 i, bool p, float[N] s) =>
                (bool p, float[N] t, float[N] o) {
                t = Tanh(s)
                o = Neg(t)
            }> (n, "", h)
        }
        """
    check(fold_loop, text, text, count=0, evaluate="nobody")


def test_no_trips_and_an_output_of_unknown_shape_that_nobody_reads():
    check(
        fold_loop,
        """
        g (float[N] h) => (float[N] hn) <int64 n = {0}> {
            hn, y = Loop <body = b (int64 i, bool p, float[N] s) =>
                (bool p, float[N] t, float[N] o) {
                t = Tanh(s)
                o = Neg(t)
            }> (n, "", h)
        }
        """,
        "g (float[N] h) => (float[N] hn) <int64 n = {0}> { hn = Identity(h) }",
        count=1,
        evaluate="onnxruntime",
    )


def test_sequences_pass_through():
    check(
        fold_loop,
        """
        g (float[2] h) => (int64 y) <int64 n = {1}> {
            e = SequenceEmpty <dtype = 1> ()
            z = Loop <body = b (int64 i, bool p, seq(float[2]) s) => (bool p, seq(float[2]) t) {
                t = SequenceInsert(s, h)
            }> (n, "", e)
            y = SequenceLength(z)
        }
        """,
        """
        g (float[2] h) => (int64 y) <int64 n = {1}, bool "z/p" = {1}> {
            e = SequenceEmpty <dtype = 1> ()
            t = SequenceInsert(e, h)
            y = SequenceLength(t)
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_nested():
    check(
        fold_loop,
        """
        g (float[2] h) => (float[2] y) <int64 n = {1}> {
            y = Loop <body = b (int64 i, bool p, float[2] s) => (bool p, float[2] t) {
                t = Loop <body = d (int64 j, bool v, float[2] a) => (bool v, float[2] z) {
                    z = Add(a, s)
                }> (n, "", s)
            }> (n, "", h)
        }
        """,
        """
        g (float[2] h) => (float[2] y)
        <int64 n = {1}, bool "t/v" = {1}, bool "y/p" = {1}> { y = Add(h, h) }
        """,
        count=2,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize(
    ("inputs", "arguments"),
    [
        ("int64 n", '"k", c, h'),
        ("int64 n", 'n, "", h'),
        ("bool c2", "one, c2, h"),
        ("int64 n", '"", c, h'),
    ],
)
def test_what_stays(inputs: str, arguments: str):
    text = f"""
        g ({inputs}, float[2] h) => (float[2] hn, float[X, 2] y)
        <int64 k = {{2}}, int64 one = {{1}}, bool c = {{1}}> {{
            hn, y = Loop <{BODY}> ({arguments.replace('"k"', "k")})
        }}
        """
    model = load_model(parse(text))
    assert fold_loop(model) == 0
    assert [node.op_type for node in model.graph] == ["Loop"]
