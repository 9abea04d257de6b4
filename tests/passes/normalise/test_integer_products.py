"""Products of bytes in place of the floats that stand for them: when, and with which results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from ostinato import InferenceSession
from ostinato.model.load import load_model
from ostinato.passes.normalise.integer_products import MOST_TERMS, integer_products
from tests import witness
from tests.oracle import evaluator

OPSET = 21


class Model:
    """Collects nodes and constants; `y` is what the model returns."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def bytes(self, name: str, scale: Any, zero: Any, **attributes: Any) -> str:
        """What DequantizeLinear makes of a value."""
        operands = [name, self.constant(f"{name}_s", np.float32(scale))]
        if zero is not None:
            operands.append(self.constant(f"{name}_z", zero))
        self.nodes.append(
            helper.make_node("DequantizeLinear", operands, [f"{name}_f"], **attributes)
        )
        return f"{name}_f"

    def op(self, name: str, *operands: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(name, operands, ["y"], **attributes))

    def made(self, shape: tuple[int | str, ...], dtype: str = "uint8") -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        x = helper.make_tensor_value_info("x", kind, shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.constants)
        imports = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def some(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def scales(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.01, 0.1, shape).astype(np.float32)


def ops(model: onnx.ModelProto) -> list[str]:
    loaded = load_model(model)
    integer_products(loaded)
    return [node.op_type for node in loaded.graph]


def check(model: onnx.ModelProto, x: np.ndarray, op: str) -> np.ndarray:
    """Results are those of the document but for rounding, by sums that are exact."""
    assert op in ops(model)
    exact = evaluator.run(model, {"x": x})[0]
    session = InferenceSession(model, cache_dir=None, fallback=False, integer_products=True)
    (got,) = session.run(None, {"x": x})
    # One rounding of the product of scales, of the scaled sum, and of the sum with a bias.
    np.testing.assert_allclose(got, exact, rtol=3e-7, atol=3e-7 * np.abs(exact).max(initial=0))
    return np.asarray(got)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_products(data):
    dtypes = st.sampled_from(["uint8", "int8"])
    left, right = data.draw(dtypes), data.draw(dtypes)
    m, k, n = (data.draw(st.integers(0, 9)) for _ in range(3))
    per_column = data.draw(st.booleans())
    op = data.draw(st.sampled_from(["MatMul", "Gemm"]))
    flips = [op == "Gemm" and data.draw(st.booleans()) for _ in range(2)]
    own = (n,) if per_column else data.draw(st.sampled_from([(), (1,)]))
    # As onnxruntime writes it: an axis for one scale as well.
    axis = 0 if flips[1] else 1
    model = Model()
    a = model.bytes("x", 0.037, data.draw(st.sampled_from([None, some((), left, 2)])))
    weights = model.constant("w", some((n, k) if flips[1] else (k, n), right, 3))
    zero = data.draw(st.sampled_from([None, some(own, right, 4)]))
    b = model.bytes(weights, scales(own, 5), zero, axis=axis)
    shape = (k, m) if flips[0] else (m, k)
    about: dict[str, Any] = {}
    operands = [a, b]
    if op == "Gemm":
        about = {"transA": int(flips[0]), "transB": int(flips[1])}
        about |= {"alpha": data.draw(st.sampled_from([1.0, 0.5]))}
        about |= {"beta": data.draw(st.sampled_from([1.0, 0.0, 2.0]))}
        if data.draw(st.booleans()):
            operands.append(model.constant("c", scales((n,), 6)))
    model.op(op, *operands, **about)
    check(model.made(shape, left), some(shape, left, 7), "MatMulInteger")


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_convolutions(data):
    dtypes, few = st.sampled_from(["uint8", "int8"]), st.integers(1, 3)
    left, right, rank = data.draw(dtypes), data.draw(dtypes), data.draw(st.integers(1, 2))
    group, depth, filters = data.draw(few), data.draw(few), data.draw(few)
    kernel = [data.draw(few) for _ in range(rank)]
    about: dict[str, Any] = {
        "group": group,
        "strides": [data.draw(few) for _ in range(rank)],
        "dilations": [data.draw(st.integers(1, 2)) for _ in range(rank)],
    }
    if data.draw(st.booleans()):
        about["pads"] = [data.draw(st.integers(0, 2)) for _ in range(2 * rank)]
    else:
        about["auto_pad"] = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
        assume(max(about["dilations"]) == 1)
    size = [data.draw(st.integers(5, 8)) for _ in range(rank)]
    own = data.draw(st.sampled_from([(), (group * filters,)]))
    model = Model()
    x = model.bytes("x", 0.02, some((), left, 1))
    weights = model.constant("w", some((group * filters, depth, *kernel), right, 2))
    zero = data.draw(st.sampled_from([None, some(own, right, 3)]))
    operands = [x, model.bytes(weights, scales(own, 4), zero, axis=0)]
    if data.draw(st.booleans()):
        bias = model.constant("b", np.arange(-3, group * filters - 3, dtype=np.int32) * 1000)
        operands.append(model.bytes(bias, 0.02 * scales(own, 4), None, axis=0))
    model.op("Conv", *operands, **about)
    shape = (data.draw(st.integers(0, 2)), group * depth, *size)
    check(model.made(shape, left), some(shape, left, 5), "ConvInteger")


WEIGHTS = np.ones((8, 4), np.int8)


def product(right: Any = WEIGHTS, scale: Any = 0.1, **about: Any) -> Model:
    model = Model()
    a = model.bytes("x", 0.5, np.uint8(3))
    model.op("MatMul", a, model.bytes(model.constant("w", right), scale, None, **about))
    return model


def test_sums_that_could_leave_32_bits_stay_floats():
    long = np.ones((MOST_TERMS + 1, 1), np.int8)
    assert "MatMul" in ops(product(long).made((1, MOST_TERMS + 1)))
    assert "MatMul" not in ops(product(long[1:]).made((1, MOST_TERMS)))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (product(scale=np.ones(8, np.float32), axis=0), (2, 8)),
        (product(scale=np.ones((2, 4), np.float32), axis=0, block_size=4), (2, 8)),
        (product(np.ones((3, 8, 4), np.int8), scale=np.ones(4, np.float32), axis=2), (3, 2, 8)),
        (product(np.ones((8, 4), np.int16)), (2, 8)),
        (product(scale=np.inf), (2, 8)),
        (product(np.ones(8, np.int8)), (2, 8)),
    ],
)
def test_what_has_no_form_of_integers_stays(model, shape):
    assert "MatMul" in ops(model.made(shape))


def test_only_where_it_is_asked_for():
    x, proto = some((2, 8), "uint8", 1), product(some((8, 4), "int8", 2), 0.3).made((2, 8))
    plain = InferenceSession(proto, cache_dir=None)
    (expected,) = witness.run(proto.SerializeToString(), {"x": x})
    assert "integer_products" not in plain.report()["passes"]
    np.testing.assert_allclose(plain.run(None, {"x": x})[0], expected, rtol=1e-6)
    np.testing.assert_allclose(check(proto, x, "MatMulInteger"), expected, rtol=1e-6)


def test_steps_of_a_loop():
    """The state and the input of each step are rounded, and multiplied as bytes."""
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[2, 5] h, float[T, 2, 5] x) => (float[2, 5] y, float[T, 2, 5] all)
      <float s = {0.02}, uint8 z = {120}, float r = {0.01}> {
        wf = DequantizeLinear (w, r)
        y, all = Scan <num_scan_inputs = 1, body = step
          (float[2, 5] before, float[2, 5] xt) => (float[2, 5] after, float[2, 5] out) {
            q = QuantizeLinear (before, s, z)
            f = DequantizeLinear (q, s, z)
            p = MatMul (f, wf)
            sum = Add (p, xt)
            after = Tanh (sum)
            out = Identity (after)
        }> (h, x)
    }
    """
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(some((5, 5), "int8", 1), "w"))
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("h", (2, 5)), ("x", (4, 2, 5)))
    }
    session = InferenceSession(model, cache_dir=None, fallback=False, integer_products=True)
    assert session.report()["passes"]["integer_products"] == 1
    got = session.run(None, feeds)
    expected = witness.run(model.SerializeToString(), feeds)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    state, steps = feeds["h"], []
    for t in range(4):
        (state, one) = session.run(None, {"h": state, "x": feeds["x"][t : t + 1]})
        steps.append(one[0])
    np.testing.assert_array_equal(np.stack(steps), got[1])
