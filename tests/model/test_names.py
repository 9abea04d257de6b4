from __future__ import annotations

from ostinato.model.graphs import graphs, subgraphs
from ostinato.model.load import load_model
from ostinato.model.names import Names
from tests.golden import parse

NESTED = """
    g (bool c, float[N] x) => (float[N] y) <float[1] w = {1}> {
        y = If (c) <
            then_branch = a () => (float[N] p) {
                p = If (c) <
                    then_branch = d () => (float[N] r) { r = Neg(x) },
                    else_branch = e () => (float[N] s) { s = Abs(x) }>
            },
            else_branch = b () => (float[N] q) { q = Relu(x) }>
    }
    """


def test_graphs_come_before_the_graphs_nested_in_them():
    model = load_model(parse(NESTED))
    assert [graph.name for graph in graphs(model)] == ["g", "a", "b", "d", "e"]
    assert [graph.name for graph in subgraphs(next(iter(model.graph)))] == ["a", "b"]


def test_fresh_names_avoid_all_scopes_and_each_other():
    names = Names(load_model(parse(NESTED)))
    assert [names.fresh(name) for name in "cxwyprsq"] == [f"{name}_1" for name in "cxwyprsq"]
    assert [names.fresh("new"), names.fresh("new"), names.fresh("x")] == ["new", "new_1", "x_2"]
