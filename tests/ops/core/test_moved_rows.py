"""Rows of states that change places: every way that few rows can, and who else reads them."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from ostinato import InferenceSession, RunError
from ostinato.model.load import load_model
from ostinato.passes.pipeline import run_passes
from ostinato.program.nodes import Loop, statements
from ostinato.stages.partition import Segment, partition

NEW = "r = ReduceSum(s, axis)  e = Add(r, f)"
# What makes the next state, what else reads which rows, and whether no second memory is needed.
BODIES = {
    "behind what is appended": (f"{NEW}  p = Concat<axis = 1>(s, e)  so = Gather(p, o)", "p", True),
    "before": (
        "k = Gather(s, o)  r = ReduceSum(k, axis)  e = Add(r, f)  so = Concat<axis = 1>(k, e)",
        "so",
        True,
    ),
    "behind, and read": (f"{NEW}  p = Concat<axis = 1>(s, e)  so = Gather(p, o)", "so", False),
    "twice, in front": (
        """k = Gather(s, o)  r = ReduceSum(k, axis)  e = Add(r, f)
        p = Concat<axis = 1>(e, k)  so = Gather(p, o)""",
        "p",
        True,
    ),
    "if the step is odd": (
        """k = If(odd) <then_branch = g () => (float[N, M] a) { a = Gather(s, o) },
            else_branch = h () => (float[N, M] z) { z = Identity(s) }>
        r = ReduceSum(k, axis)  e = Add(r, f)  so = Concat<axis = 1>(k, e)""",
        "so",
        True,
    ),
    "unless the step is odd": (
        f"""{NEW}  p = Concat<axis = 1>(s, e)
        so = If(odd) <then_branch = g () => (float[N, P] a) {{ a = Identity(p) }},
            else_branch = h () => (float[N, P] z) {{ u = Add(o, o)  w = Sub(u, o)
                z = Gather(p, w) }}>""",
        "p",
        True,
    ),
    "some of them": (
        f"""{NEW}  p = Concat<axis = 1>(s, e)  q = Gather<axis = -2>(p, o)
        few = Less(o, two)  rows = Unsqueeze(few, axis)  so = Where(rows, p, q)""",
        "p",
        True,
    ),
    "all or none": (
        """q = Gather(s, o)  k = Where(odd, q, s)  r = ReduceSum(k, axis)  e = Add(r, f)
        so = Concat<axis = 1>(k, e)""",
        "so",
        True,
    ),
    "alone": ("so = Gather(s, o)", "s", True),
    "and read as they were": (f"k = Gather(s, o)  {NEW}  so = Concat<axis = 1>(k, e)", "s", False),
}


def model(body: str, read: str) -> onnx.ModelProto:
    return parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        g (int64 n, float[N, L] x, int64[T, N] order) => (float[A, B] y, float[C, N] m) {{
            go = Constant<value = bool {{1}}>()
            y, m = Loop<body = b (int64 i, bool c, float[N, M] s) =>
                (bool co, float[N, P] so, float[N] v) {{
                    co = Identity(c)  o = Gather(order, i)  f = Cast<to = 1>(i)
                    axis = Constant<value_ints = [1]>()  two = Constant<value_int = 2>()
                    one = Constant<value_int = 1>()  rest = Mod(i, two)  odd = Equal(rest, one)
                    {body}  v = ReduceSum<keepdims = 0>({read}, axis)
            }}>(n, go, x)
        }}"""
    )


@pytest.mark.parametrize(("body", "read", "stays"), BODIES.values(), ids=BODIES)
def test_rows_change_places(body: str, read: str, stays: bool) -> None:
    proto, random = model(body, read), np.random.default_rng(0)
    session = InferenceSession(proto, fallback=False)
    other = onnxruntime.InferenceSession(proto.SerializeToString())
    every = [np.array([map_, random.permutation(4) - 4]) for map_ in product(range(4), repeat=4)]
    larger = [random.integers(-n, n, (5, n)) for n in (1, 2, 7, 33)]
    for order in (*every[:: 1 if stays else 16], *larger):
        x = random.integers(-4, 5, (order.shape[1], 2)).astype(np.float32)
        feeds = {"n": np.array(len(order)), "x": x, "order": order}
        for ours, theirs in zip(session.run(None, feeds), other.run(None, feeds), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(RunError, match="out of range"):
        session.run(None, {"n": np.array(2), "x": x[:3], "order": np.array([[0, 3, 1]] * 2)})
    loaded = load_model(proto)
    run_passes(loaded)
    (part,) = partition(loaded, fallback=False).parts
    assert isinstance(part, Segment)
    loop, *_ = (s for s in statements(part.program.body) if isinstance(s, Loop))
    # What rows have in common is carried, and small.
    carried = [part.program.buffers[carry.state].dtype for carry in loop.carries]
    assert ("float32" not in carried) == stays
