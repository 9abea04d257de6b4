from __future__ import annotations

from ostinato.passes.fold_if import fold_if
from tests.golden import check


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
