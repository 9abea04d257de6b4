from __future__ import annotations

import itertools

import onnx
import pytest

from ostinato.model.order import sort_nodes
from tests.golden import parse


def names(nodes: list[onnx.NodeProto]) -> list[str]:
    return [node.output[0] for node in nodes]


def shuffled(source: str, order: list[int]) -> onnx.ModelProto:
    model = parse(source)
    nodes = list(model.graph.node)
    copies = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return model


DIAMOND = """
    g (float[N] x) => (float[N] d) { a = Relu(x)  b = Neg(a)  c = Exp(a)  d = Add(b, c) }"""


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_every_order_of_a_diamond(order: tuple[int, ...]) -> None:
    graph = shuffled(DIAMOND, list(order)).graph
    sort_nodes(graph.node)
    assert names(graph.node) in (["a", "b", "c", "d"], ["a", "c", "b", "d"])


def test_sorted_nodes_stay_as_they_are() -> None:
    nodes = parse(DIAMOND).graph.node
    first = nodes[0]
    sort_nodes(nodes)
    assert nodes[0] is first


CAPTURE = """
    g (float[N] x, bool c) => (float[N] y) {
        u = Relu(x)
        y = If (c) <
            then_branch = t () => (float[N] p) {
                p = If (c) <
                    then_branch = tt () => (float[N] q) { q = Exp(u) },
                    else_branch = te () => (float[N] r) { r = Neg(x) }
                >
            },
            else_branch = e () => (float[N] u2) { u2 = Identity(x) }
        >
    }"""


def test_what_a_nested_body_reads_comes_first() -> None:
    graph = shuffled(CAPTURE, [1, 0]).graph
    sort_nodes(graph.node)
    assert names(graph.node) == ["u", "y"]


def test_a_name_that_a_body_defines_itself_is_no_reason() -> None:
    model = shuffled(CAPTURE.replace("Exp(u)", "Exp(x)"), [1, 0])
    body = model.graph.node[0].attribute[0].g
    body.node.insert(0, onnx.helper.make_node("Relu", ["x"], ["u"]))
    sort_nodes(model.graph.node)
    assert names(model.graph.node) == ["y", "u"]


def test_nodes_of_a_cycle_come_last() -> None:
    nodes = [
        onnx.helper.make_node("Add", ["x", "q"], ["p"]),
        onnx.helper.make_node("Relu", ["p"], ["q"]),
        onnx.helper.make_node("Neg", ["r"], ["s"]),
        onnx.helper.make_node("Relu", ["x"], ["r"]),
    ]
    graph = onnx.GraphProto(node=nodes)
    sort_nodes(graph.node)
    assert names(graph.node) == ["r", "s", "p", "q"]


def test_a_long_chain_in_reverse_takes_no_recursion() -> None:
    make = onnx.helper.make_node
    chain = [make("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(5000)]
    graph = onnx.GraphProto(node=chain[::-1])
    sort_nodes(graph.node)
    assert names(graph.node) == [f"v{i + 1}" for i in range(5000)]
