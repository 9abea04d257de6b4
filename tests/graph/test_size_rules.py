"""Size rules against the shapes of what the reference kernels of the onnx package compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from ostinato.graph.axis_maps import Form
from ostinato.graph.facts import FACTS, facts_of
from ostinato.graph.size_rules import Sizes
from ostinato.sizes.dims import floordiv, symbol
from tests.graph.test_facts import Arrays, each_case

RULED = [name for name, facts in FACTS.items() if facts.sizes]


def _sizes(
    model: onnx.ModelProto, inputs: Arrays, dims: Sequence[Any], known: bool
) -> Sequence[Sizes | None] | None:
    (node,) = ir.from_proto(model).graph
    version = next(opset.version for opset in model.opset_import if not opset.domain)
    form = Form(node, dims, lambda i: inputs[i] if known else None, version)
    rule = facts_of(node.op_type).sizes
    assert rule is not None
    return rule(form)


@pytest.mark.parametrize("op_type", RULED)
def test_results_have_the_sizes_of_the_rule(op_type: str) -> None:
    told = 0
    for case, inputs, outputs in each_case(op_type):
        names = case.model.graph.node[0].output
        named = [index for index, name in enumerate(names) if name]
        shapes = [x.shape for x in inputs]
        # Without constants, and without sizes, less is said, and nothing else.
        unknown = [(None,) * len(shape) for shape in shapes]
        for dims, known in ((shapes, True), (shapes, False), (unknown, True)):
            found = _sizes(case.model, inputs, dims, known) or ()
            for index, output in zip(named, outputs, strict=True):
                sizes = found[index] if index < len(found) else None
                if sizes is not None:
                    told += known
                    assert len(sizes) == output.ndim, case.name
                    pairs = list(zip(sizes, output.shape, strict=True))
                    assert all(size in (None, n) for size, n in pairs), (case.name, sizes)
    assert told


A, B, T = symbol("a"), symbol("b"), symbol("t")
# node: (sizes or elements of the operands x and y; sizes of the result)
EXAMPLES: dict[str, tuple[list[Any], Any]] = {
    "Transpose <perm=[2, 0, 1]> (x)": ([("a", "b", 4)], (4, A, B)),
    "Add (x, y)": ([("a", 1), ("b",)], (A, B)),
    "Add (x, y) ": ([("a", "b"), ("b",)], (A, B)),
    "Add (x, y)  ": ([("a",), ("b",)], (None,)),
    "ReduceSum (x, y)": ([("a", "b"), np.array([1])], (A, 1)),
    "ReduceSum <keepdims=0> (x, y)": ([("a", "b"), np.array([0])], (B,)),
    "Concat <axis=0> (x, y)": ([("a", 3), ("b", 3)], (A + B, 3)),
    "Conv <strides=[2]> (x, y)": ([("a", 3, "t"), (5, 3, 4)], (A, 5, floordiv(T - 4, 2) + 1)),
    "DFT <onesided=1> (x, , y)": ([("a", "t", 1), None, np.array(1)], (A, floordiv(T, 2) + 1, 2)),
    "DFT (x, n)": ([("a", "t", 2), np.array(5)], (A, 5, 2)),
    "Pad (x, y)": ([("t",), np.array([2, -1])], (T + 1,)),
    "Flatten (x)": ([("a", "b", 3)], (A, 3 * B)),
    "MatMul (x, y)": ([("a", "b"), ("b", 7)], (A, 7)),
    "Unsqueeze (x, y)": ([("a",), np.array([0])], (1, A)),
    "Reshape (x, y)": ([("a", 6), np.array([0, 2, -1])], (A, 2, 3)),
}


@pytest.mark.parametrize("node", EXAMPLES)
def test_sizes_of_a_run_are_polynomials(node: str) -> None:
    operands, expected = EXAMPLES[node]
    text = f'<ir_version: 10, opset_import: ["" : 20]> g () => (float[A] r) {{ r = {node} }}'
    dims = [x.shape if isinstance(x, np.ndarray) else x for x in operands]
    assert _sizes(onnx.parser.parse_model(text), operands, dims, known=True) == [expected]


@pytest.mark.parametrize(
    ("node", "dims", "expected"),
    [
        ("Reshape (x, y)", [("a", 6), (3,)], [(None, None, None)]),
        ("ConstantOfShape (x)", [(2,)], [(None, None)]),
        ("Reshape (x, y)", [("a", 6), ("n",)], None),
        ("DFT (x, n)", [("a", "t", 1), ()], [(A, None, 2)]),
        ("DFT (x, n, y)", [("a", "t", 1), (), ()], [(None, None, 2)]),
        ("ConstantOfShape (x)", [(10**9,)], None),
    ],
)
def test_as_many_axes_as_sizes_are_asked_for(node: str, dims: list[Any], expected: Any) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g () => (float[A] r) {{ r = {node} }}'
    assert _sizes(onnx.parser.parse_model(text), [], dims, known=False) == expected
