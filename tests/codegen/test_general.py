"""Kernels that differ in sizes alone are one function, which computes for each what it should."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.codegen import general
from ostinato.codegen.general import FEW, MANY
from ostinato.compiler import stages
from ostinato.options import Options
from tests.golden import parse


def _layers(widths: Sequence[int]) -> onnx.ModelProto:
    """Dense layers of these widths, one behind the other."""
    rng = np.random.default_rng(0)
    nodes, constants = [], []
    for i, shape in enumerate(pairwise(widths)):
        weights = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        constants.append(onnx.numpy_helper.from_array(weights, f"w{i}"))
        nodes += [
            onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]),
            onnx.helper.make_node("Tanh", [f"m{i}"], [f"x{i + 1}"]),
        ]
    x = onnx.helper.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, ["N", widths[0]])
    last = f"x{len(widths) - 1}"
    y = onnx.helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, ["N", widths[-1]])
    graph = onnx.helper.make_graph(nodes, "layers", [x], [y], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def _functions(model: onnx.ModelProto) -> int:
    # Elsewhere there are other tiles.
    options = Options(target="x86-64-v4")
    text = next(text for floor, text in stages(model, options) if floor == "llvm")
    return len(re.findall(r'define internal \w+ @"kernel', text))


def _outputs(model: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = ostinato.InferenceSession(model, cache_dir=None)
    return [session.run(None, feed)[0] for feed in feeds]


@pytest.fixture
def special(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel has a function of its own."""
    monkeypatch.setattr(general, "MANY", 1 << 30)


def test_many_layers_share_few_functions() -> None:
    model = _layers([20 + i * 5 % 61 for i in range(10 * MANY)])
    assert _functions(model) <= 2 * 4
    assert _functions(_layers([20 + i * 5 % 29 for i in range(MANY)])) == MANY - 1


def test_layers_that_are_alike_count_as_one() -> None:
    pairs = 6
    assert pairs < MANY
    assert _functions(_layers([40 + i % pairs for i in range(4 * pairs)])) == pairs


@pytest.mark.usefixtures("special")
def test_they_compute_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _layers([33 + i * 5 % 16 for i in range(2 * MANY)])
    # A name that parameters would have.
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "number.0"
    rng = np.random.default_rng(1)
    feeds = [{"x0": rng.standard_normal((n, 33)).astype(np.float32)} for n in (1, 3, 9)]
    expected = _outputs(model, *feeds)
    monkeypatch.undo()
    for one, other in zip(expected, _outputs(model, *feeds), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "body",
    [
        "y = Conv <kernel_shape = [3, 3], strides = [2, 1], pads = [1, 1, 1, 1]> (x, w)",
        "y = Softmax (x)",
        "t = Transpose <perm = [0, 2, 3, 1]> (x)  y = Tanh (t)",
        "y = CumSum (x, axis)",
        "y = Gather <axis = 3> (x, places)",
        "t = ReduceMean (x)  y = Sub (x, t)",
        "y = MaxPool <kernel_shape = [3, 3]> (x)",
        "t = LeakyRelu <alpha = 0.3> (x)  y = Elu <alpha = 0.7> (t)",
    ],
)
def test_any_kernel_may_be_general(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 19, 21, 37] x, float[18, 19, 3, 3] w, int64[5] places) => (y)
        <int64 axis = {{1}}> {{ {body} }}"""
    )
    rng = np.random.default_rng(2)
    feed = {
        "x": rng.standard_normal((2, 19, 21, 37)).astype(np.float32),
        "w": rng.standard_normal((18, 19, 3, 3)).astype(np.float32),
        "places": np.array([36, 0, -1, 17, 5]),
    }
    expected = _outputs(model, feed)[0]
    for name in ("MANY", "LEAST", "FEW"):
        monkeypatch.setattr(general, name, 1)
    monkeypatch.setattr(general, "_is_fixed", lambda column: False)
    np.testing.assert_array_equal(_outputs(model, feed)[0], expected)


def _quantised(scales: Sequence[float]) -> onnx.ModelProto:
    """A chain of Softmax and quantisation, with zero points from 3 on."""
    values = {f"s{i}": np.float32(scale) for i, scale in enumerate(scales)}
    values |= {f"z{i}": np.uint8(i + 3) for i in range(len(scales))}
    constants = [onnx.numpy_helper.from_array(np.array(v), name) for name, v in values.items()]
    nodes = []
    for i in range(len(scales)):
        inputs = [f"s{i}", f"z{i}"]
        nodes += [
            onnx.helper.make_node("Softmax", [f"x{i}"], [f"t{i}"]),
            onnx.helper.make_node("QuantizeLinear", [f"t{i}", *inputs], [f"q{i}"]),
            onnx.helper.make_node("DequantizeLinear", [f"q{i}", *inputs], [f"x{i + 1}"]),
        ]
    x, *ys = (
        onnx.helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.FLOAT, [24, 24])
        for i in range(len(scales) + 1)
    )
    graph = onnx.helper.make_graph(nodes, "quantised", [x], ys, constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_layers_that_differ_in_scales_and_zero_points_share_a_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The last one has no reader.
    scales = [0.001 * 1.1**i for i in range(FEW + 1)]
    model = _quantised(scales)
    x = np.random.default_rng(5).standard_normal((24, 24)).astype(np.float32)
    results = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x0": x})
    few = _functions(model)
    monkeypatch.setattr(general, "FEW", 1 << 30)
    assert _functions(model) == few + FEW - 1
    expected = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x0": x})
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    for i, (before, after, scale) in enumerate(zip([x, *results], results, scales, strict=False)):
        powers = np.exp(before.astype(np.float64))
        softmax = powers / powers.sum(-1, keepdims=True)
        rounded = np.clip(np.rint(softmax / scale), -(i + 3), 252 - i) * scale
        np.testing.assert_allclose(after, rounded, atol=1.01 * scale)


def test_zero_points_of_16_bits_are_parameters_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "".join(
        f"d{i} = DequantizeLinear (b, s{i}, z{i})  t{i} = Add (x{i}, d{i})"
        f"  x{i + 1} = Softmax (t{i})"
        for i in range(FEW)
    )
    weights = ", ".join(
        f"float s{i} = {{{0.1 * (i + 1)}}}, int16 z{i} = {{{i - 300}}}" for i in range(FEW)
    )
    model = parse(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[8, 24] x0, int16[24] b) => (float[8, 24] x{FEW}) <{weights}> {{ {body} }}""")
    few = _functions(model)
    monkeypatch.setattr(general, "FEW", 1 << 30)
    assert _functions(model) == few + FEW - 1


def test_what_is_read_once_and_what_is_read_twice_are_told_apart() -> None:
    """Products of four pieces, two of which are the same one: not the same two in all."""
    starts = [(100 + i, 200 + i, 300 + i, 300 + i) for i in range(MANY)]
    starts += [(100 + i, 100 + i, 200 + i, 300 + i) for i in range(MANY)]
    lines = []
    for i, places in enumerate(starts):
        lines += [f"p{i}_{n} = Slice (x, s{a}, e{a})" for n, a in enumerate(places)]
        lines.append(f"a{i} = Mul (p{i}_0, p{i}_1)  b{i} = Mul (a{i}, p{i}_2)")
        lines.append(f"y{i} = Mul (b{i}, p{i}_3)")
    known = sorted({place for places in starts for place in places})
    constants = ", ".join(f"int64[1] s{a} = {{{a}}}, int64[1] e{a} = {{{a + 30}}}" for a in known)
    outputs = ", ".join(f"float[30] y{i}" for i in range(len(starts)))
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[400] x) => ({outputs}) <{constants}> {{ {" ".join(lines)} }}"""
    )
    x = np.random.default_rng(4).standard_normal(400).astype(np.float32)
    results = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    for places, result in zip(starts, results, strict=True):
        a, b, c, d = (x[place : place + 30] for place in places)
        np.testing.assert_array_equal(result, a * b * c * d)


def test_sizes_that_a_run_tells_are_parameters() -> None:
    """Two convolutions whose lengths are other functions of one dimension have one function."""
    convolution = "Conv <kernel_shape = [3]>"
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1, N] x, float[32, 1, 8] v, float[40, 32, 3] w) => (y, z)
        {{ a = Conv <strides = [4]> (x, v)  b = Conv <strides = [2]> (x, v)
           y = {convolution} (a, w)  z = {convolution} (b, w) }}"""
    )
    # Elsewhere there are other tiles.
    options = Options(target="x86-64-v4")
    text = next(text for floor, text in stages(model, options) if floor == "llvm")
    called = re.findall(r'call \w+ @("kernel\.\w+")\(.*"?', text)
    assert len(set(called)) < len(called)
    x = np.random.default_rng(3).standard_normal((1, 1, 60)).astype(np.float32)
    v, w = np.ones((32, 1, 8), np.float32), np.ones((40, 32, 3), np.float32)
    y, z = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x, "v": v, "w": w})
    windows = [np.lib.stride_tricks.sliding_window_view(x[0, 0], 8)[::n].sum(1) for n in (4, 2)]
    for result, rows in zip((y, z), windows, strict=True):
        expected = 32 * np.lib.stride_tricks.sliding_window_view(rows, 3).sum(1)
        np.testing.assert_allclose(result[0], np.tile(expected, (40, 1)), rtol=1e-4, atol=1e-3)


def test_functions_that_threads_divide_have_literals_as_parameters() -> None:
    """Where one stands for another, the axis along which it is divided has another name."""
    chains = " ".join(f"a{i} = Mul(x, s{i}) y{i} = Tanh(a{i})" for i in range(FEW))
    scalars = ", ".join(f"float s{i} = {{{0.25 * i + 0.5}}}" for i in range(FEW))
    outputs = ", ".join(f"float[N, 4096] y{i}" for i in range(FEW))
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[N, 4096] x) => ({outputs})'
        f" <{scalars}> {{ {chains} }}"
    )
    x = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    one, two = (
        ostinato.InferenceSession(model, cache_dir=None, threads=n, disable=("fuse",)).run(
            None, {"x": x}
        )
        for n in (1, 2)
    )
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)
