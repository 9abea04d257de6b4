from __future__ import annotations

import pytest

from ostinato.errors import UnsupportedError
from ostinato.model.load import load_model
from ostinato.passes.normalise.inline_functions import inline_functions
from tests.golden import check, parse

HEADER = '<ir_version: 8, opset_import: ["": 17, "local": 1]>\n'


def test_two_calls_of_one_function():
    check(
        inline_functions,
        HEADER
        + """
        g (float[N] x) => (float[N] y) {
            a = local.twice(x)
            y = local.twice(a)
        }
        <domain: "local", opset_import: ["": 17]>
        twice (v) => (w) { t = Exp(v)  w = Add(t, t) }
        """,
        """
        g (float[N] x) => (float[N] y) {
            t = Exp(x)
            a = Add(t, t)
            t_2 = Exp(a)
            y = Add(t_2, t_2)
        }
        """,
        count=2,
    )


def test_function_calls_function_with_attribute():
    check(
        inline_functions,
        HEADER
        + """
        g (float[N] x) => (float[N] y) { y = local.outer <slope = 0.5> (x) }
        <domain: "local", opset_import: ["": 17]>
        inner <slope> (v) => (w) { w = LeakyRelu <alpha: float = @slope> (v) }
        <domain: "local", opset_import: ["": 17, "local": 1]>
        outer <slope> (v) => (w) { w = local.inner <slope: float = @slope> (v) }
        """,
        "g (float[N] x) => (float[N] y) { y = LeakyRelu <alpha = 0.5> (x) }",
        count=1,
        evaluate="onnxruntime",
    )


def test_function_that_returns_its_input():
    check(
        inline_functions,
        HEADER
        + """
        g (float[N] x) => (float[N] y, float[N] z) { y, z = local.same(x) }
        <domain: "local", opset_import: ["": 17]>
        same (v) => (v, w) { w = Exp(v) }
        """,
        """
        g (float[N] x) => (float[N] y, float[N] z) {
            z = Exp(x)
            y = Identity(x)
        }
        """,
        count=1,
    )


def test_call_inside_a_branch_and_names_that_clash():
    check(
        inline_functions,
        HEADER
        + """
        g (bool c, float[N] x) => (float[N] y) {
            t = Neg(x)
            y = If (c) <
                then_branch = a () => (float[N] p) { p = local.twice(t) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        <domain: "local", opset_import: ["": 17]>
        twice (v) => (w) { t = Exp(v)  w = Add(t, t) }
        """,
        """
        g (bool c, float[N] x) => (float[N] y) {
            t = Neg(x)
            y = If (c) <
                then_branch = a () => (float[N] p) { t_2 = Exp(t)  p = Add(t_2, t_2) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """,
        count=1,
    )


@pytest.mark.parametrize("other", [14, 18])
def test_functions_of_another_opset_whose_nodes_mean_the_same(other):
    check(
        inline_functions,
        HEADER
        + f"""
        g (float[N] x) => (float[N] y) {{ z = Neg(x)  y = local.a(z) }}
        <domain: "local", opset_import: ["": {other}]>
        a (v) => (w) {{ w = Exp(v) }}
        """,
        "g (float[N] x) => (float[N] y) { z = Neg(x)  y = Exp(z) }",
        count=1,
    )


def test_functions_with_a_node_of_another_version_are_refused():
    """The checker of the onnx package looks at no nodes in branches."""
    model = load_model(
        parse(
            HEADER.replace("17", "18")
            + """
            g (float[N, 2] x, bool c) => (float[N, 2] y) { y = local.a(x, c) }
            <domain: "local", opset_import: ["": 17]>
            a (v, c) => (w) {
                w = If (c) <
                    then_branch = p () => (float[N, 2] a) { a = ReduceMax<axes = [0]>(v) },
                    else_branch = q () => (float[N, 2] b) { b = Neg(v) }
                >
            }
            """
        )
    )
    with pytest.raises(UnsupportedError, match=r"ReduceMax.*opset 17"):
        inline_functions(model)
