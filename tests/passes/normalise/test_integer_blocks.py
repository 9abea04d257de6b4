"""Products with weights that are dequantised in blocks: which rows become bytes, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ostinato import InferenceSession
from ostinato.model.load import load_model
from ostinato.passes.normalise.integer_blocks import integer_blocks, possible_integer_blocks

RANGES = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "INT8": 8, "UINT8": 8}
TERMS, COLUMNS = 64, 9


def in_blocks(
    kind: str = "INT4",
    block: int = 32,
    *,
    op: str = "MatMul",
    points: bool = False,
    turned: bool = False,
    rows: tuple[int | str, ...] = (3,),
    **attributes: Any,
) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """A product with dequantised weights; these `[blocks, block, columns]`, and their scales."""
    random, bits = np.random.default_rng(RANGES[kind]), RANGES[kind]
    low = 0 if kind.startswith("U") else -(1 << bits - 1)
    q = random.integers(low, low + (1 << bits), (TERMS, COLUMNS))
    scale = random.uniform(0.01, 0.1, (TERMS // block, COLUMNS)).astype(np.float32)
    zero = np.zeros(scale.shape, np.int64)
    if points:
        zero = random.integers(low, low + (1 << bits), scale.shape)

    def stored(name: str, values: np.ndarray) -> onnx.TensorProto:
        values = values.T if turned else values
        return helper.make_tensor(name, getattr(TensorProto, kind), values.shape, values.flatten())

    constants = [stored("q", q), numpy_helper.from_array(scale.T if turned else scale, "s")]
    constants += [stored("z", zero)] if points else []
    bias = ["c"] if op == "Gemm" else []
    constants += (
        [numpy_helper.from_array(np.arange(COLUMNS, dtype=np.float32), "c")] if bias else []
    )
    operands = ["q", "s", *(["z"] if points else [])]
    wide = helper.make_node("DequantizeLinear", operands, ["w"], axis=int(turned), block_size=block)
    product = helper.make_node(op, ["x", "w", *bias], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*rows, TERMS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([wide, product], "g", [x], [y], constants)
    opset = 25 if bits == 2 else 21
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    whole = (q.reshape(-1, block, COLUMNS) - zero[:, None]).astype(np.int64)
    return model, whole, scale


def product_of(x: np.ndarray, weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Blocks of rows are rounded to a 127th of their largest magnitude; sums in float64."""
    blocks, block, _ = weights.shape
    parts = x.reshape(*x.shape[:-1], blocks, block)
    largest = np.abs(parts).max(-1)
    rounded = np.rint(parts * (np.float32(127) / largest)[..., None]).astype(np.int64)
    sums = np.einsum("...kb,kbn->...kn", rounded, weights)
    each = (largest / np.float32(127)).astype(np.float64)
    return np.asarray(np.einsum("...kn,...k,kn->...n", sums, each, scale))


def given(*rows: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((*rows, TERMS)).astype(np.float32)


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("kind", RANGES)
def test_rows_become_bytes(kind: str, points: bool) -> None:
    model, weights, scale = in_blocks(kind, points=points)
    session = InferenceSession(model, cache_dir=None, integer_products=True, fallback=False)
    assert session.report().passes["integer_blocks"] == 1
    x = given(3)
    want = product_of(x, weights, scale)
    (got,) = session.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_a_zero_point_may_be_left_out_by_name() -> None:
    model, _, _ = in_blocks()
    model.graph.node[0].input.append("")
    assert integer_blocks(load_model(model)) == 1


@pytest.mark.parametrize("turned", [False, True])
def test_gemm_has_factors_and_a_bias(turned: bool) -> None:
    about = {"op": "Gemm", "turned": turned, "transB": int(turned), "alpha": 0.5, "beta": 3.0}
    model, weights, scale = in_blocks(**about)
    x = given(3)
    want = 0.5 * product_of(x, weights, scale) + 3 * np.arange(COLUMNS)
    (got,) = InferenceSession(model, cache_dir=None, integer_products=True).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_a_batch_of_any_size_has_the_bits_of_single_rows() -> None:
    model, _, _ = in_blocks(rows=("N", 2))
    session = InferenceSession(model, cache_dir=None, integer_products=True)
    x = given(5, 2)
    (whole,) = session.run(None, {"x": x})
    for number in range(5):
        (one,) = session.run(None, {"x": x[number : number + 1]})
        assert one.tobytes() == whole[number : number + 1].tobytes()


@pytest.mark.parametrize(
    "about",
    [
        {"block": 8},
        {"kind": "INT2", "block": 16},
        {"op": "Gemm", "transA": 1},
        {"op": "Gemm", "turned": True},
    ],
)
def test_other_products_stay(about: dict[str, Any]) -> None:
    """Where onnxruntime has no kernel, or blocks do not lie along the sums."""
    model, _, _ = in_blocks(**about)
    assert integer_blocks(load_model(model)) == 0


def test_it_is_advised_and_not_done_unasked() -> None:
    model, weights, scale = in_blocks()
    assert possible_integer_blocks(load_model(model)) == 1
    session = InferenceSession(model, cache_dir=None)
    report = session.report()
    assert "integer_blocks" not in report.passes and "integer_products=True" in report.advice[0]
    x = given(3)
    want = x.astype(np.float64) @ (weights * scale[:, None]).reshape(TERMS, COLUMNS)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5)
