from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import helper, numpy_helper

from ostinato.passes.simplify.merge_common_subexpressions import merge_common_subexpressions
from tests.golden import check


def test_equal_nodes_and_what_they_make_equal():
    check(
        merge_common_subexpressions,
        """
        g (float[N] x) => (float[N] y) {
            a = Exp(x)
            b = Exp(x)
            c = Neg(a)
            d = Neg(b)
            y = Add(c, d)
        }
        """,
        "g (float[N] x) => (float[N] y) { a = Exp(x)  c = Neg(a)  y = Add(c, c) }",
        count=2,
    )


def test_equal_initializers():
    check(
        merge_common_subexpressions,
        """
        g (float[2] x) => (float[2] y)
        <float[2] v = {1, 2}, float[2] w = {1, 2}, int32[2] u = {1, 2}, float[2] t = {1, 3}> {
            a = Add(x, v)
            b = Add(x, w)
            c = Mul(a, b)
            d = Cast <to = 1> (u)
            e = Mul(c, d)
            y = Mul(e, t)
        }
        """,
        """
        g (float[2] x) => (float[2] y)
        <float[2] v = {1, 2}, int32[2] u = {1, 2}, float[2] t = {1, 3}> {
            a = Add(x, v)
            c = Mul(a, a)
            d = Cast <to = 1> (u)
            e = Mul(c, d)
            y = Mul(e, t)
        }
        """,
        count=2,
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("LeakyRelu <alpha = 0.01> (x)", "LeakyRelu <alpha = 0.010000001> (x)"),
        ("LeakyRelu <alpha = 0.0> (x)", "LeakyRelu <alpha = -0.0> (x)"),
        ("Softmax <axis = 0> (x)", "Softmax <axis = 1> (x)"),
        ("Softmax(x)", "LogSoftmax(x)"),
        ("Sub(x, v)", "Sub(v, x)"),
        ("Bernoulli(x)", "Bernoulli(x)"),
        ("RandomNormalLike(x)", "RandomNormalLike(x)"),
        ("Dropout(x, r, on)", "Dropout(x, r, on)"),
    ],
)
def test_nodes_that_differ_or_are_random(first: str, second: str):
    text = f"""
        g (float[2, 2] x, float[2, 2] v) => (float[2, 2] y)
        <float r = {{0.5}}, bool on = {{1}}> {{
            a = {first}
            b = {second}
            y = Add(a, b)
        }}
        """
    check(merge_common_subexpressions, text, text, count=0, evaluate="nobody")


def test_two_outputs_stay_two_outputs():
    check(
        merge_common_subexpressions,
        "g (float[N] x) => (float[N] y, float[N] z) { y = Exp(x)  z = Exp(x) }",
        "g (float[N] x) => (float[N] y, float[N] z) { y = Exp(x)  z = Identity(y) }",
        count=1,
    )


def test_branch_uses_the_result_of_the_graph_around_it():
    check(
        merge_common_subexpressions,
        """
        g (bool c, float[N] x) => (float[N] y) {
            s = Exp(x)
            t = If (c) <
                then_branch = a () => (float[N] p) { i = Exp(x)  p = Abs(i) },
                else_branch = b () => (float[N] q) { q = Exp(x) }>
            y = Add(s, t)
        }
        """,
        """
        g (bool c, float[N] x) => (float[N] y) {
            s = Exp(x)
            t = If (c) <
                then_branch = a () => (float[N] p) { p = Abs(s) },
                else_branch = b () => (float[N] q) { q = Identity(s) }>
            y = Add(s, t)
        }
        """,
        count=2,
    )


def test_branches_do_not_see_each_other():
    text = """
        g (bool c, float[N] x) => (float[N] y) {
            t = If (c) <
                then_branch = a () => (float[N] p) { i = Exp(x)  p = Abs(i) },
                else_branch = b () => (float[N] q) { j = Exp(x)  q = Neg(j) }>
            k = Exp(x)
            y = Add(k, t)
        }
        """
    check(merge_common_subexpressions, text, text, count=0)


def test_body_of_a_scan():
    check(
        merge_common_subexpressions,
        """
        g (float[3, 2] x, float[2] h) => (float[2] hn) {
            hn = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] sn) {
                i = Exp(e)
                j = Exp(e)
                k = Add(i, j)
                sn = Add(s, k)
            }> (h, x)
        }
        """,
        """
        g (float[3, 2] x, float[2] h) => (float[2] hn) {
            hn = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] sn) {
                i = Exp(e)
                k = Add(i, i)
                sn = Add(s, k)
            }> (h, x)
        }
        """,
        count=1,
    )


def test_nodes_with_different_unused_outputs_are_left():
    text = """
        g (float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] y, int64[1, 1, 3, 3] i) {
            y = MaxPool <kernel_shape = [2, 2]> (x)
            z, i = MaxPool <kernel_shape = [2, 2]> (x)
        }
        """
    check(merge_common_subexpressions, text, text, count=0)


def test_large_initializers_that_differ_in_one_element_stay():
    weights = {name: np.arange(5000, dtype=np.float32) for name in "abc"}
    weights["c"][1] += 1
    nodes = [helper.make_node("Add", ["x", "a"], ["p"])]
    nodes += [helper.make_node("Add", [left, right], [y]) for left, right, y in ("pbq", "qcy")]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [5000]) for n in "xy"]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    model = onnx_ir.from_proto(helper.make_model(graph))
    assert merge_common_subexpressions(model) == 1
    assert list(model.graph.initializers) == ["a", "c"]
