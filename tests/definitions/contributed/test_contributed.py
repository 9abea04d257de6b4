"""Operators of onnxruntime's tools, against onnxruntime: nodes of each, with varied operands."""

from __future__ import annotations

import math
import re
import zlib

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from ostinato import InferenceSession, Options, ShapeError, UnsupportedError, optimize
from ostinato.definitions.contributed.tables import TABLES
from ostinato.model.contributed import SCHEMAS, register_contributed
from ostinato.passes.normalise.expand_contributed import expand_contributed
from tests import witness

_DOMAINS = '"com.microsoft": 1, "com.microsoft.nchwc": 1'
_DTYPES = {
    "float": np.float32,
    "uint8": np.uint8,
    "int8": np.int8,
    "int32": np.int32,
    "int64": np.int64,
    "uint16": np.uint16,
    "bool": np.bool_,
}
_QUANTIZED = "uint8[2,3,4,6] x, S xs, U xz, S ys, U yz"
_QKV = "float[2,5,8] x, float[8,24] w, float[24] b"
_KV = "float[2,5,8] q, float[2,7,8] k, float[2,7,8] v"
_CACHE = "float[2,2,6,16] pk, float[2,2,6,16] pv, int32[2] last, int32 total"
_ONE = (
    "float[6,1,8] q, float[6,1,8] k, float[6,1,8] v, int32[6,4] m, float[6,2,9,4] pk, "
    "float[6,2,9,4] pv, int32 n, float[24] b"
)
_SHARED = "num_heads = 2, past_present_share_buffer = 1, mask_filter_value = -5.0"
_GROUPED = f"float[2,1,64] q, float[2,1,32] k, float[2,1,32] v, {_CACHE}"
_TABLES = "float[32,8] c, float[32,8] s"
_HEADS = "num_heads = 4, kv_num_heads = 2"

_NARROW_TABLES = "uint8[2,8] w, uint8[6,8] t, uint8[2,8] s, uint8[8] g, uint8[8] b, S ws, U U0"

# name: operands, node, number of outputs. S and U are a positive float and a uint8; operands called
# m are masks of 0 and 1, p positions, e lengths.
CASES = {
    "Gelu": ("float[2,5,8] x", "Gelu (x)", 1),
    "BiasGelu": ("float[2,5,8] x, float[8] b", "BiasGelu (x, b)", 1),
    "FastGelu": ("float[2,5,8] x, float[8] b", "FastGelu (x, b)", 1),
    "QuickGelu": ("float[2,5,8] x", "QuickGelu <alpha = 1.5> (x)", 1),
    "SkipLayerNormalization": (
        "float[2,5,8] x, float[2,5,8] k, float[8] g, float[8] b, float[8] c",
        "SkipLayerNormalization <epsilon = 0.001> (x, k, g, b, c)",
        4,
    ),
    "SkipSimplifiedLayerNormalization": (
        "float[2,5,8] x, float[2,5,8] k, float[8] g",
        "SkipSimplifiedLayerNormalization <epsilon = 0.001> (x, k, g)",
        4,
    ),
    "EmbedLayerNormalization": (
        "int32[2,5] m, float[2,8] w, float[6,8] t, float[2,8] s, float[8] g, float[8] b",
        "EmbedLayerNormalization (m, m, w, t, s, g, b, m)",
        3,
    ),
    "ScaledSiLU": ("float[2,5,8] x, float s", "ScaledSiLU (x, s)", 1),
    "ScaledSiLU alpha": ("float[2,5,8] x", "ScaledSiLU <alpha = 1.5> (x)", 1),
    "GatedAdd": (
        "float[2,5,8] x, float[2,5,8] y, float[2,5,1] g",
        "GatedAdd (x, y, g)",
        1,
    ),
    "QEmbedLayerNormalization": (
        f"int32[2,5] m, {_NARROW_TABLES}",
        "QEmbedLayerNormalization <epsilon = 0.001> "
        "(m, m, w, t, s, g, b, m, ws, ws, ws, ws, ws, U0, U0, U0, U0, U0)",
        2,
    ),
    "QEmbedLayerNormalization without segments": (
        f"int32[2,5] m, {_NARROW_TABLES}",
        "QEmbedLayerNormalization (m, , w, t, , g, b, , ws, ws, , ws, ws, U0, U0, , U0, U0)",
        2,
    ),
    "CDist": ("float[5,7] x, float[3,7] y", "CDist (x, y)", 1),
    "CDist euclidean": ("float[5,7] x, float[3,7] y", 'CDist <metric = "euclidean"> (x, y)', 1),
    "FusedConv": (
        "float[1,3,9,9] x, float[4,3,3,3] w, float[4] b, float[1,4,9,9] z",
        'FusedConv <activation = "Relu", pads = [1,1,1,1], kernel_shape = [3,3]> (x, w, b, z)',
        1,
    ),
    "FusedConv LeakyRelu": (
        "float[1,4,9] x, float[4,2,3] w",
        'FusedConv <activation = "LeakyRelu", activation_params = [0.2], group = 2> (x, w)',
        1,
    ),
    "FusedConv HardSigmoid": (
        "float[1,4,9] x, float[4,4,3] w",
        'FusedConv <activation = "HardSigmoid", activation_params = [0.2, 0.4]> (x, w)',
        1,
    ),
    "FusedConv Clip": (
        "float[1,4,9] x, float[4,4,3] w",
        'FusedConv <activation = "Clip", activation_params = [-0.5, 0.7]> (x, w)',
        1,
    ),
    "FusedGemm": (
        "float[3,4] x, float[5,4] w, float[5] b",
        'FusedGemm <activation = "LeakyRelu", activation_alpha = 0.3, transB = 1, alpha = 0.5> '
        "(x, w, b)",
        1,
    ),
    **{
        f"FusedGemm {activation}": (
            "float[3,4] x, float[4,5] w",
            f'FusedGemm <activation = "{activation}"{parameters}> (x, w)',
            1,
        )
        for activation, parameters in {
            "Elu": ", activation_alpha = 0.7",
            "Selu": ", activation_alpha = 1.6, activation_gamma = 1.1",
            "Softplus": "",
            "Softsign": "",
            "ThresholdedRelu": ", activation_alpha = 0.3",
        }.items()
    },
    "FusedMatMul": (
        "float[2,3,4,5] x, float[2,3,6,5] w",
        "FusedMatMul <transB = 1, alpha = 0.5> (x, w)",
        1,
    ),
    "FusedMatMul batch": (
        "float[4,2,3,5] x, float[6,2,3,5] w",
        "FusedMatMul <transB = 1, transBatchA = 1, transBatchB = 1> (x, w)",
        1,
    ),
    "MatMulIntegerToFloat": (
        "uint8[3,8] a, int8[8,5] w, S as, float[5] ws, U az, int8[5] wz, float[5] b",
        "MatMulIntegerToFloat (a, w, as, ws, az, wz, b)",
        1,
    ),
    "MatMulIntegerToFloat without points": (
        "int8[3,8] a, int8[8,5] w, S as, S ws",
        "MatMulIntegerToFloat (a, w, as, ws)",
        1,
    ),
    "DynamicQuantizeMatMul": (
        "float[3,8] a, int8[8,5] w, S ws, int8 wz, float[5] b",
        "DynamicQuantizeMatMul (a, w, ws, wz, b)",
        1,
    ),
    "QGemm": (
        "uint8[3,8] a, S as, U az, int8[5,8] w, S ws, int8 wz, int32[5] m, S ys, U yz",
        "QGemm <transB = 1, alpha = 0.5> (a, as, az, w, ws, wz, m, ys, yz)",
        1,
    ),
    "QGemm float": (
        "uint8[3,8] a, S as, U az, int8[8,5] w, S ws, int8 wz",
        "QGemm (a, as, az, w, ws, wz)",
        1,
    ),
    "QLinearAdd": (
        "uint8[2,3,4] x, S xs, U xz, uint8[3,4] y, S ys, U yz",
        "QLinearAdd (x, xs, xz, y, ys, yz, xs, xz)",
        1,
    ),
    "QLinearMul": (
        "int8[2,3,4] x, S xs, int8 xz, int8[3,4] y, S ys, int8 yz",
        "QLinearMul (x, xs, xz, y, ys, yz, xs, xz)",
        1,
    ),
    "QLinearSigmoid": (_QUANTIZED, "QLinearSigmoid (x, xs, xz, ys, yz)", 1),
    "QLinearLeakyRelu": (_QUANTIZED, "QLinearLeakyRelu <alpha = 0.2> (x, xs, xz, ys, yz)", 1),
    "QLinearGlobalAveragePool": (
        _QUANTIZED,
        "QLinearGlobalAveragePool <channels_last = 1> (x, xs, xz, ys, yz)",
        1,
    ),
    "QLinearGlobalAveragePool first": (
        _QUANTIZED,
        "QLinearGlobalAveragePool (x, xs, xz, ys, yz)",
        1,
    ),
    "QLinearAveragePool": (
        _QUANTIZED,
        "QLinearAveragePool <kernel_shape = [2,2], channels_last = 1> (x, xs, xz, ys, yz)",
        1,
    ),
    "QLinearSoftmax": (_QUANTIZED, "QLinearSoftmax <axis = 1, opset = 13> (x, xs, xz, ys, yz)", 1),
    "QLinearSoftmax 11": (
        _QUANTIZED,
        "QLinearSoftmax <axis = 1, opset = 11> (x, xs, xz, ys, yz)",
        1,
    ),
    "QLinearConcat": (
        "uint8[2,3,4] x, S xs, U xz, uint8[2,2,4] y, S ys, U yz",
        "QLinearConcat <axis = 1> (xs, xz, x, xs, xz, y, ys, yz)",
        1,
    ),
    "QLinearWhere": (
        "bool[2,3,4] m, uint8[2,3,4] x, S xs, U xz, uint8[2,1,4] y, S ys, U yz",
        "QLinearWhere (m, x, xs, xz, y, ys, yz, xs, xz)",
        1,
    ),
    "QLinearConv": (
        "uint8[1,6,6,3] x, S xs, U xz, uint8[4,3,3,3] w, S ws, U wz, S ys, U yz",
        "QLinearConv <channels_last = 1, kernel_shape = [3,3]> (x, xs, xz, w, ws, wz, ys, yz)",
        1,
    ),
    "NhwcMaxPool": (
        "uint8[2,6,6,3] x",
        "NhwcMaxPool <kernel_shape = [2,2], strides = [2,2]> (x)",
        1,
    ),
    "DequantizeLinear": ("uint16[3,4] x, S xs, uint16 xz", "DequantizeLinear (x, xs, xz)", 1),
    "QuantizeLinear": ("float[3,4] x, S xs, uint16 xz", "QuantizeLinear (x, xs, xz)", 1),
    "QuantizeLinear axis": (
        "float[3,4] x, float[4] ws, uint8[4] xz",
        "QuantizeLinear <axis = 1> (x, ws, xz)",
        1,
    ),
    "Attention": (_QKV, "Attention <num_heads = 2, scale = 0.3> (x, w, b)", 1),
    "Attention mask": (
        f"{_QKV}, int32[2,5] m",
        "Attention <num_heads = 2, unidirectional = 1> (x, w, b, m)",
        1,
    ),
    "Attention lengths": (f"{_QKV}, int32[2] e", "Attention <num_heads = 2> (x, w, b, e)", 1),
    "Attention mask of rows": (
        f"{_QKV}, int32[2,5,5] m",
        "Attention <num_heads = 2> (x, w, b, m)",
        1,
    ),
    "Attention past": (
        f"{_QKV}, float[2,2,2,3,4] p_",
        "Attention <num_heads = 2, unidirectional = 1> (x, w, b, , p_)",
        2,
    ),
    "Attention bias": (
        f"{_QKV}, float[2,2,5,5] a",
        "Attention <num_heads = 2> (x, w, b, , , a)",
        1,
    ),
    "QAttention": (
        "uint8[2,5,8] x, int8[8,24] w, float[24] b, S xs, S ws, int32[2,5] m, U xz, int8 wz",
        "QAttention <num_heads = 2> (x, w, b, xs, ws, m, xz, wz)",
        1,
    ),
    "MultiHeadAttention": (
        f"{_KV}, float[24] b, int32[2,7] m",
        "MultiHeadAttention <num_heads = 2> (q, k, v, b, m)",
        1,
    ),
    "MultiHeadAttention lengths": (
        f"{_KV}, int32[2] e, float[1,2,5,7] a",
        "MultiHeadAttention <num_heads = 2> (q, k, v, , e, a)",
        1,
    ),
    "MultiHeadAttention cross": (
        "float[2,5,8] q, float[2,2,7,4] k, float[2,2,7,4] v",
        "MultiHeadAttention <num_heads = 2> (q, k, v)",
        1,
    ),
    "MultiHeadAttention past": (
        "float[2,5,8] q, float[2,5,8] k, float[2,5,8] v, float[2,2,3,4] a, float[2,2,3,4] c",
        "MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, v, , , , a, c)",
        3,
    ),
    "DecoderMaskedMultiHeadAttention cross": (
        "float[2,1,8] q, float[2,2,7,4] k, float[2,2,7,4] v, int32[2,7] m, float[24] b",
        "DecoderMaskedMultiHeadAttention <num_heads = 2> (q, k, v, m, , , , , , , b)",
        1,
    ),
    "DecoderMaskedMultiHeadAttention": (
        f"{_ONE}, float[1,2,1,4] a",
        f"DecoderMaskedMultiHeadAttention <{_SHARED}> (q, k, v, m, a, pk, pv, n, , , b)",
        3,
    ),
    "DecoderMaskedMultiHeadAttention beams": (
        f"{_ONE}, float[1,2,1,4] a, int32 beams, int32[2,3,9] origins",
        f"DecoderMaskedMultiHeadAttention <{_SHARED}> "
        "(q, k, v, m, a, pk, pv, n, beams, origins, b)",
        3,
    ),
    "RotaryEmbedding": (
        "float[2,5,8] x, int64[2,5] p, float[16,2] c, float[16,2] s",
        "RotaryEmbedding <interleaved = 1> (x, p, c, s)",
        1,
    ),
    "RotaryEmbedding heads": (
        "float[2,2,5,4] x, int64[1] p, float[16,2] c, float[16,2] s",
        "RotaryEmbedding (x, p, c, s)",
        1,
    ),
    "RotaryEmbedding part": (
        "float[2,5,16] x, int64[1] p, float[16,2] c, float[16,2] s",
        "RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4> (x, p, c, s)",
        1,
    ),
    "GroupQueryAttention": (
        _GROUPED,
        f"GroupQueryAttention <{_HEADS}> (q, k, v, pk, pv, last, total)",
        3,
    ),
    "GroupQueryAttention rotary": (
        f"{_GROUPED}, {_TABLES}",
        f"GroupQueryAttention <{_HEADS}, do_rotary = 1, softcap = 2.0> "
        "(q, k, v, pk, pv, last, total, c, s)",
        3,
    ),
    "GroupQueryAttention window": (
        f"float[2,1,128] q, {_CACHE}",
        f"GroupQueryAttention <{_HEADS}, local_window_size = 3> (q, , , pk, pv, last, total)",
        3,
    ),
}


def _declared(operands: str) -> list[tuple[str, str, list[int]]]:
    """Names, ONNX types and shapes."""
    found = []
    for text in operands.replace("S ", "float ").replace("U ", "uint8 ").split(", "):
        kind, name = text.split(" ")
        element, _, sizes = kind.partition("[")
        found.append((name, element, [int(n) for n in sizes.rstrip("]").split(",") if n]))
    return found


def _feeds(operands: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(zlib.crc32(operands.encode()))
    feeds = {}
    for name, element, shape in _declared(operands):
        dtype = _DTYPES[element]
        if name == "last":
            array = np.array([6, 4])
        elif name == "total":
            array = np.array(7)
        elif name in ("n", "beams"):
            array = np.array(3)
        elif name == "origins":
            array = random.integers(0, 3, shape)
        elif name == "e":
            array = np.array([3, 4])
        elif name in ("m", "p"):
            array = random.integers(0, 2, shape)
        elif element == "float" and name in ("xs", "ys", "ws", "as"):
            array = random.uniform(0.01, 0.05, shape)
        elif element == "float":
            array = random.standard_normal(shape)
        else:
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            array = random.integers(low // 4, high // 4 + 1, shape)
        feeds[name] = np.asarray(array, dtype)
    return feeds


def _model(operands: str, node: str, outputs: int, opset: int = 17) -> onnx.ModelProto:
    inputs = ", ".join(
        f"{element}{shape if shape else ''} {name}" for name, element, shape in _declared(operands)
    )
    names = [f"y{i}" for i in range(outputs)]
    domain = "" if node.startswith(("Simplified", "LayerNorm")) else "com.microsoft."
    made = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}, {_DOMAINS}]>'
        f"g ({inputs}) => (float {', float '.join(names)}) "
        f"{{ {', '.join(names)} = {domain}{node} }}"
    )
    register_contributed()
    for value in made.graph.output:
        value.type.Clear()
    inferred = onnx.shape_inference.infer_shapes(made)
    for value in inferred.graph.output:
        value.type.tensor_type.ClearField("shape")
    return inferred


def _agrees(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    wanted = witness.run(model.SerializeToString(), feeds)
    session = InferenceSession(model, options=Options(cache_dir=None, fallback=False))
    for got, want in zip(session.run(None, feeds), wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if "last" in feeds and got.ndim == 4:
            # What is stored behind the last key of a row means nothing.
            got, want = got[:, :, :5], want[:, :, :5]
        if want.dtype.kind in "iu":
            assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= 1
        else:
            scale = max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul", "QGemm", "MatMulIntegerToFloat"])
def test_known_scales_and_points(name: str) -> None:
    """As quantisers write them; what stands for the operands may be computed in other steps."""
    operands, node, outputs = CASES[name]
    feeds, model = _feeds(operands), _model(operands, node, outputs)
    for value in list(model.graph.input):
        if value.name not in ("x", "y", "a"):
            model.graph.input.remove(value)
            tensor = numpy_helper.from_array(feeds.pop(value.name), value.name)
            model.graph.initializer.append(tensor)
    _agrees(model, feeds)


@pytest.mark.parametrize("name", CASES)
def test_nodes(name: str) -> None:
    operands, node, outputs = CASES[name]
    if node.startswith("Skip"):
        # Means and deviations are declared as outputs that onnxruntime leaves out.
        made = _model(operands, node, outputs)
        made.graph.node[0].output[1:3] = ["", ""]
        del made.graph.output[1:3]
        _agrees(made, _feeds(operands))
        return
    _agrees(_model(operands, node, outputs), _feeds(operands))


@pytest.mark.parametrize("name", ["NhwcMaxPool", "GroupQueryAttention"])
def test_operators_that_the_oldest_operator_set_knows_for_fewer_types(name: str) -> None:
    operands, node, outputs = CASES[name]
    _agrees(_model(operands, node, outputs, 11), _feeds(operands))


@pytest.mark.parametrize("name", ["DequantizeLinear", "QuantizeLinear"])
def test_sixteen_bits_where_the_standard_has_them(name: str) -> None:
    operands, node, outputs = CASES[name]
    model = _model(operands, node, outputs, 21)
    _agrees(model, _feeds(operands))
    (made,) = optimize(model).graph.node
    assert (made.domain, made.op_type) == ("", name)


@pytest.mark.parametrize(
    "node",
    ["MultiHeadAttention <num_heads = 2> (q, k, v)", "MultiHeadAttention", "GroupQueryAttention"],
)
def test_heads_of_a_size_that_a_run_tells(node: str) -> None:
    operands, outputs = _KV, 1
    if not node.endswith(")"):
        operands, node, outputs = CASES[node]
    model = _model(operands, node, outputs)
    for value in model.graph.input[: 3 if "b," in node else 1]:
        value.type.tensor_type.shape.dim[2].dim_param = "W"
    _agrees(model, _feeds(operands))


@pytest.mark.parametrize("lengths", ([2, 4], [3, 5, 1, 0]))
@pytest.mark.parametrize("names", ("x", "m", "xm"))
def test_lengths_of_as_many_rows_as_a_run_tells(lengths: list[int], names: str) -> None:
    """Ends of rows, behind which the first keys may follow."""
    operands = f"{_QKV}, int32[{len(lengths)}] m"
    model = _model(operands, "Attention <num_heads = 2> (x, w, b, m)", 1)
    for value in model.graph.input:
        if value.name in names:
            value.type.tensor_type.shape.dim[0].dim_param = f"N{value.name}"
    _agrees(model, {**_feeds(operands), "m": np.array(lengths, np.int32)})


@pytest.mark.parametrize("kind", ("int4", "uint4"))
@pytest.mark.parametrize("has_points", (False, True))
def test_dequantised_weights_below_a_byte(kind: str, has_points: bool) -> None:
    """As onnxruntime's quantiser writes them for operator sets before 21."""
    dtype = np.dtype(getattr(ml_dtypes, kind))
    constants = {
        "w": np.arange(24).reshape(8, 3).astype(np.int8).astype(dtype),
        "s": np.array([0.1, 0.2, 0.3], np.float32),
    }
    if has_points:
        constants["z"] = np.array([1, 2, 3], np.int8).astype(dtype)
    node = helper.make_node(
        "DequantizeLinear", list(constants), ["d"], domain="com.microsoft", axis=1
    )
    product = helper.make_node("MatMul", ["a", "d"], ["y"])
    feeds = {"a": _normal(2, 8)}
    model = _fed(node, feeds, constants, opset=20)
    model.graph.node.append(product)
    _agrees(model, feeds)


@pytest.mark.parametrize("opset", (11, 17, 21))
@pytest.mark.parametrize("node", ("SimplifiedLayerNormalization", "LayerNormalization"))
def test_versions_that_the_standard_does_not_have(node: str, opset: int) -> None:
    operands = "float[2,5,8] x, float[8] g"
    _agrees(_model(operands, f"{node} <epsilon = 0.001> (x, g)", 1, opset), _feeds(operands))


def _of_few_bits(
    sizes: tuple[int, int, int, int],
    rows: tuple[int, ...],
    points: str = "",
    dtype: type = np.float32,
    **about: int,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """MatMulNBits with k, n, bits and block of `sizes`, and rows to multiply.

    points: "" for none, "packed", or "floats"; a bias goes with those.
    """
    k, n, bits, block = sizes
    random, blocks = np.random.default_rng(bits), -(-k // block)
    arrays = {
        "b": random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "s": random.uniform(0.01, 0.1, (n, blocks)).astype(dtype),
    }
    if points == "packed":
        arrays["z"] = random.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif points:
        arrays["z"] = random.uniform(0, 1 << bits, (n, blocks)).astype(dtype)
        arrays["c"] = random.standard_normal(n).astype(dtype)
    names = ["a", "b", "s", *(["z"] if points else []), *(["", "c"] if "c" in arrays else [])]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, **about}
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attributes)
    given = _normal(*rows, k).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    operand = helper.make_tensor_value_info("a", kind, given.shape)
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([node], "g", [operand], [result], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), {"a": given}


def _product_of_bytes(model: onnx.ModelProto, a: np.ndarray) -> np.ndarray:
    """What `_of_few_bits` computes at accuracy level 4, with sums in float64.

    onnxruntime rounds A to bytes where it has kernels for the CPU, the bits and the block.
    """
    (node,) = model.graph.node
    given = {x.name: helper.get_attribute_value(x) for x in node.attribute}
    arrays = {x.name: numpy_helper.to_array(x) for x in model.graph.initializer}
    k, n, bits, block = (given[name] for name in ("K", "N", "bits", "block_size"))
    blocks = -(-k // block)

    def unpacked(data: np.ndarray) -> np.ndarray:
        parts = [data.reshape(n, -1) >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
        return np.stack(parts, -1).reshape(n, -1).astype(np.int64)

    weights = unpacked(arrays["b"]).reshape(n, blocks, block)
    points = unpacked(arrays["z"])[:, :blocks] if "z" in arrays else 1 << bits - 1
    weights = weights - np.broadcast_to(points, (n, blocks))[:, :, None]
    x = np.zeros((*a.shape[:-1], blocks * block), np.float32)
    x[..., :k] = a
    x = x.reshape(*a.shape[:-1], blocks, block)
    largest = np.abs(x).max(-1, keepdims=True)
    factor = np.float32(127) / np.where(largest == 0, np.float32(1), largest)
    sums = np.einsum("...kb,nkb->...nk", np.rint(x * factor).astype(np.int64), weights)
    scale = (largest / np.float32(127)).astype(np.float64)[..., 0]
    return np.asarray(np.einsum("...nk,...k,nk->...n", sums, scale, arrays["s"]))


# onnxruntime has no kernel for points that are floats beside weights of 8 bits.
@pytest.mark.parametrize(
    ("bits", "points"),
    [
        (2, ""),
        (2, "packed"),
        (2, "floats"),
        (4, ""),
        (4, "packed"),
        (4, "floats"),
        (8, ""),
        (8, "packed"),
    ],
)
def test_weights_of_few_bits(bits: int, points: str) -> None:
    _agrees(*_of_few_bits((40, 6, bits, 32), (2, 3), points))


@pytest.mark.parametrize("points", ("", "packed"))
@pytest.mark.parametrize("rows", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize(
    "sizes", [(40, 6, 2, 32), (96, 17, 4, 32), (300, 17, 4, 16), (64, 17, 4, 256), (70, 9, 8, 64)]
)
def test_rows_in_bytes(
    sizes: tuple[int, int, int, int], rows: tuple[int, ...], points: str
) -> None:
    model, given = _of_few_bits(sizes, rows, points, accuracy_level=4)
    (got,) = InferenceSession(model, cache_dir=None, fallback=False).run(None, given)
    want = _product_of_bytes(model, given["a"])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize(
    ("sizes", "points", "dtype"),
    [
        ((64, 6, 4, 32), "floats", np.float16),
        ((64, 6, 4, 32), "floats", np.float32),
        ((96, 17, 2, 16), "packed", np.float32),
    ],
)
def test_no_rows_in_bytes(sizes: tuple[int, int, int, int], points: str, dtype: type) -> None:
    """onnxruntime has no sums of bytes for points that are floats, nor for such blocks."""
    _agrees(*_of_few_bits(sizes, (3,), points, dtype, accuracy_level=4))


def test_rows_of_zeros_in_bytes() -> None:
    model, _ = _of_few_bits((64, 6, 4, 32), (3,), accuracy_level=4)
    session = InferenceSession(model, cache_dir=None)
    (got,) = session.run(None, {"a": np.zeros((3, 64), np.float32)})
    assert not got.any()


def test_rows_of_few_bits_are_as_alone() -> None:
    """Each row has scales of its own, whatever is beside it."""
    model, given = _of_few_bits((300, 17, 4, 16), (5,), accuracy_level=4)
    alone, _ = _of_few_bits((300, 17, 4, 16), (1,), accuracy_level=4)
    (together,) = InferenceSession(model, cache_dir=None).run(None, given)
    session = InferenceSession(alone, cache_dir=None)
    rows = [session.run(None, {"a": row[None]})[0] for row in given["a"]]
    assert together.tobytes() == np.concatenate(rows).tobytes()


@pytest.mark.parametrize(
    ("operands", "node", "message"),
    (
        ("uint8[2,6] x, float[2] s, uint8 z", "QLinearSigmoid (x, s, z, s, z)", r"X_scale.*\[2\]"),
        ("uint8[2,6] x, float s, uint8[0] z", "QLinearSigmoid (x, s, z, s, z)", r"X_zero.*\[0\]"),
        (
            "uint8[2,3,4,4] x, float[3] s, uint8 z, float t",
            "QLinearGlobalAveragePool (x, s, z, t, z)",
            r"X_scale.*\[3\]",
        ),
        (
            "uint8[4,8] x, int8[8,6] w, float[6] s, float t",
            "MatMulIntegerToFloat (x, w, s, t)",
            r"a_scale.*\[6\]",
        ),
    ),
)
def test_several_scales_of_an_operand_that_has_one(operands: str, node: str, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        InferenceSession(_model(operands, node, 1))


def test_weights_of_few_bits_stay_narrow() -> None:
    random, (k, n) = np.random.default_rng(0), (256, 64)
    packed = random.integers(0, 256, (n, k // 32, 16)).astype(np.uint8)
    scales = random.uniform(0.01, 0.1, (n, k // 32)).astype(np.float32)
    constants = [numpy_helper.from_array(a, name) for a, name in ((packed, "b"), (scales, "s"))]
    node = helper.make_node(
        "MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, block_size=32
    )
    session = InferenceSession(_graph([node], {"a": [1, k]}, ["y"], constants), cache_dir=None)
    assert session.report().constant_bytes < 1.1 * (packed.nbytes + scales.nbytes)


@pytest.mark.parametrize(
    ("name", "shape"), (("b", (6, 2, 8)), ("s", (5,)), ("z", (6,)), ("z", (6, 4)))
)
def test_weights_of_few_bits_in_other_sizes(name: str, shape: tuple[int, ...]) -> None:
    sizes = {"b": (6, 3, 8), "s": (6, 3), "z": (6, 2), name: shape}
    constants = [
        numpy_helper.from_array(np.ones(size, np.float32 if key == "s" else np.uint8), key)
        for key, size in sizes.items()
    ]
    attributes = {"K": 40, "N": 6, "bits": 4, "block_size": 16}
    node = helper.make_node(
        "MatMulNBits", ["a", *sizes], ["y"], domain="com.microsoft", **attributes
    )
    with pytest.raises(ShapeError, match=rf"'y'.*{re.escape(str(list(shape)))}, expected \[6, "):
        InferenceSession(_graph([node], {"a": [2, 40]}, ["y"], constants))


@pytest.mark.parametrize(
    ("kind", "bits", "gather_axis", "quantize_axis"),
    [
        *(("uint8", bits, 0, axis) for bits in (2, 4, 8) for axis in (1, -1)),
        *((kind, 4, *axes) for kind in ("int4", "uint4") for axes in ((0, 1), (1, 0), (1, 1))),
    ],
)
@pytest.mark.parametrize("has_points", (False, True))
def test_rows_of_few_bits(
    kind: str, bits: int, gather_axis: int, quantize_axis: int, has_points: bool
) -> None:
    random = np.random.default_rng(0)
    rows, columns, block = 40, 72, 32
    sizes = [rows, columns]
    sizes[quantize_axis] = math.ceil(sizes[quantize_axis] / block)

    def whole(rows: int, columns: int) -> np.ndarray:
        if kind == "uint8":
            return random.integers(0, 256, (rows, math.ceil(columns * bits / 8)), np.uint8)
        dtype = np.dtype(getattr(ml_dtypes, kind))
        low = int(ml_dtypes.iinfo(dtype).min)
        return random.integers(low, low + 16, (rows, columns)).astype(dtype)

    constants = {"d": whole(rows, columns), "s": random.uniform(0.1, 1, sizes).astype("f")}
    if has_points:
        constants["z"] = whole(*sizes)
    node = helper.make_node(
        "GatherBlockQuantized",
        ["d", "i", *list(constants)[1:]],
        ["y"],
        domain="com.microsoft",
        bits=bits,
        block_size=block,
        gather_axis=gather_axis,
        quantize_axis=quantize_axis,
    )
    feeds = {"i": random.integers(-rows, rows, (2, 3))}
    model = _fed(node, feeds, constants, opset=21)
    (want,) = witness.run(model.SerializeToString(), feeds)
    (got,) = InferenceSession(model, fallback=False).run(None, feeds)
    np.testing.assert_array_equal(got, want)


def test_rows_of_few_bits_in_other_sizes() -> None:
    constants = {"d": np.zeros((8, 16), np.uint8), "s": np.ones((8, 2), np.float32)}
    node = helper.make_node(
        "GatherBlockQuantized", ["d", "i", "s"], ["y"], domain="com.microsoft", block_size=32
    )
    with pytest.raises(ShapeError, match=r"input 's\w*' has shape \[8, 2\], expected \[8, 1\]"):
        InferenceSession(_fed(node, {"i": np.zeros((2,), np.int64)}, constants))


@pytest.mark.parametrize("how", ("Transpose", "Identity"))
def test_weights_that_other_nodes_make_of_constants(how: str) -> None:
    random = np.random.default_rng(0)
    weights = {
        n: random.integers(-99, 99, (1, rows, 20), np.int8) for n, rows in (("W", 3), ("R", 5))
    }
    made, constants = [], []
    for name, array in weights.items():
        stored = np.ascontiguousarray(array.swapaxes(1, 2)) if how == "Transpose" else array
        about = {"perm": [0, 2, 1]} if how == "Transpose" else {}
        constants += [
            numpy_helper.from_array(stored, f"{name}s"),
            numpy_helper.from_array(np.full(1, 0.01, "f"), f"{name}_scale"),
            numpy_helper.from_array(np.zeros(1, np.int8), f"{name}_point"),
        ]
        made.append(helper.make_node(how, [f"{name}s"], [name], **about))
    names = ["X", "W", "R", *[""] * 5, "W_scale", "W_point", "R_scale", "R_point"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["Y"], domain="com.microsoft", hidden_size=5
    )
    _agrees(_graph([*made, node], {"X": [4, 2, 3]}, ["Y"], constants), {"X": _normal(4, 2, 3)})


@pytest.mark.parametrize("kind", (0, 1))
@pytest.mark.parametrize(("k", "n", "block"), ((64, 24, 16), (50, 7, 32)))
def test_weights_of_four_bit_floats(kind: int, k: int, n: int, block: int) -> None:
    random = np.random.default_rng(0)
    constants = {
        "b": random.integers(0, 256, (k * n + 1) // 2, np.uint8),
        "s": random.uniform(0.1, 1, math.ceil(k * n / block)).astype("f"),
    }
    given = {"K": k, "N": n, "block_size": block, "quant_type": kind}
    node = helper.make_node("MatMulBnb4", ["a", "b", "s"], ["y"], domain="com.microsoft", **given)
    feeds = {"a": _normal(3, k)}
    _agrees(_fed(node, feeds, constants), feeds)


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def _graph(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: list[str],
    constants: list[onnx.TensorProto],
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, made, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _fed(
    node: onnx.NodeProto,
    feeds: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of one node with the inputs `feeds` and the output "y"."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", given, made, stored)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("direction", ("forward", "reverse", "bidirectional"))
@pytest.mark.parametrize("per_column", (False, True))
def test_dynamic_lstm(direction: str, per_column: bool) -> None:
    random, (steps, inputs, hidden) = np.random.default_rng(3), (6, 7, 5)
    count = 2 if direction == "bidirectional" else 1
    sizes = (count, 4 * hidden) if per_column else (count,)
    arrays = {
        "W": random.integers(-127, 128, (count, inputs, 4 * hidden)).astype(np.int8),
        "R": random.integers(-127, 128, (count, hidden, 4 * hidden)).astype(np.int8),
        "B": random.standard_normal((count, 8 * hidden)).astype(np.float32),
        **{n: random.uniform(0.001, 0.01, sizes).astype(np.float32) for n in ("ws", "rs")},
        **{n: np.zeros(sizes, np.int8) for n in ("wz", "rz")},
    }
    names = ["X", "W", "R", "B", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["Y", "Y_h", "Y_c"],
        domain="com.microsoft",
        direction=direction,
        hidden_size=hidden,
    )
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = _graph([node], {"X": [steps, 1, inputs]}, ["Y", "Y_h", "Y_c"], constants)
    _agrees(model, {"X": _normal(steps, 1, inputs)})


@pytest.mark.parametrize("clip", (None, 0.5))
def test_dynamic_lstm_of_rows_that_end(clip: float | None) -> None:
    """Ranges are those of rows that still run, which all begin in the first step."""
    random, (steps, rows, inputs, hidden) = np.random.default_rng(4), (6, 3, 7, 5)
    arrays = {
        "W": random.integers(-127, 128, (2, inputs, 4 * hidden)).astype(np.int8),
        "R": random.integers(-127, 128, (2, hidden, 4 * hidden)).astype(np.int8),
        **{n: np.full(2, 0.02, np.float32) for n in ("ws", "rs")},
        **{n: np.zeros(2, np.int8) for n in ("wz", "rz")},
        "lengths": np.array([2, 5, 3], np.int32),
        "h": _normal(2, rows, hidden) * 3,
    }
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["X", "W", "R", "", "lengths", "h", "", "", "ws", "wz", "rs", "rz"],
        ["Y", "Y_h", "Y_c"],
        domain="com.microsoft",
        direction="bidirectional",
        hidden_size=hidden,
        **({"clip": clip} if clip else {}),
    )
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = _graph([node], {"X": [steps, rows, inputs]}, ["Y", "Y_h", "Y_c"], constants)
    x = _normal(steps, rows, inputs)
    x[-1] *= 5
    _agrees(model, {"X": x})


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    (
        ("ws", (5,), "[1] or [1, 20]"),
        ("rs", (20,), "[1] or [1, 20]"),
        ("wz", (0,), "[1] or [1, 20]"),
        ("rz", (2, 20), "[1] or [1, 20]"),
        ("W", (7, 20), "[directions, inputs, 4 * hidden]"),
    ),
)
def test_dynamic_lstm_in_other_sizes(name: str, shape: tuple[int, ...], expected: str) -> None:
    sizes = {"W": (1, 7, 20), "R": (1, 5, 20), "ws": (1,), "wz": (1,), "rs": (1,), "rz": (1,)}
    constants = [
        numpy_helper.from_array(np.ones(size, np.float32 if key[1:] == "s" else np.int8), key)
        for key, size in {**sizes, name: shape}.items()
    ]
    names = ["X", "W", "R", *[""] * 5, "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["Y"], domain="com.microsoft", hidden_size=5
    )
    words = re.escape(f"has shape {list(shape)}, expected {expected}")
    with pytest.raises(ShapeError, match=words):
        InferenceSession(_graph([node], {"X": [6, 1, 7]}, ["Y"], constants))


@pytest.mark.parametrize("shape", ((12, 3, 3, 3), (16, 12, 1, 1)))
def test_channels_that_blocks_do_not_divide(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{expand_contributed.__module__}._block", lambda nodes: 8)
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain="com.microsoft.nchwc")
    weights = numpy_helper.from_array(np.ones(shape, np.float32), "w")
    model = _graph([node], {"x": [1, shape[1], 8, 8]}, ["y"], [weights])
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(ShapeError, match=r"'W'.*channels in blocks of 8"):
        InferenceSession(model)


def test_operators_without_a_kernel_in_onnxruntime() -> None:
    x, bias, skip = _normal(2, 3, 8), _normal(8), _normal(2, 3, 8)
    total = (x + bias).astype(np.float64)
    left, right = total[..., :4], total[..., 4:]
    gelu = right * 0.5 * (1 + np.vectorize(math.erf)(right / np.sqrt(2)))
    weights = np.exp(total - total.max(-1, keepdims=True))
    given = {"x": x, "b": bias, "s": skip}
    wanted = {
        "BiasAdd (x, b, s)": total + skip,
        "BiasDropout (x, b, s)": total + skip,
        "BiasSplitGelu (x, b)": left * gelu,
        "BiasSoftmax <axis = 2, is_inner_broadcast = 0> (x, b)": weights
        / weights.sum(-1, keepdims=True),
    }
    wanted["GemmFastGelu (x, w, b)"] = _fast_gelu(x @ (weight := _normal(8, 8)) + bias)
    wanted["GroupNorm <activation = 1, groups = 2> (x, b, b)"] = _group_norm(x, bias)
    wanted["SkipGroupNorm <activation = 1, groups = 2> (x, b, b, s, b)"] = _group_norm(
        x + skip + bias, bias
    )
    given["w"] = weight
    for node, want in wanted.items():
        operands = "float[2,3,8] x, float[8] b, float[2,3,8] s, float[8,8] w"
        model = _model(operands, node, 1)
        (got,) = InferenceSession(model, options=Options(cache_dir=None)).run(None, given)
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_filters_whose_last_axis_counts_channels() -> None:
    """NhwcConv, which onnxruntime has no kernel for on CPUs, as its tools for U-Nets write it."""
    x, w, b = _normal(2, 7, 6, 3), _normal(4, 3, 2, 3), _normal(4)
    node = helper.make_node("NhwcConv", ["x", "w", "b"], ["y"], domain="com.microsoft")
    model = _fed(node, {"x": x}, {"w": w, "b": b})
    (got,) = InferenceSession(model, options=Options(cache_dir=None)).run(None, {"x": x})
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2))
    want = np.einsum("nijcab,oabc->nijo", windows, w) + b
    np.testing.assert_allclose(got, want, atol=1e-4)


def _fast_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _group_norm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Two groups of channels along the last axis, `gamma` also as the bias, SiLU."""
    parts = x.astype(np.float64).reshape(*x.shape[:2], 2, -1)
    centred = parts - parts.mean((1, 3), keepdims=True)
    normal = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + 1e-5)
    result = normal.reshape(x.shape) * gamma + gamma
    return result / (1 + np.exp(-result))


@pytest.mark.parametrize("block", (8, 16))
def test_images_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{expand_contributed.__module__}._block", lambda nodes: block)
    random = np.random.default_rng(block)
    first = random.standard_normal((2 * block, 3, 3, 3)).astype(np.float32)
    second = random.standard_normal((block, 2 * block, 1, 1)).astype(np.float32)
    in_blocks = [
        first.reshape(2, block, 3, 3, 3).transpose(0, 2, 3, 4, 1),
        second.reshape(1, block, 2, block, 1, 1).transpose(0, 2, 4, 5, 3, 1),
    ]
    constants = [
        numpy_helper.from_array(array.reshape(plain.shape), name)
        for name, array, plain in zip("vw", in_blocks, (first, second), strict=True)
    ]
    blocked = {"domain": "com.microsoft.nchwc"}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], **blocked, activation="Relu"),
        helper.make_node("MaxPool", ["a"], ["b"], **blocked, kernel_shape=[2, 2]),
        helper.make_node("Conv", ["b", "w"], ["c"], **blocked, activation="HardSwish"),
        helper.make_node("ReorderOutput", ["c"], ["y"], **blocked, channels=5),
    ]
    model = _graph(nodes, {"x": [1, 3, 8, 8]}, ["y"], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    plain = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("Conv", ["b", "w"], ["p"]),
        helper.make_node("HardSigmoid", ["p"], ["s"], alpha=1 / 6, beta=0.5),
        helper.make_node("Mul", ["p", "s"], ["c"]),
        helper.make_node("Slice", ["c", "from", "to", "axis"], ["y"]),
    ]
    bounds = [
        numpy_helper.from_array(np.array([n]), name)
        for name, n in (("from", 0), ("to", 5), ("axis", 1))
    ]
    weights = [numpy_helper.from_array(a, n) for n, a in (("v", first), ("w", second))]
    same = _graph(plain, {"x": [1, 3, 8, 8]}, ["y"], [*weights, *bounds])
    feeds = {"x": _normal(1, 3, 8, 8)}
    got, want = (
        InferenceSession(m, options=Options(cache_dir=None)).run(None, feeds)[0]
        for m in (model, same)
    )
    np.testing.assert_array_equal(got, want)


def test_what_a_loop_makes_has_the_rank_of_what_it_began_with() -> None:
    """As onnxruntime's optimiser leaves attention behind a recurrence that tf2onnx wrote."""
    text = """
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[N, 4] h, int64 trips, float[N, 5, 4] q) => (float[N, 5, T] y)
    <bool go = {1}> {
        last, rows = Loop <body = b (int64 i, bool on, float[] s)
            => (bool on, float[] t, float[] row) {
            t = Tanh(s)
            row = Identity(t)
        }> (trips, go, h)
        y = com.microsoft.FusedMatMul <transB = 1, transBatchB = 1> (q, rows)
    }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    feeds = {
        "h": rng.standard_normal((2, 4)).astype("f"),
        "trips": np.array(3),
        "q": rng.standard_normal((2, 5, 4)).astype("f"),
    }
    _agrees(model, feeds)


def test_groups_that_fill_up_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution of each channel on images that have been out of their blocks."""
    monkeypatch.setattr(f"{expand_contributed.__module__}._block", lambda nodes: 8)
    w = np.zeros((8, 1, 3, 3), np.float32)
    w[:5] = _normal(5, 1, 3, 3)
    in_blocks = w.reshape(1, 8, 1, 3, 3).transpose(0, 2, 3, 4, 1).reshape(w.shape)
    blocked = {"domain": "com.microsoft.nchwc"}
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], **blocked),
        helper.make_node("Conv", ["a", "w"], ["b"], **blocked, group=8),
        helper.make_node("ReorderOutput", ["b"], ["y"], **blocked, channels=5),
    ]
    stored = [numpy_helper.from_array(in_blocks, "w")]
    model = _graph(nodes, {"x": [1, 5, 7, 7]}, ["y"], stored)
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    x = _normal(1, 5, 7, 7)
    (got,) = InferenceSession(model, options=Options(cache_dir=None)).run(None, {"x": x})
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(got, np.einsum("nchwij,cij->nchw", windows, w[:5, 0]), atol=1e-5)


def test_every_schema_has_a_definition() -> None:
    for domain, text in SCHEMAS.items():
        names = {line.split(" ")[0] for line in text.splitlines() if line[:1].isalpha()}
        names -= {"LayerNormalization"}  # has a lowering rule
        assert names == set(TABLES[domain])


@pytest.mark.parametrize(
    ("node", "reason"),
    (
        ('FusedConv <activation = "Nothing"> (x, x)', "'activation' is 'Nothing'"),
        (
            'FusedConv <activation = "LeakyRelu", activation_params = [0.2, 1.0]> (x, x)',
            r"'LeakyRelu' has 2 parameters, expected 1 \(alpha\)",
        ),
        ('FusedConv <activation = "Clip"> (x, x)', r"has 0 parameters, expected 2 \(min, max\)"),
        ("Attention <num_heads = 2, do_rotary = 1> (x, x)", "'do_rotary' is 1, expected 0"),
        ("MatMulNBits <K = 8, N = 8, block_size = 16> (x, x, x)", "'B' and 'scales' are no const"),
    ),
)
def test_refusals(node: str, reason: str) -> None:
    model = _model("float[2,8,8] x", node, 1)
    with pytest.raises(UnsupportedError, match=reason):
        InferenceSession(model, options=Options(cache_dir=None))


def test_an_attribute_that_no_schema_has_is_refused() -> None:
    model = _model("float[2,8] x", "Gelu (x)", 1)
    model.graph.node[0].attribute.append(helper.make_attribute("wrong", 1))
    with pytest.raises(Exception, match="wrong"):
        InferenceSession(model, options=Options(cache_dir=None))
