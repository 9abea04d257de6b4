"""Rows that go on from other rows copy what they do not have in common."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from ostinato import InferenceSession

STEPS, ROWS = 60, 5
# In front or behind, before or after rows are added, in a memory with rows last or not.
BODIES = {
    "moved, then longer": "k = Gather(s, o)  so = Concat<axis = 2>(k, x)",
    "longer, then moved": "k = Concat<axis = 2>(s, x)  so = Gather(k, o)",
    "moved, then longer in front": "k = Gather(s, o)  so = Concat<axis = 2>(x, k)",
    "longer in front, then moved": "k = Concat<axis = 2>(x, s)  so = Gather(k, o)",
    "with readers behind": "k = Concat<axis = 2>(s, x)  so = Gather(k, o)  q = Neg(k)",
    "moved twice": "u = Gather(s, o)  k = Concat<axis = 2>(u, x)  so = Gather(k, o)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("early", [False, True], ids=["all steps", "ended"])
def test_many_steps_keep_every_row(body: str, early: bool) -> None:
    random = np.random.default_rng(0)
    session = InferenceSession(
        parser.parse_model(
            f"""<ir_version: 9, opset_import: ["" : 18]>
            g (int64 n, float[{ROWS}, 2, L] x0, int64[T, {ROWS}] order, float[T, {ROWS}, 2, 1] xs)
                => (float[{ROWS}, 2, A] y, float[C] m) {{
                go = Constant<value = bool {{1}}>()
                y, m = Loop<body = b (int64 i, bool c, float[{ROWS}, 2, M] s) =>
                    (bool co, float[{ROWS}, 2, N] so, float v) {{
                        most = Constant<value = int64 {{{STEPS if not early else 40}}}>()
                        co = Less(i, most)  o = Gather(order, i)  x = Gather(xs, i)
                        {body}  v = ReduceMax<keepdims = 0>({"q" if "Neg" in body else "k"})
                }}>(n, go, x0)
            }}"""
        ),
        cache_dir=None,
        fallback=False,
    )
    kinds = [
        random.integers(-ROWS, ROWS, (STEPS, ROWS)),
        np.array([random.permutation(ROWS) for _ in range(STEPS)]),
        np.sort(random.integers(0, ROWS, (STEPS, ROWS)), 1),
    ]
    for order in kinds:
        x0 = random.standard_normal((ROWS, 2, 3)).astype(np.float32)
        xs = random.standard_normal((STEPS, ROWS, 2, 1)).astype(np.float32)
        y, _ = session.run(None, {"n": np.array(STEPS), "x0": x0, "order": order, "xs": xs})
        rows, in_front = x0, "(x, " in body
        for rows_of, x in list(zip(order, xs, strict=True))[: 41 if early else STEPS]:
            if "Gather(s" in body:
                rows = rows[rows_of]
            rows = np.concatenate([x, rows] if in_front else [rows, x], 2)
            if "Gather(k" in body:
                rows = rows[rows_of]
        np.testing.assert_array_equal(y, rows)
