from __future__ import annotations

import pytest

from ostinato.model.graphs import graphs
from ostinato.model.load import load_model
from ostinato.passes.loops.fold_if import fold_if
from ostinato.passes.normalise.lift_constants import lift_constants
from tests.golden import check, parse


def test_constant_condition_leaves_the_branch():
    check(
        fold_if,
        """
        g (float[N] x) => (float[N] y) <bool c = {1}> {
            t = If (c) <
                then_branch = a () => (float[N] p) { q = Exp(x)  p = Neg(q) },
                else_branch = b () => (float[N] p) { p = Relu(x) }>
            y = Abs(t)
        }
        """,
        """
        g (float[N] x) => (float[N] y) <bool c = {1}> {
            q = Exp(x)
            p = Neg(q)
            y = Abs(p)
        }
        """,
        count=1,
    )


def test_graph_output_keeps_its_name():
    check(
        fold_if,
        """
        g (float[N] x) => (float[N] y) <bool[1] c = {0}> {
            y = If (c) <
                then_branch = a () => (float[N] p) { p = Exp(x) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """,
        "g (float[N] x) => (float[N] y) <bool[1] c = {0}> { y = Relu(x) }",
        count=1,
    )


def test_branch_that_returns_an_outer_value():
    check(
        fold_if,
        """
        g (float[N] x) => (float[N] y, float[N] z) <bool c = {1}> {
            y, z = If (c) <
                then_branch = a () => (float[N] x, float[N] x) { },
                else_branch = b () => (float[N] p, float[N] q) { p = Exp(x)  q = Neg(x) }>
        }
        """,
        """
        g (float[N] x) => (float[N] y, float[N] z) <bool c = {1}> {
            y = Identity(x)
            z = Identity(x)
        }
        """,
        count=1,
        evaluate="nobody",
    )


def test_nested_and_captured():
    check(
        fold_if,
        """
        g (float[N] x) => (float[N] y) <bool c = {1}, bool d = {0}> {
            s = Exp(x)
            y = If (c) <
                then_branch = a () => (float[N] p) {
                    i = Neg(s)
                    p = If (d) <
                        then_branch = e () => (float[N] u) { u = Abs(i) },
                        else_branch = f () => (float[N] u) <float[1] w = {2}> { u = Mul(i, w) }>
                },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """,
        """
        g (float[N] x) => (float[N] y) <bool c = {1}, bool d = {0}, float[1] w = {2}> {
            s = Exp(x)
            i = Neg(s)
            y = Mul(i, w)
        }
        """,
        count=2,
    )


def test_same_names_in_both_branches_of_two_ifs():
    check(
        fold_if,
        """
        g (float[N] x) => (float[N] y) <bool c = {1}> {
            s = If (c) <
                then_branch = a () => (float[N] p) { t = Exp(x)  p = Neg(t) },
                else_branch = b () => (float[N] p) { p = Relu(x) }>
            y = If (c) <
                then_branch = a () => (float[N] p) { t = Exp(s)  p = Abs(t) },
                else_branch = b () => (float[N] p) { p = Relu(s) }>
        }
        """,
        """
        g (float[N] x) => (float[N] y) <bool c = {1}> {
            t = Exp(x)
            p = Neg(t)
            t_1 = Exp(p)
            y = Abs(t_1)
        }
        """,
        count=2,
    )


def test_unknown_condition_is_left():
    text = """
        g (bool c, float[N] x) => (float[N] y) {
            y = If (c) <
                then_branch = a () => (float[N] p) { p = Exp(x) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """
    check(fold_if, text, text, count=0)


@pytest.mark.parametrize("opposite", ["c = Not(d)", "d = Not(c)"])
def test_condition_decided_by_an_if_around(opposite: str):
    given = opposite[-2]
    check(
        fold_if,
        f"""
        g (bool {given}, float[N] x) => (float[N] y) {{
            {opposite}
            y = If (c) <
                then_branch = a () => (float[N] p) {{
                    s = If (c) <
                        then_branch = e () => (float[N] u) {{ u = Abs(x) }},
                        else_branch = f () => (float[N] v) {{ v = Exp(x) }}>
                    p = If (d) <
                        then_branch = k () => (float[N] l) {{ l = Neg(s) }},
                        else_branch = m () => (float[N] n) {{ n = Tanh(s) }}>
                }},
                else_branch = b () => (float[N] q) {{
                    q = If (d) <
                        then_branch = r () => (float[N] t) {{ t = Relu(x) }},
                        else_branch = w () => (float[N] z) {{ z = Sqrt(x) }}>
                }}>
        }}
        """,
        f"""
        g (bool {given}, float[N] x) => (float[N] y)
        <bool c_true = {{1}}, bool c_true_1 = {{1}}, bool c_false = {{0}}> {{
            {opposite}
            y = If (c) <
                then_branch = a () => (float[N] p) {{ u = Abs(x)  p = Tanh(u) }},
                else_branch = b () => (float[N] q) {{ q = Relu(x) }}>
        }}
        """,
        count=3,
        evaluate="onnxruntime",
    )


def test_condition_decided_around_a_loop():
    check(
        fold_if,
        """
        g (bool c, float[3, 2] x) => (float[3, 2] y) {
            y = If (c) <
                then_branch = a () => (float[3, 2] p) {
                    p = Scan <num_scan_inputs = 1, body = f (float[2] e) => (float[2] o) {
                        o = If (c) <
                            then_branch = k () => (float[2] l) { l = Neg(e) },
                            else_branch = m () => (float[2] n) { n = Tanh(e) }>
                    }> (x)
                },
                else_branch = b () => (float[3, 2] q) { q = Relu(x) }>
        }
        """,
        """
        g (bool c, float[3, 2] x) => (float[3, 2] y) <bool c_true = {1}> {
            y = If (c) <
                then_branch = a () => (float[3, 2] p) {
                    p = Scan <num_scan_inputs = 1, body = f (float[2] e) => (float[2] o) {
                        o = Neg(e)
                    }> (x)
                },
                else_branch = b () => (float[3, 2] q) { q = Relu(x) }>
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_equal_branches():
    check(
        fold_if,
        """
        g (bool c, float[N, 2] x) => (float[2, N] y, float[N, 2] z) {
            y, z = If (c) <
                then_branch = a () => (float[2, N] p, float[N, 2] o) {
                    s = Transpose <perm = [1, 0]> (x)
                    p = Neg(s)
                    o = Exp(x)
                },
                else_branch = b () => (float[2, N] q, float[N, 2] r) {
                    t = Transpose <perm = [1, 0]> (x)
                    q = Neg(t)
                    r = Exp(x)
                }>
        }
        """,
        """
        g (bool c, float[N, 2] x) => (float[2, N] y, float[N, 2] z) {
            t = Transpose <perm = [1, 0]> (x)
            y = Neg(t)
            z = Exp(x)
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize(
    "other",
    [
        "t = Transpose <perm = [0, 1]> (x)  q = Sub(t, x)",
        "t = Transpose <perm = [1, 0]> (x)  q = Sub(x, t)",
        "t = Transpose <perm = [1, 0]> (x)  q = Sub(t, w)",
        "t = Transpose (x)  q = Sub(t, x)",
        "q = Sub(x, x)",
    ],
)
def test_branches_that_differ(other: str):
    text = f"""
        g (bool c, float[2, 2] x, float[2, 2] w) => (float[2, 2] y) {{
            y = If (c) <
                then_branch = a () => (float[2, 2] p) {{
                    s = Transpose <perm = [1, 0]> (x)
                    p = Sub(s, x)
                }},
                else_branch = b () => (float[2, 2] q) {{ {other} }}>
        }}
        """
    check(fold_if, text, text, count=0, evaluate="onnxruntime")


SQUEEZES = """
    g (float[{rows}, 4] x, int64 n) => (float[{rows}, 4] y)
      <bool go = {{1}}, int64[1] axis = {{0}}, int64[1] one = {{1}}> {{
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[A, B] s) => (bool d, float[A, B] t) {{
            d = Identity(c)
            shape = Shape(s)
            size = Gather(shape, axis)
            single = Equal({equal})
            t = If (single) <
                then_branch = p () => (float[A, B] e) {{ e = Exp(s) }},
                else_branch = q () => (float[A, B] f) {{ f = Neg(s) }}>
        }}>
    }}
"""


@pytest.mark.parametrize(("rows", "taken"), [(1, "Exp"), (3, "Neg"), ("N", "If")])
@pytest.mark.parametrize("equal", ["size, one", "one, size"])
def test_sizes_that_a_loop_keeps_decide(rows, taken, equal):
    model = load_model(parse(SQUEEZES.format(rows=rows, equal=equal)))
    lift_constants(model)
    assert fold_if(model) == (taken != "If")
    ops = [node.op_type for graph in graphs(model)[1:2] for node in graph]
    assert taken in ops and ("If" in ops) == (taken == "If")


def test_sizes_that_a_loop_changes_decide_nothing():
    text = SQUEEZES.format(rows=1, equal="size, one")
    text = text.replace("e = Exp(s)", "e = Concat<axis = 0>(s, s)")
    model = load_model(parse(text))
    lift_constants(model)
    assert fold_if(model) == 0
