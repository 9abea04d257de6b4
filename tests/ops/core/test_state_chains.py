from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

from ostinato.ops.core.state_chains import chain_of, moved_axis, places_to_move
from ostinato.sizes.dims import symbol

SHAPE = (symbol("N"), symbol("M"))


def body(text: str) -> ir.Graph:
    """The body of a loop with a state `s` of two axes."""
    model = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        b (int64 i, bool c, float[N, M] s, int64[N] o, float[N, 1] e)
            => (bool co, float[N, P] so, float[N, Q] other) {{
            co = Identity(c)  {text}
        }}"""
    )
    return ir.from_proto(model).graph


@pytest.mark.parametrize(
    ("text", "in_front", "operators", "at_once"),
    [
        ("so = Concat<axis = 1>(s, e)  other = Neg(s)", False, ["Concat"], []),
        ("so = Concat<axis = 1>(e, s)  other = Neg(s)", False, [], []),
        ("so = Concat<axis = 1>(e, s)  other = Neg(s)", True, ["Concat"], []),
        ("so = Tanh(s)  other = Neg(e)", False, [], []),
        ("so = Gather(s, o)  other = Neg(e)", False, ["Gather"], [True]),
        ("so = Gather(s, o)  other = Neg(s)", False, ["Gather"], [False]),
        ("so = Gather(s, o)  other = Neg(so)", False, ["Gather"], [True]),
        ("k = Gather(s, o)  so = Neg(k)  other = Neg(e)", False, [], []),
        (
            "k = Gather(s, o)  so = Concat<axis = 1>(k, e)  other = Neg(s)",
            False,
            ["Gather", "Concat"],
            [],
        ),
        (
            "p = Concat<axis = 1>(s, e)  so = Gather(p, o)  other = Neg(p)",
            False,
            ["Concat", "Gather"],
            [False],
        ),
    ],
)
def test_chains(text: str, in_front: bool, operators: list[str], at_once: list[bool]) -> None:
    graph = body(text)
    chain = chain_of(graph, 0, in_front, SHAPE)
    assert [node.op_type for node in chain.nodes] == operators
    assert [now for _, now in places_to_move(graph, 0, chain.nodes)] == at_once
    assert moved_axis(graph, 0, SHAPE) == (0 if at_once else None)
