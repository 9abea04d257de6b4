"""Operators of onnxruntime's tools, against onnxruntime: nodes of each, with varied operands."""

from __future__ import annotations

import math
import zlib

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from ostinato import InferenceSession, Options, ShapeError, UnsupportedError, optimize
from ostinato.definitions.contributed.tables import TABLES
from ostinato.model.contributed import SCHEMAS, register_contributed
from tests.definitions.contributed.nodes import agrees, fed, normal

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
    agrees(model, feeds)


@pytest.mark.parametrize("name", CASES)
def test_nodes(name: str) -> None:
    operands, node, outputs = CASES[name]
    if node.startswith("Skip"):
        # Means and deviations are declared as outputs that onnxruntime leaves out.
        made = _model(operands, node, outputs)
        made.graph.node[0].output[1:3] = ["", ""]
        del made.graph.output[1:3]
        agrees(made, _feeds(operands))
        return
    agrees(_model(operands, node, outputs), _feeds(operands))


@pytest.mark.parametrize("name", ["NhwcMaxPool", "GroupQueryAttention"])
def test_operators_that_the_oldest_operator_set_knows_for_fewer_types(name: str) -> None:
    operands, node, outputs = CASES[name]
    agrees(_model(operands, node, outputs, 11), _feeds(operands))


@pytest.mark.parametrize("name", ["DequantizeLinear", "QuantizeLinear"])
def test_sixteen_bits_where_the_standard_has_them(name: str) -> None:
    operands, node, outputs = CASES[name]
    model = _model(operands, node, outputs, 21)
    agrees(model, _feeds(operands))
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
    agrees(model, _feeds(operands))


@pytest.mark.parametrize("lengths", ([2, 4], [3, 5, 1, 0]))
@pytest.mark.parametrize("names", ("x", "m", "xm"))
def test_lengths_of_as_many_rows_as_a_run_tells(lengths: list[int], names: str) -> None:
    """Ends of rows, behind which the first keys may follow."""
    operands = f"{_QKV}, int32[{len(lengths)}] m"
    model = _model(operands, "Attention <num_heads = 2> (x, w, b, m)", 1)
    for value in model.graph.input:
        if value.name in names:
            value.type.tensor_type.shape.dim[0].dim_param = f"N{value.name}"
    agrees(model, {**_feeds(operands), "m": np.array(lengths, np.int32)})


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
    feeds = {"a": normal(2, 8)}
    model = fed(node, feeds, constants, opset=20)
    model.graph.node.append(product)
    agrees(model, feeds)


@pytest.mark.parametrize("opset", (11, 17, 21))
@pytest.mark.parametrize("node", ("SimplifiedLayerNormalization", "LayerNormalization"))
def test_versions_that_the_standard_does_not_have(node: str, opset: int) -> None:
    operands = "float[2,5,8] x, float[8] g"
    agrees(_model(operands, f"{node} <epsilon = 0.001> (x, g)", 1, opset), _feeds(operands))


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


def test_operators_without_a_kernel_in_onnxruntime() -> None:
    x, bias, skip = normal(2, 3, 8), normal(8), normal(2, 3, 8)
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
    wanted["GemmFastGelu (x, w, b)"] = _fast_gelu(x @ (weight := normal(8, 8)) + bias)
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
    x, w, b = normal(2, 7, 6, 3), normal(4, 3, 2, 3), normal(4)
    node = helper.make_node("NhwcConv", ["x", "w", "b"], ["y"], domain="com.microsoft")
    model = fed(node, {"x": x}, {"w": w, "b": b})
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
    agrees(model, feeds)


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
