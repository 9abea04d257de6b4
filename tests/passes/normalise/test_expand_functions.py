from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.backend.test.case.test_case import TestCase

from ostinato.model.graphs import graphs
from ostinato.model.load import load_model
from ostinato.ops import LOWERINGS
from ostinato.optimization import optimize
from ostinato.passes.normalise.expand_functions import EXPANDED, expand_functions
from tests.golden import check, parse, run_reference
from tests.node_cases import node_cases
from tests.oracle import evaluator


def test_no_operator_is_both_lowered_and_expanded():
    assert not {name for domain, name in EXPANDED if domain == ""} & LOWERINGS.keys()


def test_definition_with_attribute():
    check(
        expand_functions,
        "g (float[2, 3] a, float[2, 3] b) => (float[2, 3] y) { y = SwiGLU <alpha = 0.5> (a, b) }",
        """
        g (float[2, 3] a, float[2, 3] b) => (float[2, 3] y) {
            SwishGate = Swish <alpha = 0.5> (a)
            y = Mul(SwishGate, b)
        }
        """,
        opset=28,
        count=1,
    )


def test_definition_in_a_body_with_default_attribute():
    check(
        expand_functions,
        """
        g (bool c, float[2] a, float[2] b) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = SwiGLU(a, b) },
                else_branch = e () => (float[2] q) { q = Add(a, b) }>
        }
        """,
        """
        g (bool c, float[2] a, float[2] b) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] p) { s = Swish <alpha = 1.0> (a)  p = Mul(s, b) },
                else_branch = e () => (float[2] q) { q = Add(a, b) }>
        }
        """.replace("s =", "SwishGate =").replace("Mul(s", "Mul(SwishGate"),
        opset=28,
        count=1,
    )


# Function bodies are written for the oldest version of the operator; a later opset must do too.
@pytest.mark.parametrize("opset", [12, 13, 17, 18, 22, 28])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_definition_of_another_opset(opset: int, reduction: str):
    attributes = f'reduction = "{reduction}", ignore_index = 1'
    shape = "[N, D]" if reduction == "none" else ""
    source = parse(
        f"""
        g (float[N, 3, D] x, int64[N, D] t, float[3] w) => (float{shape} y, float[N, 3, D] p) {{
            y, p = SoftmaxCrossEntropyLoss <{attributes}> (x, t, w)
        }}
        """,
        opset,
    )
    model = load_model(source)
    assert expand_functions(model) == 1
    assert expand_functions(model) == 1  # the loss is made of another loss
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    assert not {n.op_type for graph in graphs(model) for n in graph} & {o for _, o in EXPANDED}
    random = np.random.default_rng(0)
    feeds = {
        "x": random.standard_normal((2, 3, 5)).astype(np.float32),
        "t": random.integers(0, 3, (2, 5)),
        "w": np.array([0.5, 2, 1], np.float32),
    }
    results = zip(run_reference(after, feeds), run_reference(source, feeds), strict=True)
    for got, expected in results:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def cases() -> list[TestCase]:
    names = {name for _, name in EXPANDED}
    models = {case.name: case for case in node_cases() if case.model is not None}
    return [c for c in models.values() if {n.op_type for n in c.model.graph.node} & names]


def test_every_node_test_of_onnx_keeps_its_results():
    """Valid standard ONNX that onnx.reference runs, with the results that the suite expects."""
    failed = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases():
            result = optimize(case.model)
            onnx.checker.check_model(result, full_check=True)
            inputs, outputs = case.data_sets[0]
            names = [value.name for value in case.model.graph.input]
            got = evaluator.run(result, dict(zip(names, inputs, strict=True)))
            try:
                for a, b in zip(arrays(got), arrays(outputs), strict=True):
                    assert a.dtype == b.dtype
                    rtol = 1e-3 if a.dtype == np.float32 else 2**-6
                    wide = np.float64
                    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol, atol=1e-6)
            except AssertionError as error:
                failed[case.name] = str(error)
    assert not failed


def arrays(values: list) -> list[np.ndarray]:
    """The tensors among values and in sequences."""
    return [a for v in values for a in (v if isinstance(v, list) else [v])]


def test_nothing_to_expand():
    source = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    assert expand_functions(load_model(source)) == 0
