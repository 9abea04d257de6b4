"""What follows from constants alone is computed once: by whom does not matter for the bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import ostinato.compiler
from ostinato import InferenceSession
from ostinato.errors import OstinatoError
from ostinato.model.load import load_model
from ostinato.passes.simplify.constant_evaluation import constant_evaluation
from tests.golden import check, parse

Arrays = Mapping[str, np.ndarray]


def twos(model: ir.Model) -> Arrays:
    """In place of the outputs of a model without inputs."""
    assert not model.graph.inputs
    return {v.name or "": np.full(v.shape.numpy(), 2, v.dtype.numpy()) for v in model.graph.outputs}


def evaluation(model: ir.Model) -> int:
    return constant_evaluation(model, twos)


def test_evaluates_inexact_nodes_before_exact_ones():
    check(
        evaluation,
        """
        g (float[2] x) => (float[1, 2] y) <float[2] c = {1, 2}, int64[1] axis = {0}> {
            a = Exp(c)
            b = Tanh(a)
            d = Unsqueeze(b, axis)
            y = Add(x, d)
        }
        """,
        """
        g (float[2] x) => (float[1, 2] y) <int64[1] axis = {0}, float[2] b = {2, 2}> {
            d = Unsqueeze(b, axis)
            y = Add(x, d)
        }
        """,
        count=1,
        evaluate="nobody",
    )


def test_evaluates_an_operand_that_is_read_twice_once():
    check(
        evaluation,
        """
        g (float[4] x) => (float[4] y) <float[2] c = {1, 2}> {
            a = Exp(c)
            b = Concat <axis = 0> (a, a)
            y = Add(x, b)
        }
        """,
        """
        g (float[4] x) => (float[4] y) <float[2] a = {2, 2}> {
            b = Concat <axis = 0> (a, a)
            y = Add(x, b)
        }
        """,
        count=1,
        evaluate="nobody",
    )


def test_evaluates_what_a_body_reads():
    check(
        evaluation,
        """
        g (bool x) => (float[2] y) <float[2] c = {1, 2}> {
            a = Exp(c)
            y = If(x) <
                then_branch = t () => (float[2] p) { p = Neg(a) },
                else_branch = e () => (float[2] q) { q = Abs(a) }
            >
        }
        """,
        """
        g (bool x) => (float[2] y) <float[2] a = {2, 2}> {
            y = If(x) <
                then_branch = t () => (float[2] p) { p = Neg(a) },
                else_branch = e () => (float[2] q) { q = Abs(a) }
            >
        }
        """,
        count=1,
        evaluate="nobody",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Exp(x)",
        "a = Add(x, c)  y = Exp(a)",
        "a = RandomNormalLike(c)  y = Add(x, a)",
        "a = RandomNormalLike(c)  b = Exp(a)  y = Add(x, b)",
        "a = DequantizeLinear(n, s)  y = Mul(x, a)",
        "a = DequantizeLinear(n, s)  b = Transpose(a)  y = Mul(x, b)",
        "a = Cast <to = 1> (h)  y = Mul(x, a)",
    ],
    ids=lambda nodes: nodes.replace("  ", "; "),
)
def test_leaves(nodes: str):
    text = f"""
        g (float[2] x) => (float[2] y)
        <float[2] c = {{1, 2}}, int8[2] n = {{1, 2}}, float s = {{0.5}}, float16[2] h = {{1, 2}}> {{
            {nodes}
        }}
        """
    model = load_model(parse(text))
    assert constant_evaluation(model, twos) == 0


def test_what_is_dequantised_of_one_number_or_of_four_bytes_each_is_stored():
    model = load_model(
        parse(
            """
            g (float[2, 256] x) => (float[2, 256] y)
            <int8 n = {4}, int32 m = {7}, int64[1] l = {256}, float s = {0.5}> {
                power = DequantizeLinear(n, s)
                most = Expand(m, l)
                bias = DequantizeLinear(most, s)
                z = Pow(x, power)
                y = Add(z, bias)
            }"""
        )
    )
    assert evaluation(model) == 2
    assert [node.op_type for node in model.graph] == ["Pow", "Add"]


def test_goes_back_to_operands_where_the_result_is_too_large():
    text = """
        g (float[1] x) => (float[100000, 1000] y)
        <float[1000] c = {1}, int64[2] shape = {100000, 1000}> {
            a = Exp(c)
            b = Expand(a, shape)
            d = Exp(b)
            y = Add(x, d)
        }
        """
    source = parse(text)
    source.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.ones(1000, np.float32), "c")
    )
    model = load_model(source)
    assert constant_evaluation(model, twos) == 1
    assert [node.op_type for node in model.graph] == ["Expand", "Exp", "Add"]


def session(text: str, constants: Arrays, **options: Any) -> InferenceSession:
    source = parse(text)
    source.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    return InferenceSession(source, cache_dir=None, **options)


WEIGHTS = """
    v = Mul(w, w)
    r = ReduceSum <keepdims = 1> (v, axis)
    n = Sqrt(r)
    u = Div(w, n)
    k = Tanh(u)
    """


def test_has_the_bits_of_a_run():
    rng = np.random.default_rng(1)
    axis = np.array([1])
    w = rng.standard_normal((40, 70)).astype(np.float32)
    x = rng.standard_normal((3, 40)).astype(np.float32)
    inputs, nodes = "float[3, 40] x", f"{WEIGHTS} y = MatMul(x, k)"
    text = f"g ({inputs}) => (float[3, 70] y) {{ {nodes} }}"
    folded = session(text, {"axis": axis, "w": w})
    assert folded.report()["passes"]["constant_evaluation"] == 1
    assert len(folded.report()["kernels"]) == 1
    text = f"g ({inputs}, float[40, 70] w) => (float[3, 70] y) {{ {nodes} }}"
    given = session(text, {"axis": axis})
    (expected,) = given.run(None, {"x": x, "w": w})
    np.testing.assert_array_equal(folded.run(None, {"x": x})[0], expected, strict=True)


@pytest.mark.parametrize("flush", [False, True])
def test_leaves_subnormal_numbers_to_the_run(flush: bool):
    c = np.array([-100, 1], np.float32)
    text = "g (float[2] x) => (float[2] y) { a = Exp(c) y = Mul(a, x) }"
    made = session(text, {"c": c}, flush_denormals=flush)
    (y,) = made.run(None, {"x": np.full(2, 1e9, np.float32)})
    assert (y[0] == 0) == flush
    assert made.report()["passes"]["constant_evaluation"] == 0


def test_leaves_what_takes_long_to_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ostinato.compiler, "MOST_EVALUATED_STEPS", 1000)
    few, many = np.ones(500, np.float32), np.ones(1001, np.float32)
    for c, count in (few, 1), (many, 0):
        text = "g (float x) => (float[N] y) { a = Exp(c) y = Mul(a, x) }"
        assert session(text, {"c": c}).report()["passes"]["constant_evaluation"] == count


def test_leaves_what_fails_to_the_run():
    text = """
        g (float[2] x) => (float[2] y) {
            a = Exp(c)
            b = Reshape(a, shape)
            d = Exp(b)
            y = Add(x, d)
        }
        """
    shape = np.array([3])
    constants = {"c": np.ones(2, np.float32), "shape": shape}
    with pytest.raises(OstinatoError, match="elements"):
        session(text, constants).run(None, {"x": np.ones(2, np.float32)})


@pytest.mark.filterwarnings("ignore:the model is not all native code")
def test_takes_text_and_sequences_for_what_they_are():
    source = parse(
        """
        g (float[2] x) => (bool y, float[1] z) <string[1] t = {"a"}, float[2] c = {1, 2}> {
            a = Equal(t, t)
            y = ReduceMax <keepdims = 0> (a)
            none = SequenceEmpty <dtype = 1> ()
            e = Exp(c)
            s = SequenceInsert(none, e)
            zero = Constant <value = int64 {0}> ()
            f = SequenceAt(s, zero)
            z = ReduceSum(f)
        }
        """,
        opset=20,
    )
    made = InferenceSession(source, cache_dir=None)
    y, z = made.run(None, {"x": np.ones(2, np.float32)})
    assert y and z == pytest.approx(np.exp(1) + np.exp(2))


def test_weights_of_a_convolution_are_known_whoever_computes_them():
    rng = np.random.default_rng(2)
    shapes = {"w": (64, 64, 3, 3), "scale": (64, 1, 1, 1)}
    constants = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    text = """
        g (float[1, 64, 14, 14] x) => (float[1, 64, 14, 14] y) {
            v = Mul(w, scale)
            y = Conv <pads = [1, 1, 1, 1]> (x, v)
        }
        """
    x = rng.standard_normal((1, 64, 14, 14)).astype(np.float32)
    (folded,) = session(text, constants).run(None, {"x": x})
    (evaluated,) = session(text, constants, disable=("constant_folding",)).run(None, {"x": x})
    np.testing.assert_array_equal(evaluated, folded, strict=True)


def image(taps: int = 3, size: str = "16, 16", more: str = "") -> ir.Model:
    """A convolution whose weights are bytes, over an image."""
    model = parse(
        f"""
        g (float[1, 2, {size}] x) => (float[1, 2, P, Q] y) <float s = {{0.5}}> {{
            w = DequantizeLinear(q, s)
            c = Conv<pads = [1, 1, 1, 1]>(x, w)
            {more}
            y = Relu(c)
        }}"""
    )
    weights = np.arange(4 * taps * taps, dtype=np.int8).reshape(2, 2, taps, taps)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "q"))
    return load_model(model)


@pytest.mark.parametrize("size", ["16, 16", "H, W"])
def test_weights_of_windows_over_images_are_widened_once(size: str) -> None:
    model = image(size=size)
    assert evaluation(model) == 1
    assert [node.op_type for node in model.graph] == ["Conv", "Relu"]


@pytest.mark.parametrize(
    "model", [image(taps=1), image(size="4, 4"), image(more="d = Mul(x, s)  e = Add(w, d)")]
)
def test_other_weights_stay_as_they_are_stored(model: ir.Model) -> None:
    assert evaluation(model) == 0


def test_weights_that_a_small_file_makes_large_are_left() -> None:
    """Only what the file stores may be widened without regard to the room for constants."""
    model = load_model(
        parse(
            """
            g (float[1, 2048, 16, 16] x) => (float[1, 2048, P, Q] y)
            <int8[1] one = {1}, int64[4] shape = {2048, 2048, 3, 3}, float s = {0.5}> {
                q = Expand(one, shape)
                w = DequantizeLinear(q, s)
                y = Conv(x, w)
            }"""
        )
    )
    assert evaluation(model) == 0


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_weights_of_8_bit_floats_are_widened_once(kind: str) -> None:
    random = np.random.default_rng(0)
    constants = {
        "w": random.uniform(-4, 4, (8, 20)).astype(getattr(ml_dtypes, kind)),
        "scale": random.uniform(0.5, 2, 20).astype("f"),
    }
    compiled = session(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 8] x) => (float[2, 20] y) {
            d = DequantizeLinear<axis = 1>(w, scale)
            y = MatMul(x, d)
        }""",
        constants,
    )
    (kernel,) = compiled.report()["kernels"]
    assert kernel["fused"] == ["y"]
    x = random.standard_normal((2, 8)).astype("f")
    wide = constants["w"].astype("f") * constants["scale"]
    expected = session(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 8] x) => (float[2, 20] y) { y = MatMul(x, w) }""",
        {"w": wide},
    ).run(None, {"x": x})[0]
    assert compiled.run(None, {"x": x})[0].tobytes() == expected.tobytes()
