from __future__ import annotations

import pytest

from ostinato.passes.loops.dead_loop_values import dead_loop_values
from tests.golden import check


def test_unused_output_and_state_of_a_scan():
    check(
        dead_loop_values,
        """
        g (float[3, 2] x, float[2] h) => (float[3, 2] y) {
            a, b, y, z = Scan <num_scan_inputs = 1, scan_output_axes = [0, 1],
                body = f (float[2] s, float[2] t, float[2] e) =>
                    (float[2] sn, float[2] tn, float[2] o, float[2] p) {
                    sn = Add(s, e)
                    tn = Mul(t, e)
                    o = Neg(sn)
                    p = Exp(tn)
                }> (h, h, x)
        }
        """,
        """
        g (float[3, 2] x, float[2] h) => (float[3, 2] y) {
            a, y = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) =>
                (float[2] sn, float[2] o) {
                    sn = Add(s, e)
                    o = Neg(sn)
                }> (h, x)
        }
        """,
        count=2,
        evaluate="onnxruntime",
    )


def test_states_that_need_each_other_stay():
    text = """
        g (float[3, 2] x, float[2] h) => (float[2] b) {
            a, b = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] t, float[2] e) =>
                (float[2] sn, float[2] tn) {
                    sn = Add(t, e)
                    tn = Mul(s, e)
                }> (h, x, x)
        }
        """.replace("(h, x, x)", "(h, h, x)")
    check(dead_loop_values, text, text, count=0, evaluate="onnxruntime")


def test_states_that_only_need_each_other_leave():
    check(
        dead_loop_values,
        """
        g (float[3, 2] x, float[2] h) => (float[3, 2] y) {
            a, b, y = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] t, float[2] e) =>
                (float[2] sn, float[2] tn, float[2] o) {
                    sn = Add(t, e)
                    tn = Mul(s, e)
                    o = Neg(e)
                }> (h, h, x)
        }
        """,
        """
        g (float[3, 2] x, float[2] h) => (float[3, 2] y) {
            y = Scan <num_scan_inputs = 1, body = f (float[2] e) => (float[2] o) {
                o = Neg(e)
            }> (x)
        }
        """,
        count=2,
        evaluate="onnxruntime",
    )


def test_state_that_stays_as_it_is():
    check(
        dead_loop_values,
        """
        g (float[3, 2] x, float[2] h, float[2] w) => (float[2] a, float[2] b, float[3, 2] y) {
            a, b, y = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] t, float[2] e) =>
                (float[2] sn, float[2] tn, float[2] t) {
                    u = Mul(e, t)
                    sn = Add(s, u)
                    tn = Identity(t)
                }> (h, w, x)
        }
        """.replace("float[2] tn, float[2] t)", "float[2] tn, float[2] o)").replace(
            "tn = Identity(t)", "tn = Identity(t)  o = Identity(t)"
        ),
        """
        g (float[3, 2] x, float[2] h, float[2] w) => (float[2] a, float[2] b, float[3, 2] y) {
            a, y = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) =>
                (float[2] sn, float[2] o) {
                    u = Mul(e, w)
                    sn = Add(s, u)
                    o = Identity(w)
                }> (h, x)
            b = Identity(w)
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_scan_inputs_that_repeat_or_are_not_read():
    check(
        dead_loop_values,
        """
        g (float[3, 3] x, float[3] h) => (float[3] a) {
            a = Scan <num_scan_inputs = 5, scan_input_axes = [0, 0, 0, 1, 1],
                scan_input_directions = [1, 0, 0, 0, 0],
                body = f (float[3] s, float[3] d, float[3] e, float[3] g, float[3] i, float[3] j) =>
                    (float[3] sn) {
                    u = Mul(e, g)
                    v = Add(u, i)
                    w = Add(v, d)
                    sn = Add(s, w)
                }> (h, x, x, x, x, h2)
        }
        """.replace("h2", "x"),
        """
        g (float[3, 3] x, float[3] h) => (float[3] a) {
            a = Scan <num_scan_inputs = 3, scan_input_axes = [0, 0, 1],
                scan_input_directions = [1, 0, 0],
                body = f (float[3] s, float[3] d, float[3] e, float[3] i) => (float[3] sn) {
                    u = Mul(e, e)
                    v = Add(u, i)
                    w = Add(v, d)
                    sn = Add(s, w)
                }> (h, x, x, x)
        }
        """,
        count=2,
        evaluate="onnxruntime",
    )


def test_the_last_scan_input_stays():
    check(
        dead_loop_values,
        """
        g (float[3] x, float[3] z, float[2] h) => (float[2] a) {
            a = Scan <num_scan_inputs = 2, body = f (float[2] s, float d, float e) => (float[2] t) {
                t = Tanh(s)
            }> (h, x, z)
        }
        """,
        """
        g (float[3] x, float[3] z, float[2] h) => (float[2] a) {
            a = Scan <num_scan_inputs = 1, body = f (float[2] s, float d) => (float[2] t) {
                t = Tanh(s)
            }> (h, x)
        }
        """,
        count=1,
        evaluate="onnxruntime",
    )


def test_states_and_outputs_that_repeat():
    check(
        dead_loop_values,
        """
        g (float[3, 2] x, float[2] h) => (float[2] a, float[2] b, float[3, 2] y, float[3, 2] z) {
            a, b, y, z = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] t, float[2] e) =>
                (float[2] sn, float[2] tn, float[2] o, float[2] p) {
                    u = Mul(s, t)
                    sn = Add(u, e)
                    tn = Identity(sn)
                    o = Identity(sn)
                    p = Identity(o)
                }> (h, h, x)
        }
        """,
        """
        g (float[3, 2] x, float[2] h) => (float[2] a, float[2] b, float[3, 2] y, float[3, 2] z) {
            a, y = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) =>
                (float[2] sn, float[2] o) {
                    u = Mul(s, s)
                    sn = Add(u, e)
                    o = Identity(sn)
                }> (h, x)
            b = Identity(a)
            z = Identity(y)
        }
        """,
        count=2,
        evaluate="onnxruntime",
    )


def test_outputs_of_two_directions_do_not_repeat():
    text = """
        g (float[3, 2] x) => (float[3, 2] y, float[3, 2] z) {
            y, z = Scan <num_scan_inputs = 1, scan_output_directions = [0, 1],
                body = f (float[2] e) => (float[2] o, float[2] p) {
                    o = Neg(e)
                    p = Identity(o)
                }> (x)
        }
        """
    check(dead_loop_values, text, text, count=0, evaluate="onnxruntime")


@pytest.mark.parametrize("opset", [11, 17])
def test_loop_keeps_what_its_condition_needs(opset: int):
    check(
        dead_loop_values,
        """
        g (int64 n, float[2] h) => (float[2] y)
        <bool c = {1}, float[1] k = {1}, float[1] limit = {3}, float[2] half = {0.5, 0.5}> {
            y, z, w, v = Loop <body = b (int64 i, bool p, float[2] s, float[1] t, float[2] r) =>
                (bool q, float[2] sn, float[1] tn, float[2] rn, float[2] o) {
                    sn = Mul(s, half)
                    tn = Add(t, k)
                    l = Less(tn, limit)
                    q = Squeeze(l)
                    rn = Add(r, r)
                    o = Exp(rn)
                }> (n, c, h, k, h)
        }
        """,
        """
        g (int64 n, float[2] h) => (float[2] y)
        <bool c = {1}, float[1] k = {1}, float[1] limit = {3}, float[2] half = {0.5, 0.5}> {
            y, z = Loop <body = b (int64 i, bool p, float[2] s, float[1] t) =>
                (bool q, float[2] sn, float[1] tn) {
                    sn = Mul(s, half)
                    tn = Add(t, k)
                    l = Less(tn, limit)
                    q = Squeeze(l)
                }> (n, c, h, k)
        }
        """,
        opset=opset,
        count=2,
        evaluate="onnxruntime",
    )


def test_loop_without_states_but_where_one_is_required():
    body = """(bool p, float[2] sn, float[2] o) {
        o = Neg(x)
        sn = Add(s, s)
    }"""
    text = f"""
        g (float[2] x, float[2] h) => (float[3, 2] y) <int64 n = {{3}}, bool c = {{1}}> {{
            z, y = Loop <body = b (int64 i, bool p, float[2] s) => {body}> (n, c, h)
        }}
        """
    check(dead_loop_values, text, text, opset=10, count=0, evaluate="nobody")
    check(
        dead_loop_values,
        text,
        """
        g (float[2] x, float[2] h) => (float[3, 2] y) <int64 n = {3}, bool c = {1}> {
            y = Loop <body = b (int64 i, bool p) => (bool p_output, float[2] o) {
                o = Neg(x)
                p_output = Identity(p)
            }> (n, c)
        }
        """,
        opset=11,
        count=1,
        evaluate="onnxruntime",
    )


def test_values_that_a_nested_graph_reads_stay():
    text = """
        g (float[3, 2] x, float[2] h, bool c) => (float[3, 2] y) {
            a, y = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) =>
                (float[2] sn, float[2] o) {
                    sn = Add(s, e)
                    o = If (c) <
                        then_branch = t () => (float[2] u) { u = Neg(s) },
                        else_branch = r () => (float[2] v) { v = Neg(e) }>
                }> (h, x)
        }
        """
    check(dead_loop_values, text, text, count=0, evaluate="onnxruntime")


def test_a_loop_that_nothing_needs_is_left_to_others():
    text = """
        g (float[3, 2] x, float[2] h) => (float[2] y) {
            a = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) => (float[2] sn) {
                sn = Add(s, e)
            }> (h, x)
            y = Neg(h)
        }
        """
    check(dead_loop_values, text, text, count=0)


def test_a_loop_whose_states_all_stay_as_they_are():
    check(
        dead_loop_values,
        """
        g (float[3, 2] x, float[2] h) => (float[2] y) {
            a = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) => (float[2] sn) {
                sn = Identity(s)
            }> (h, x)
            y = Neg(a)
        }
        """,
        "g (float[3, 2] x, float[2] h) => (float[2] y) { y = Neg(h) }",
        count=2,
        evaluate="onnxruntime",
    )


def test_scan_with_a_batch_axis_is_left():
    text = """
        g (float[1, 2] h, float[1, 3, 2] x) => (float[1, 2] y) {
            y, z = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) =>
                (float[2] sn, float[2] o) {
                    sn = Add(s, e)
                    o = Neg(e)
                }> ("", h, x)
        }
        """
    check(dead_loop_values, text, text, opset=8, count=0, evaluate="nobody")
