from __future__ import annotations

from ostinato.passes.simplify.dead_code import dead_code
from tests.golden import check


def test_unused_chain_and_its_initializer():
    check(
        dead_code,
        """
        g (float[N] x) => (float[N] y) <float[1] w = {2}, float[1] v = {3}> {
            y = Mul(x, v)
            a = Mul(x, w)
            b = Exp(a)
        }
        """,
        "g (float[N] x) => (float[N] y) <float[1] v = {3}> { y = Mul(x, v) }",
        count=3,
    )


def test_unused_optional_outputs():
    check(
        dead_code,
        """
        g (float[S, 1, 2] x, float[1, 3, 2] w, float[1, 3, 3] r) => (float[1, 1, 3] h) {
            y, h = RNN <hidden_size = 3> (x, w, r)
        }
        """,
        """
        g (float[S, 1, 2] x, float[1, 3, 2] w, float[1, 3, 3] r) => (float[1, 1, 3] h) {
            "", h = RNN <hidden_size = 3> (x, w, r)
        }
        """,
        count=1,
    )


def test_required_outputs_of_a_split_stay():
    text = """
        g (float[4] x) => (float[2] y) {
            y, z = Split <axis = 0> (x)
        }
        """
    check(dead_code, text, text, opset=13, count=0)


def test_inside_a_branch():
    check(
        dead_code,
        """
        g (bool c, float[N] x) => (float[N] y) {
            s = Exp(x)
            y = If (c) <
                then_branch = a () => (float[N] p) { i = Neg(s)  p = Abs(x) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """,
        """
        g (bool c, float[N] x) => (float[N] y) {
            y = If (c) <
                then_branch = a () => (float[N] p) { p = Abs(x) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """,
        count=2,
    )


def test_value_read_only_inside_a_dead_branch():
    check(
        dead_code,
        """
        g (bool c, float[N] x) => (float[N] y) {
            s = Exp(x)
            y = Neg(x)
            d = If (c) <
                then_branch = a () => (float[N] p) { p = Abs(s) },
                else_branch = b () => (float[N] q) { q = Relu(s) }>
        }
        """,
        "g (bool c, float[N] x) => (float[N] y) { y = Neg(x) }",
        count=2,
    )
