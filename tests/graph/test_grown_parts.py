from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

from ostinato.graph.grown_parts import grown, parts_of
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.normalise.lift_constants import lift_constants

# Two layers of a cache `s` of 2 x 3 x P x 4, in the ways that programs take and join them.
LAYERS = """u = Gather(s, zero)  v = Gather(s, one)
    k = Concat<axis = 1>(u, a)  l = Concat<axis = 1>(v, b)"""
STACK = "m = Unsqueeze(k, first)  n = Unsqueeze(l, first)  so = Concat<axis = 0>(m, n)"
SPLIT = """u, v = Split<axis = 1>(s, sizes)
    k = Concat<axis = -2>(u, c)  l = Concat<axis = -2>(v, d)"""
TURNED = """t = Transpose<perm = [2, 0, 1, 3]>(s)  u = Slice(t, first, second, second)
    v = Slice(t, second, far, second)  x = Transpose<perm = [2, 0, 1, 3]>(e)
    y = Transpose<perm = [2, 0, 1, 3]>(f)
    k = Concat<axis = 0>(x, u)  l = Concat<axis = 0>(y, v)  m = Concat<axis = 1>(k, l)
    so = Transpose<perm = [1, 2, 0, 3]>(m)"""


def graph(text: str) -> ir.Graph:
    model = ir.from_proto(
        parser.parse_model(
            f"""<ir_version: 9, opset_import: ["" : 18]>
            g (float[2, 3, P, 4] s, float[3, 1, 4] a, float[3, 1, 4] b, float[2, 1, 1, 4] c,
               float[2, 2, 1, 4] d, float[1, 3, 1, 4] e, float[1, 3, 1, 4] f, int64[2] order)
                => (float[2, 3, Q, 4] so) {{
                zero = Constant<value = int64 {{0}}>()  one = Constant<value = int64 {{-1}}>()
                first = Constant<value_ints = [0]>()  second = Constant<value_ints = [1]>()
                far = Constant<value_ints = [9223372036854775807]>()
                sizes = Constant<value_ints = [1, 2]>()  back = Constant<value_ints = [1, 0]>()
                {text}
            }}"""
        )
    )
    lift_constants(model)
    infer_shapes(model)
    return model.graph


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("x = Concat<axis = 1>(c, d)  so = Concat<axis = 2>(s, x)", ["so"]),
        (f"{LAYERS} {STACK}", ["k", "l"]),
        (f"{SPLIT} so = Concat<axis = 1>(k, l)", ["k", "l"]),
        (TURNED, ["k", "l"]),
        (f"w = Gather(s, order) {LAYERS.replace('s,', 'w,')} {STACK}", ["k", "l"]),
        (
            f"""{LAYERS} x = Unsqueeze(a, first)  y = Unsqueeze(b, first)
            z = Concat<axis = 0>(x, y)  so = Concat<axis = 2>(s, z)""",
            ["so", "k", "l"],
        ),
        # Rows that are not those of the part, or of no part.
        (
            f"""{LAYERS} x = Unsqueeze(a, first)  y = Unsqueeze(b, first)
            z = Concat<axis = 0>(y, x)  so = Concat<axis = 2>(s, z)""",
            ["so"],
        ),
        (f"{LAYERS} {STACK.replace('(m, n)', '(n, m)')}", None),
        (f"{LAYERS} {STACK.replace('(m, n)', '(m, m)')}", None),
        (f"{LAYERS.replace('s, one', 's, zero')} {STACK}", None),
        (f"{LAYERS.replace('s, one', 's, back')} {STACK}", None),
        (f"{LAYERS} so = Unsqueeze(k, first)", None),
        (f"{SPLIT.replace('(v, d)', '(d, v)')} so = Concat<axis = 1>(k, l)", None),
        ("u = Slice(s, second, far, second)  so = Concat<axis = 2>(u, c)", None),
        ("so = Concat<axis = 2>(c, c)", None),
    ],
)
def test_joins(text: str, joins: list[str] | None) -> None:
    g = graph(text)
    state, (value,) = g.inputs[0], g.outputs
    part = grown(parts_of(state, (2, 3, "P", 4), g), state, value)
    assert (None if part is None else [node.outputs[0].name for node in part.joins]) == joins
    if part is not None:
        assert part.growing == 2
        assert part.in_front == (text is TURNED)
        assert (part.moved is not None) == ("order" in text)
