from __future__ import annotations

import pytest

from ostinato.model.load import load_model
from ostinato.passes.loops.loop_invariants import loop_invariants
from tests.golden import check, parse


def test_what_does_not_depend_on_the_step_moves_out():
    check(
        loop_invariants,
        """
        g (float[3, 2] x, float[2] h, float[2, 2] w, float[N] q) => (float[2] hn) {
            hn = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) => (float[2] sn) {
                v = Transpose(w)
                k = Tanh(v)
                l = MatMul(k, h)
                u = MatMul(v, s)
                m = Add(u, l)
                sn = Add(m, e)
            }> (h, x)
        }
        """,
        """
        g (float[3, 2] x, float[2] h, float[2, 2] w, float[N] q) => (float[2] hn) {
            v = Transpose(w)
            k = Tanh(v)
            l = MatMul(k, h)
            hn = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) => (float[2] sn) {
                u = MatMul(v, s)
                m = Add(u, l)
                sn = Add(m, e)
            }> (h, x)
        }
        """,
        count=3,
        evaluate="onnxruntime",
    )


def test_from_an_inner_loop_to_the_outside():
    check(
        loop_invariants,
        """
        g (float[4, 3, 2] x, float[2] h) => (float[2] hn) {
            hn = Scan <num_scan_inputs = 1, body = f (float[2] s, float[3, 2] e) => (float[2] sn) {
                sn = Scan <num_scan_inputs = 1, body = k (float[2] a, float[2] b) => (float[2] c) {
                    v = Exp(h)
                    w = Exp(s)
                    y = Add(v, w)
                    z = Add(a, b)
                    c = Add(y, z)
                }> (s, e)
            }> (h, x)
        }
        """,
        """
        g (float[4, 3, 2] x, float[2] h) => (float[2] hn) {
            v = Exp(h)
            hn = Scan <num_scan_inputs = 1, body = f (float[2] s, float[3, 2] e) => (float[2] sn) {
                w = Exp(s)
                y = Add(v, w)
                sn = Scan <num_scan_inputs = 1, body = k (float[2] a, float[2] b) => (float[2] c) {
                    z = Add(a, b)
                    c = Add(y, z)
                }> (s, e)
            }> (h, x)
        }
        """,
        count=4,
        evaluate="onnxruntime",
    )


@pytest.mark.parametrize(
    "body",
    [
        "l = Add(q, r)  m = ReduceSum <keepdims = 0> (l)  sn = Add(s, m)",  # may not broadcast
        "l = RandomNormalLike(h)  sn = Add(s, l)",
        "l = Gather(h, k)  sn = Add(s, l)",  # may be out of range
        "l = If (c) <then_branch = t () => (float[2] u) { u = Neg(h) },"
        " else_branch = f () => (float[2] v) { v = Exp(h) }>  sn = Add(s, l)",
        "sn = Exp(h)",  # what the body returns is made in it
    ],
)
def test_what_stays(body: str):
    text = f"""
        g (float[3, 2] x, float[2] h, float[N] q, float[M] r, int64[2] k, bool c) =>
          (float[2] hn) {{
            hn = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) => (float[2] sn) {{
                {body}
            }}> (h, x)
        }}
        """
    check(loop_invariants, text, text, count=0, evaluate="nobody")


@pytest.mark.parametrize(("index", "count"), [(0, 1), (-1, 1), (1, 0), (-2, 0)])
def test_an_element_that_is_there(index: int, count: int) -> None:
    model = parse(f"""
        g (float[3, 2] x, float[2] h, float[1, N] q) => (float[2] hn) <int64 i = {{{index}}}> {{
            hn = Scan <num_scan_inputs = 1, body = f (float[2] s, float[2] e) => (float[2] sn) {{
                l = Gather (q, i)  m = ReduceSum <keepdims = 0> (l)
                a = Add (s, e)  sn = Add (a, m)
            }}> (h, x)
        }}""")
    loaded = load_model(model)
    assert loop_invariants(loaded) == count


def test_inside_a_branch_only_up_to_the_loop():
    check(
        loop_invariants,
        """
        g (int64 n, float[2] h, bool c) => (float[2] y) <bool go = {1}> {
            y = If (c) <
                then_branch = t () => (float[2] u) {
                    u = Loop <body = b (int64 i, bool p, float[2] s) => (bool p, float[2] sn) {
                        k = Exp(h)
                        sn = Add(s, k)
                    }> (n, go, h)
                },
                else_branch = f () => (float[2] v) { v = Neg(h) }>
        }
        """,
        """
        g (int64 n, float[2] h, bool c) => (float[2] y) <bool go = {1}> {
            y = If (c) <
                then_branch = t () => (float[2] u) {
                    k = Exp(h)
                    u = Loop <body = b (int64 i, bool p, float[2] s) => (bool p, float[2] sn) {
                        sn = Add(s, k)
                    }> (n, go, h)
                },
                else_branch = f () => (float[2] v) { v = Neg(h) }>
        }
        """,
        count=1,
        evaluate="nobody",
    )
