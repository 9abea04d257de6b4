from __future__ import annotations

import onnx

import ostinato
from ostinato.graph.random import NUMBER
from ostinato.model.load import load_model
from ostinato.passes.normalise.number_random import number_random

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
MODEL = f"""{HEADER} g (float[3] x, bool c) => (float[3] y, float[3] z) {{
    a = RandomNormalLike(x)
    y = If (c) <
        then_branch = t () => (float[3] u) {{ u = RandomUniformLike(a) }},
        else_branch = e () => (float[3] v) {{ v = Identity(a) }}
    >
    z = Bernoulli(x)
}}"""


def numbers(proto: onnx.ModelProto) -> dict[str, str]:
    """By operator, from the main graph and the branches."""
    nodes = list(proto.graph.node)
    for node in nodes:
        nodes += [n for a in node.attribute if a.HasField("g") for n in a.g.node]
    found = {n.op_type: {p.key: p.value for p in n.metadata_props} for n in nodes}
    return {op: props[NUMBER] for op, props in found.items() if NUMBER in props}


def test_nodes_are_numbered_from_the_outside_in() -> None:
    made = ostinato.optimize(onnx.parser.parse_model(MODEL))
    expected = {"RandomNormalLike": "1", "Bernoulli": "2", "RandomUniformLike": "3"}
    assert numbers(made) == expected
    onnx.checker.check_model(made)


def test_numbers_that_are_there_stay_and_none_occurs_twice() -> None:
    model = load_model(onnx.parser.parse_model(MODEL))
    first, _, last = model.graph
    first.metadata_props[NUMBER] = last.metadata_props[NUMBER] = "2"
    assert number_random(model) == 2
    assert [first.metadata_props[NUMBER], last.metadata_props[NUMBER]] == ["2", "1"]
    assert number_random(model) == 0
