"""Sums over copies, with sizes that are known and sizes that a run tells."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from ostinato.autodiff.arithmetic import Arithmetic, Term
from ostinato.autodiff.unbroadcast import sum_repeats, unbroadcast
from ostinato.graph.writer import Operand, Writer
from ostinato.model.names import Names


def _run(x: np.ndarray, write) -> np.ndarray:
    """What nodes that `write(term, sizes of)` writes make of x."""
    given = ir.Value(
        name="x", type=ir.TensorType(ir.DataType.DOUBLE), shape=ir.Shape([None] * x.ndim)
    )
    few = ir.Value(name="few", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([None]))
    graph = ir.Graph([given, few], [], nodes=[], name="g", opset_imports={"": 20})
    model = ir.Model(graph, ir_version=10)
    writer = Writer(graph, Names(model), 20, ir.DataType.DOUBLE, "t")
    term, sizes = write(Term(Arithmetic(writer), given), few)
    result = term.value
    graph.extend(writer.nodes)
    graph.outputs.append(result)
    proto = ir.to_proto(model)
    return ReferenceEvaluator(proto).run([result.name], {"x": x, "few": np.array(sizes)})[0]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("small", [(3, 4), (1, 4), (4,), (1,), (), (2, 1, 1)])
def test_the_gradient_of_copies_is_their_sum(small: tuple[int, ...], known: bool) -> None:
    x = np.random.default_rng(0).integers(0, 9, (2, 3, 4)).astype(float)
    extra = x.ndim - len(small)
    repeated = (*range(extra), *(i + extra for i, n in enumerate(small) if n == 1))
    expected = x.sum(axis=repeated, keepdims=True).reshape(small)

    def write(term: Term, few: ir.Value) -> tuple[Term, list[int]]:
        dims = small if known else (None,) * len(small)
        sizes: Operand = np.array(small, np.int64) if known else few
        return unbroadcast(term, x.shape, dims, lambda: sizes), list(small)

    got = _run(x, write)
    assert got.shape == small and np.array_equal(got, expected)


@pytest.mark.parametrize("each", [True, False])
def test_copies_of_the_axis_or_of_each_element(each: bool) -> None:
    base = np.arange(6.0).reshape(2, 3)
    x = base.repeat(2, axis=1) if each else np.tile(base, (1, 2))
    got = _run(
        x,
        lambda term, few: (
            sum_repeats(term, 2, np.array([1, 2]), np.array([2, 3]), each),
            [0],
        ),
    )
    assert np.array_equal(got, 2 * base)


def test_integers_are_computed_at_once_where_all_are_known() -> None:
    ops = Arithmetic(Writer(ir.Graph([], [], nodes=[]), None, 20, ir.DataType.FLOAT, "t"))  # type: ignore[arg-type]
    assert ops.integers("Div", np.array([-7]), np.array([2])).tolist() == [-3]
    assert ops.integers("Max", np.array([1, 5]), np.array([4])).tolist() == [4, 5]
    assert not ops.writer.nodes
