from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from ostinato.model.load import load_model
from ostinato.passes.loops.chosen_rows import chosen_rows
from tests.golden import parse

HEAD = """g (float[2, 3, N] x, int64[3] k, bool[3] few, bool one, int64 n) => (float[T, 2, 3, N] y)
    <int64[2] ends = {{0, 2}}, int64[1] last = {{-1}}, bool c = {{1}}> {{
        s, y = Loop <body = b (int64 i, bool p, float[2, 3, N] v)
            => (bool p, float[2, 3, N] r, float[2, 3, N] w) {{ {body}  w = Identity(r) }}> (n, c, x)
    }}"""
IF = """r = If(one) <then_branch = t () => (float[2, 3, N] d) {{ {then} }},
    else_branch = e () => (float[2, 3, N] f) {{ {other} }}>"""
TAKEN, KEPT = "d = Gather <axis = 1> (v, k)", "f = Identity(v)"


@pytest.mark.parametrize(
    "body",
    [
        "q = Gather <axis = 1> (v, k)  r = Where(one, q, v)",
        "q = Gather <axis = -2> (v, k)  m = Unsqueeze(few, ends)  r = Where(m, v, q)",
        "q = Gather <axis = 1> (v, k)  m = Unsqueeze(few, last)  r = Where(m, q, v)",
        """q = Gather <axis = 1> (v, k)  j = Neg(k)  u = Gather <axis = 1> (v, j)
        r = Where(one, q, u)""",
        IF.format(then=TAKEN, other=KEPT),
        IF.format(then="d = Identity(v)", other="h = Neg(k)  f = Gather <axis = -2> (v, h)"),
        IF.format(then=TAKEN, other="h = Cast <to = 6> (k)  f = Gather <axis = 1> (v, h)"),
    ],
)
def test_rows_at_chosen_positions(body: str) -> None:
    source = parse(HEAD.format(body=body))
    model = load_model(source)
    assert chosen_rows(model) == 1
    result = ir.to_proto(model)
    random = np.random.default_rng(0)
    for one in (True, False):
        feeds = {
            "x": random.standard_normal((2, 3, 4), np.float32),
            "k": np.array([2, 0, 0]),
            "few": np.array([True, False, True]),
            "one": np.array(one),
            "n": np.array(3),
        }
        expected, got = (ReferenceEvaluator(m).run(None, feeds)[0] for m in (source, result))
        np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize(
    "body",
    [
        # The condition differs along another axis, or the values along different ones.
        "q = Gather <axis = 1> (v, k)  m = Greater(v, q)  r = Where(m, q, v)",
        "q = Gather <axis = 1> (v, k)  m = Identity(few)  r = Where(m, q, v)",
        # Rows of something else, and elements.
        "q = Gather <axis = 1> (v, k)  a = Neg(v)  r = Where(one, q, a)",
        "q = Gather <axis = 1> (v, k)  r = Where(one, q, x)",
        IF.format(then=TAKEN, other="f = Neg(v)"),
        IF.format(then="a = Neg(v)  d = Gather <axis = 1> (a, k)", other="f = Identity(v)"),
        IF.format(then="d = Identity(v)", other=KEPT),
    ],
)
def test_what_stays_a_choice(body: str) -> None:
    assert chosen_rows(load_model(parse(HEAD.format(body=body)))) == 0
