from __future__ import annotations

from ostinato.graph.loop_form import origin, read_loop
from ostinato.model.graphs import is_standard, maker_of, nodes_of
from ostinato.model.load import load_model
from tests.golden import parse

TEXT = """
    g (int64 n, bool go, float[2] x) => (float[2] y) {
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            d = Identity (c)
            e = Identity (s)
            t = Neg (e)
        }>
    }
"""


def test_nodes_of_a_model_are_those_of_its_bodies_too() -> None:
    model = load_model(parse(TEXT))
    assert [node.op_type for node in nodes_of(model)] == ["Loop", "Identity", "Identity", "Neg"]
    assert [node.outputs[0].name for node in nodes_of(model, "Neg", "Loop")] == ["y", "t"]


def test_operators_of_other_domains_are_others() -> None:
    (node,) = nodes_of(load_model(parse(TEXT)), "Neg")
    assert maker_of(node.outputs[0], "Neg") is node
    assert maker_of(node.outputs[0], "Abs") is None
    assert maker_of(None, "Neg") is None
    node.domain = "mine"
    assert not is_standard(node, "Neg")
    assert maker_of(node.outputs[0], "Neg") is None


def test_copies_are_followed_to_what_they_copy() -> None:
    (loop,) = nodes_of(load_model(parse(TEXT)), "Loop")
    form = read_loop(loop, 18)
    assert form is not None and form.head is not None
    assert origin(form.head.proceed) is form.head.going
    # The condition before the first step is an input, so it may be false.
    assert form.head.may_end_early
    assert origin(form.states[0].after) is form.states[0].after
    assert origin(None) is None
