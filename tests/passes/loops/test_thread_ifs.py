from __future__ import annotations

import numpy as np
import pytest

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.loops.thread_ifs import thread_ifs
from ostinato.passes.pipeline import run_passes
from tests.golden import check, parse

# `if a: break`, `if b: break`: zeros stand for what is not read.
BREAKS = """
    g (float[N, 2] x, bool a, bool b) => (float[N, 2] y)
        <bool no = {0}, bool yes = {1}, float zero = {0}> {
        stops, early, late = If (a) <
            then_branch = t () => (bool p, float[N, 2] q, float r) {
                p = Identity(yes)  q = Neg(x)  r = Identity(zero) },
            else_branch = e () => (bool s, float[N, 2] u, float[N, 2] v) {
                s = Identity(b)  u, v = If (b) <
                    then_branch = tt () => (float[N, 2] k, float l) {
                        k = Exp(x)  l = Identity(zero) },
                    else_branch = ee () => (float m, float[N, 2] n) {
                        m = Identity(zero)  n = Abs(x) }> }>
        y = If (stops) <
            then_branch = c () => (float[N, 2] early_copy) { early_copy = Identity(early) },
            else_branch = d () => (float[N, 2] late_copy) { late_copy = Identity(late) }>
    }
"""


def test_what_is_not_read_behind_a_break_leaves():
    check(
        thread_ifs,
        BREAKS,
        """
        g (float[N, 2] x, bool a, bool b) => (float[N, 2] y)
        <bool no = {0}, bool yes = {1}, float zero = {0}> {
            y = If (a) <
                then_branch = t () => (float[N, 2] "/threaded_4") {
                    p = Identity(yes)  q = Neg(x)  r = Identity(zero)
                    "/threaded_4" = Identity(q) },
                else_branch = e () => (float[N, 2] "/threaded_2") {
                    s = Identity(b)
                    u, v = If (b) <
                        then_branch = tt () => (float[N, 2] k, float l) {
                            k = Exp(x)  l = Identity(zero) },
                        else_branch = ee () => (float m, float[N, 2] n) {
                            m = Identity(zero)  n = Abs(x) }>
                    "/threaded_2" = If (s) <
                        then_branch = c () => (float[N, 2] "/threaded") {
                            "/threaded" = Identity(u) },
                        else_branch = d () => (float[N, 2] "/threaded_1") {
                            "/threaded_1" = Identity(v) }> }>
        }
        """,
        count=1,
    )


def test_the_rest_follows():
    model = load_model(parse(BREAKS))
    run_passes(model)
    (outer,) = model.graph
    (inner,) = outer.attributes["else_branch"].as_graph()
    kinds = [
        [node.op_type for node in inner.attributes[side].as_graph()]
        for side in ("then_branch", "else_branch")
    ]
    assert kinds == [["Exp"], ["Abs"]]
    assert len(outer.outputs) == len(inner.outputs) == 1


def test_equal_conditions_choose_once():
    check(
        thread_ifs,
        """
        g (float[N] x, bool a) => (float[N] y, float[N] u) {
            u = If (a) <
                then_branch = t () => (float[N] p) { p = Neg(x) },
                else_branch = e () => (float[N] q) { q = Exp(x) }>
            y = If (a) <
                then_branch = tt () => (float[N] r) { k = Abs(u)  r = Add(k, x) },
                else_branch = ee () => (float[N] s) { s = Sub(u, x) }>
        }
        """,
        """
        g (float[N] x, bool a) => (float[N] y, float[N] u) {
            u, y = If (a) <
                then_branch = t () => (float[N] p, float[N] r) {
                    p = Neg(x)  k = Abs(p)  r = Add(k, x) },
                else_branch = e () => (float[N] q, float[N] s) { q = Exp(x)  s = Sub(q, x) }>
        }
        """,
        count=1,
    )


@pytest.mark.parametrize(
    "second",
    [
        # What comes between has to come first; work that both branches would need; another one.
        """w = Neg(u)
            y = If (a) < then_branch = tt () => (float[N] r) { r = Abs(w) },
                         else_branch = ee () => (float[N] s) { s = Exp(w) }>""",
        """y = If (d) < then_branch = tt () => (float[N] r) { r = Abs(u) },
                        else_branch = ee () => (float[N] s) { s = Exp(u) }>""",
        """y = If (b) < then_branch = tt () => (float[N] r) { r = Abs(u) },
                        else_branch = ee () => (float[N] s) { s = Exp(u) }>""",
    ],
)
def test_others_stay(second):
    text = f"""
        g (float[N] x, bool a, bool b) => (float[N] y) <bool yes = {{1}}> {{
            u, d = If (a) <
                then_branch = t () => (float[N] p, bool m) {{ p = Neg(x)  m = Identity(yes) }},
                else_branch = e () => (float[N] q, bool n) {{ q = Exp(x)  n = Not(b) }}>
            {second}
        }}
    """
    check(thread_ifs, text, text, count=0)


def test_breaks_are_native():
    session = ostinato.InferenceSession(parse(BREAKS), fallback=False, cache_dir=None)
    x = np.array([[1.0, -2.0]], np.float32)
    for a, b, expected in ((1, 0, -x), (0, 1, np.exp(x)), (0, 0, np.abs(x))):
        (y,) = session.run(None, {"x": x, "a": np.array(a, bool), "b": np.array(b, bool)})
        np.testing.assert_allclose(y, expected, rtol=1e-6)
