"""Axis maps against what the reference kernels of the onnx package compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from ostinato.graph.axis_maps import Along, AxisMap, Form
from ostinato.graph.facts import FACTS, facts_of
from tests.graph.test_facts import Arrays, each_case, run, same

ALL, WINDOW = Along.ALL, Along.WINDOW
# The reference kernels visit places of windows one by one: of larger operands only the first ones.
MOST_ELEMENTS, MOST_PLACES = 10_000, 12
# What their operands say of a place (a number to search or pick by) must stay in range.
MAPPED = [name for name, facts in FACTS.items() if facts.axes and not facts.random]


def map_of(
    model: onnx.ModelProto, inputs: Sequence[np.ndarray | None], known: bool = True
) -> AxisMap | None:
    (node,) = ir.from_proto(model).graph
    form = Form(
        node,
        [None if x is None else x.shape for x in inputs],
        lambda i: inputs[i] if known else None,
        model.opset_import[0].version,
    )
    rule = facts_of(node.op_type).axes
    assert rule is not None
    return rule(form)


def cropped(inputs: Arrays, found: AxisMap) -> Arrays:
    """Large operands with a few places along each axis of windows."""
    return [
        x[tuple(slice(MOST_PLACES if place is WINDOW else None) for place in row)]
        if row and x.size > MOST_ELEMENTS
        else x
        for x, row in zip(inputs, found, strict=True)
    ]


def shuffled(inputs: Arrays, found: AxisMap, axis: int, order: np.ndarray) -> Arrays:
    """The operands with the slices along `axis` of the results in another order."""
    return [
        np.take(x, order, row.index(axis))
        if row and axis in row and x.shape[row.index(axis)] > 1
        else x
        for x, row in zip(inputs, found, strict=True)
    ]


@pytest.mark.parametrize("op_type", MAPPED)
def test_results_are_shuffled_like_operands(op_type: str) -> None:
    """Along an axis of the results, slices depend on their own slices of the operands alone.

    Shuffled operands have shuffled results, and no slice changes with those of other places.
    """
    tried = 0
    for case, inputs, outputs in each_case(op_type):
        found = map_of(case.model, inputs)
        if found is None:
            continue
        assert len(found) == len(inputs), case.name
        for row, x in zip(found, inputs, strict=True):
            assert row is None or len(row) == x.ndim, case.name
        few = cropped(inputs, found)
        if any(a is not b for a, b in zip(few, inputs, strict=True)):
            inputs, outputs = few, run(case, few)
        for axis in {place for row in found for place in row or () if isinstance(place, int)}:
            sizes = {
                x.shape[row.index(axis)]
                for x, row in zip(inputs, found, strict=True)
                if row and axis in row
            } - {1}
            # Gathering operators may read the first part of an operand only.
            if len(sizes) != 1:
                continue
            order = np.roll(np.arange(sizes.pop()), 1)
            results = run(case, shuffled(inputs, found, axis, order))
            for result, output in zip(results, outputs, strict=True):
                if axis < output.ndim and output.shape[axis] == len(order):
                    tried += 1
                    assert close(result, np.take(output, order, axis)), (case.name, axis)
            one = order.copy()
            one[0] = 0
            results = run(case, shuffled(inputs, found, axis, one))
            for result, output in zip(results, outputs, strict=True):
                if axis < output.ndim and output.shape[axis] == len(order):
                    assert close(result, np.take(output, one, axis)), (case.name, axis)
    if not tried:
        pytest.skip("the suite has no case of it with an axis that is kept")


def close(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal; products in another order of rows may be summed in another order."""
    if left.dtype.kind != "f":
        return same(left, right)
    return np.allclose(left, right, 1e-5, 1e-6, equal_nan=True)


# node: (sizes or elements of the operands x, y, z; map)
EXAMPLES: dict[str, tuple[list[Any], AxisMap | None]] = {
    "Transpose <perm=[2, 0, 1]> (x)": ([(2, 3, 4)], ((1, 2, 0),)),
    "Transpose (x)": ([(2, 3)], ((1, 0),)),
    "Add (x, y)": ([(2, 3, 4), (3, 1)], ((0, 1, 2), (1, 2))),
    "Softmax (x)": ([(2, 3, 4)], ((0, 1, ALL),)),
    "ReduceSum <keepdims=0> (x, y)": ([(2, 3, 4), [1]], ((0, ALL, 1), None)),
    "ReduceSum <keepdims=1> (x, y)": ([(2, 3, 4), [-3]], ((ALL, 1, 2), None)),
    "ReduceSum (x)": ([(2, 3)], ((ALL, ALL),)),
    "ReduceSum <noop_with_empty_axes=1> (x)": ([(2, 3)], ((0, 1),)),
    "Gather <axis=1> (x, y)": ([(2, 3, 4), [[0, 1]]], ((0, ALL, 3), (1, 2))),
    "GatherND <batch_dims=1> (x, y)": ([(2, 3, 4), [[[1]], [[2]]]], ((0, ALL, 2), (0, 1, ALL))),
    "Concat <axis=-1> (x, y)": ([(2, 3), (2, 4)], ((0, ALL), (0, ALL))),
    "Conv (x, y)": ([(2, 3, 9), (5, 3, 2)], ((0, ALL, WINDOW), (1, ALL, ALL))),
    "Conv <group=2> (x, y, z)": (
        [(2, 4, 9), (6, 2, 2), (6,)],
        ((0, ALL, WINDOW), (ALL,) * 3, (ALL,)),
    ),
    "MatMulInteger (x, y, z, w)": (
        [(7, 2, 3), (3, 4), (7, 2, 1), (4,)],
        ((0, 1, ALL), (ALL, 2), (0, 1, ALL), (2,)),
    ),
    "MatMul (x, y)": ([(7, 2, 3), (3, 4)], ((0, 1, ALL), (ALL, 2))),
    "MatMul (x, y) ": ([(3,), (5, 3, 4)], ((ALL,), (0, ALL, 1))),
    "MatMul (x, y)  ": ([(5, 2, 3), (3,)], ((0, 1, ALL), (ALL,))),
    "Gemm <transA=1> (x, y, z)": ([(3, 2), (3, 4), (4,)], ((ALL, 0), (ALL, 1), (1,))),
    'Einsum <equation="bij,bjk->bik"> (x, y)': ([(2, 3, 4), (2, 4, 5)], ((0, 1, ALL), (0, ALL, 2))),
    'Einsum <equation="ii->i"> (x)': ([(3, 3)], ((ALL, ALL),)),
    'Einsum <equation="ij,jj->ij"> (x, y)': ([(2, 3), (3, 3)], ((0, ALL), (ALL, ALL))),
    "Unsqueeze (x, y)": ([(2, 3), [0, -1]], ((1, 2), None)),
    "Squeeze (x, y)": ([(1, 3, 1), [0]], ((ALL, 0, 1), None)),
    "Squeeze (x)": ([(1, 3, 1)], None),
    "Flatten <axis=2> (x)": ([(2, 3, 4)], ((ALL, ALL, 1),)),
    "Tile (x, y)": ([(3, 2), [1, 2]], ((0, ALL), None)),
    "LayerNormalization <axis=1> (x, y)": ([(2, 3, 4), (3, 4)], ((0, ALL, ALL), (ALL, ALL))),
    "QuantizeLinear <axis=0> (x, y)": ([(2, 3), (2,)], ((0, 1), (0,))),
    "DequantizeLinear <axis=0, block_size=2> (x, y)": ([(6,), (3,)], ((ALL,), (ALL,))),
    "Slice (x, y, z)": ([(2, 3), [1], [2]], ((ALL, 1), None, None)),
    "Slice (x, y, z, w)": ([(2, 3), [0], [2], [-1]], ((0, ALL), None, None, None)),
    "Pad (x, y)": ([(2, 3, 4), [0, 1, 0, 0, 0, 0]], ((0, ALL, 2), None)),
    "Resize (x, , y)": ([(2, 3), None, [1.0, 2.0]], ((0, ALL), None, None)),
    "STFT (x, y)": ([(2, 9, 1), 4], ((0, WINDOW, ALL), None)),
    "GRU (x, y, y)": ([(5, 2, 3), (1, 9, 3), (1, 9, 3)], ((ALL, 2, ALL), (ALL,) * 3, (ALL,) * 3)),
    "QLinearMatMul (x, y, y, x, z, y, w, y)": (
        [(5, 3), (1,), (5,), (3, 4), (4,), (1,), (5, 1), ()],
        ((0, ALL), (ALL,), (0,), (ALL, 1), (1,), (ALL,), (0, ALL), ()),
    ),
    "ScatterND (x, y, z)": ([(4, 2, 3), (5, 1), (5, 2, 3)], ((ALL, 1, 2), (ALL,) * 2, (ALL, 1, 2))),
    "Compress <axis=1> (x, y)": ([(2, 3), (3,)], ((0, ALL), None)),
    "OneHot <axis=0> (x, y, z)": ([(2, 3), [4], [0, 1]], ((1, 2), None, None)),
}


def operand(given: Any) -> np.ndarray | None:
    if given is None:
        return None
    return np.ones(given, np.float32) if isinstance(given, tuple) else np.array(given)


@pytest.mark.parametrize("node", EXAMPLES)
def test_examples(node: str) -> None:
    operands, expected = EXAMPLES[node]
    text = f'<ir_version: 10, opset_import: ["" : 20]> g () => (float[A] r) {{ r = {node} }}'
    assert map_of(onnx.parser.parse_model(text), [operand(x) for x in operands]) == expected


@pytest.mark.parametrize("node", ["ReduceSum (x, y)", "Tile (x, y)", "Unsqueeze (x, y)"])
def test_a_map_that_a_run_decides_is_not_known(node: str) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g () => (float[A] r) {{ r = {node} }}'
    inputs = [operand((2, 3)), operand([1, 1])]
    assert map_of(onnx.parser.parse_model(text), inputs, known=False) is None
