from __future__ import annotations

import pytest

from ostinato.passes.normalise.lift_constants import lift_constants
from tests.golden import check


def test_every_numeric_form_of_constant():
    check(
        lift_constants,
        """
        g (float[N] x) => (float[N] y, int64[2] i, int64 j) {
            a = Constant <value = float[1] {2}> ()
            b = Constant <value_float = 0.5> ()
            c = Constant <value_floats = [1.5]> ()
            d = Constant <value_int = 7> ()
            e = Constant <value_ints = [3, 4]> ()
            p = Mul(x, a)
            q = Mul(p, b)
            y = Mul(q, c)
            i = Neg(e)
            j = Neg(d)
        }
        """,
        """
        g (float[N] x) => (float[N] y, int64[2] i, int64 j)
        <float[1] a = {2}, float b = {0.5}, float[1] c = {1.5}, int64 d = {7}, int64[2] e = {3, 4}>
        {
            p = Mul(x, a)
            q = Mul(p, b)
            y = Mul(q, c)
            i = Neg(e)
            j = Neg(d)
        }
        """,
        count=5,
    )


@pytest.mark.parametrize(
    ("constant", "tensor"),
    [
        ('value_string = "ab"', 'string s_constant = {"ab"}'),
        ('value_strings = ["a", "b"]', 'string[2] s_constant = {"a", "b"}'),
    ],
)
def test_strings(constant: str, tensor: str):
    shape = "[2]" if "strings" in constant else ""
    check(
        lift_constants,
        f"g () => (string{shape} s) {{ s = Constant <{constant}> () }}",
        f"g () => (string{shape} s) <{tensor}> {{ s = Identity(s_constant) }}",
        count=1,
        evaluate="nobody",
    )


def test_constant_that_is_an_output():
    check(
        lift_constants,
        "g () => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }",
        "g () => (float[2] y) <float[2] y_constant = {1, 2}> { y = Identity(y_constant) }",
        count=1,
    )


def test_constants_and_initializers_of_branches():
    check(
        lift_constants,
        """
        g (bool c, float[N] x) => (float[N] y) {
            y = If (c) <
                then_branch = a () => (float[N] p) <float[1] w = {2}> { p = Mul(x, w) },
                else_branch = b () => (float[N] p) {
                    w = Constant <value_float = 3.0> ()
                    p = Mul(x, w)
                }>
        }
        """,
        """
        g (bool c, float[N] x) => (float[N] y) <float[1] w = {2}, float w_1 = {3}> {
            y = If (c) <
                then_branch = a () => (float[N] p) { p = Mul(x, w) },
                else_branch = b () => (float[N] p_1) { p_1 = Mul(x, w_1) }>
        }
        """,
        count=2,
    )


def test_branch_that_returns_its_own_constant():
    check(
        lift_constants,
        """
        g (bool c) => (float[1] y) {
            y = If (c) <
                then_branch = a () => (float[1] w) <float[1] w = {2}> { },
                else_branch = b () => (float[1] v) { v = Constant <value_floats = [3.0]> () }>
        }
        """,
        """
        g (bool c) => (float[1] y) <float[1] w = {2}, float[1] v_constant = {3}> {
            y = If (c) <
                then_branch = a () => (float[1] w_output) { w_output = Identity(w) },
                else_branch = b () => (float[1] v) { v = Identity(v_constant) }>
        }
        """,
        count=2,
    )
