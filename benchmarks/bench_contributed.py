"""Operators of onnxruntime's own domain, at sizes of real networks, beside onnxruntime.

    taskset -c 1 python -m benchmarks.bench_contributed [WORDS]

WORDS choose the operators whose name contains one of them. One thread, CPU seconds of calls that
take turns; a ratio above 1 says that the code here is faster.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

import ostinato
from benchmarks import harness
from benchmarks.bench_narrow import measure

IMAGE = "uint8[1,64,56,56] x | S xs, U xz, S ys, U yz"
LAST = "uint8[1,56,56,64] x | S xs, U xz, S ys, U yz"
PAIR = "uint8[1,64,56,56] x, uint8[1,64,56,56] z | S xs, U xz, S zs, U zz, S ys, U yz"
TOKENS = "float[1,128,768] x"
HEADS = "float[1,128,768] q, float[1,128,768] k, float[1,128,768] v"
CACHE = "float[1,4,512,64] pk, float[1,4,512,64] pv, int32[1] last, int32 total"
LONG_CACHE = CACHE.replace("1,4,512", "1,8,2048")

# Operands, constants behind a bar, and the node, whose result is y where nothing is said. S and T
# are positive scales, U is a uint8, I and J are zeros of int8.
CASES = {
    "QLinearAdd": (PAIR, "QLinearAdd (x, xs, xz, z, zs, zz, ys, yz)"),
    "QLinearMul": (PAIR, "QLinearMul (x, xs, xz, z, zs, zz, ys, yz)"),
    "QLinearConcat": (PAIR, "QLinearConcat <axis = 1> (ys, yz, x, xs, xz, z, zs, zz)"),
    "QLinearSigmoid": (IMAGE, "QLinearSigmoid (x, xs, xz, ys, yz)"),
    "QLinearLeakyRelu": (IMAGE, "QLinearLeakyRelu <alpha = 0.1> (x, xs, xz, ys, yz)"),
    "QLinearSoftmax": (
        "uint8[12,128,128] x | S xs, U xz, S ys, U yz",
        "QLinearSoftmax <axis = -1, opset = 13> (x, xs, xz, ys, yz)",
    ),
    "QLinearGlobalAveragePool": (IMAGE, "QLinearGlobalAveragePool (x, xs, xz, ys, yz)"),
    "QLinearGlobalAveragePool, last": (
        LAST,
        "QLinearGlobalAveragePool <channels_last = 1> (x, xs, xz, ys, yz)",
    ),
    "QLinearAveragePool": (
        IMAGE,
        "QLinearAveragePool <kernel_shape = [3,3], strides = [2,2]> (x, xs, xz, ys, yz)",
    ),
    "QLinearConv, last": (
        "uint8[1,56,56,64] x | S xs, U xz, int8[64,64,3,3] w, S ws, I wz, S ys, U yz, int32[64] b",
        "QLinearConv <channels_last = 1, kernel_shape = [3,3], pads = [1,1,1,1]> "
        "(x, xs, xz, w, ws, wz, ys, yz, b)",
    ),
    "QLinearConv, depthwise": (
        "uint8[1,56,56,64] x | S xs, U xz, int8[64,1,3,3] w, S ws, I wz, S ys, U yz, int32[64] b",
        "QLinearConv <channels_last = 1, kernel_shape = [3,3], pads = [1,1,1,1], group = 64> "
        "(x, xs, xz, w, ws, wz, ys, yz, b)",
    ),
    "NhwcMaxPool": (
        "uint8[1,56,56,64] x",
        "NhwcMaxPool <kernel_shape = [3,3], strides = [2,2]> (x)",
    ),
    "MatMulIntegerToFloat, 1": (
        "uint8[1,512] x | int8[512,512] w, S xs, S ws, U xz, I wz, float[512] b",
        "MatMulIntegerToFloat (x, w, xs, ws, xz, wz, b)",
    ),
    "MatMulIntegerToFloat, 128": (
        "uint8[128,512] x | int8[512,512] w, S xs, S ws, U xz, I wz, float[512] b",
        "MatMulIntegerToFloat (x, w, xs, ws, xz, wz, b)",
    ),
    "DynamicQuantizeMatMul, 1": (
        "float[1,512] x | int8[512,512] w, S ws, I wz, float[512] b",
        "DynamicQuantizeMatMul (x, w, ws, wz, b)",
    ),
    "DynamicQuantizeMatMul, 128": (
        "float[128,512] x | int8[512,512] w, S ws, I wz, float[512] b",
        "DynamicQuantizeMatMul (x, w, ws, wz, b)",
    ),
    "QGemm": (
        "uint8[128,512] x | S xs, U xz, int8[512,512] w, S ws, I wz, int32[512] b, S ys, U yz",
        "QGemm <transB = 1> (x, xs, xz, w, ws, wz, b, ys, yz)",
    ),
    "DynamicQuantizeLSTM": (
        "float[50,1,256] x | int8[1,256,1024] w, int8[1,256,1024] r, float[1,2048] b, "
        "T[1,1024] ws, J[1,1024] wz, T[1,1024] rs, J[1,1024] rz",
        "DynamicQuantizeLSTM <hidden_size = 256> (x, w, r, b, , , , , ws, wz, rs, rz)",
    ),
    "QAttention": (
        "uint8[1,128,768] x | int8[768,2304] w, float[2304] b, S xs, S ws, U xz, I wz",
        "QAttention <num_heads = 12> (x, w, b, xs, ws, , xz, wz)",
    ),
    "Attention": (
        f"{TOKENS} | float[768,2304] w, float[2304] b",
        "Attention <num_heads = 12> (x, w, b)",
    ),
    "MultiHeadAttention": (HEADS, "MultiHeadAttention <num_heads = 12> (q, k, v)"),
    "GroupQueryAttention": (
        f"float[1,1,512] q, float[1,1,256] k, float[1,1,256] v, {CACHE} | float[600,32] c, "
        "float[600,32] s",
        "y, a, e = GroupQueryAttention <num_heads = 8, kv_num_heads = 4, do_rotary = 1> "
        "(q, k, v, pk, pv, last, total, c, s)",
    ),
    "GroupQueryAttention, 8 MiB": (
        f"float[1,1,512] q, float[1,1,512] k, float[1,1,512] v, {LONG_CACHE} | float[600,32] c, "
        "float[600,32] s",
        "y, a, e = GroupQueryAttention <num_heads = 8, kv_num_heads = 8, do_rotary = 1> "
        "(q, k, v, pk, pv, last, total, c, s)",
    ),
    "RotaryEmbedding": (
        f"{TOKENS}, int64[1] p | float[512,32] c, float[512,32] s",
        "RotaryEmbedding <num_heads = 12> (x, p, c, s)",
    ),
    "Gelu": ("float[1,128,3072] x", "Gelu (x)"),
    "BiasGelu": ("float[1,128,3072] x | float[3072] b", "BiasGelu (x, b)"),
    "FastGelu": ("float[1,128,3072] x | float[3072] b", "FastGelu (x, b)"),
    "QuickGelu": ("float[1,128,3072] x", "QuickGelu <alpha = 1.702> (x)"),
    "SkipLayerNormalization": (
        f"{TOKENS}, float[1,128,768] k | float[768] g, float[768] b",
        "SkipLayerNormalization (x, k, g, b)",
    ),
    "SkipSimplifiedLayerNormalization": (
        f"{TOKENS}, float[1,128,768] k | float[768] g",
        "SkipSimplifiedLayerNormalization (x, k, g)",
    ),
    "EmbedLayerNormalization": (
        "int32[1,128] i | float[1000,768] w, float[512,768] t, float[768] g, float[768] b",
        "y, m = EmbedLayerNormalization (i, , w, t, , g, b)",
    ),
    "FusedConv": (
        "float[1,64,56,56] x | float[64,64,3,3] w, float[64] b",
        'FusedConv <activation = "Relu", pads = [1,1,1,1], kernel_shape = [3,3]> (x, w, b)',
    ),
    "FusedMatMul": (
        "float[12,128,64] x, float[12,128,64] z",
        "FusedMatMul <transB = 1, alpha = 0.125> (x, z)",
    ),
    "FusedGemm": (
        "float[128,512] x | float[512,512] w, float[512] b",
        'FusedGemm <activation = "Relu"> (x, w, b)',
    ),
    "MatMulNBits, 1": (
        "float[1,512] x | uint8[512,16,16] w, T[8192] s",
        "MatMulNBits <K = 512, N = 512, bits = 4, block_size = 32> (x, w, s)",
    ),
    "MatMulNBits, 128": (
        "float[128,512] x | uint8[512,16,16] w, T[8192] s",
        "MatMulNBits <K = 512, N = 512, bits = 4, block_size = 32> (x, w, s)",
    ),
    "MatMulNBits of bytes, 1": (
        "float[1,512] x | uint8[512,16,16] w, T[8192] s",
        "MatMulNBits <K = 512, N = 512, bits = 4, block_size = 32, accuracy_level = 4> (x, w, s)",
    ),
    "MatMulNBits of bytes, 128": (
        "float[128,512] x | uint8[512,16,16] w, T[8192] s",
        "MatMulNBits <K = 512, N = 512, bits = 4, block_size = 32, accuracy_level = 4> (x, w, s)",
    ),
    "MatMulBnb4": (
        "float[1,512] x | uint8[131072] w, T[4096] s",
        "MatMulBnb4 <K = 512, N = 512, block_size = 64, quant_type = 1> (x, w, s)",
    ),
    "GatherBlockQuantized": (
        "int32[1,128] i | uint8[1000,384] w, T[1000,24] s",
        "GatherBlockQuantized <block_size = 32> (w, i, s)",
    ),
    "QEmbedLayerNormalization": (
        "int32[1,128] i | uint8[1000,768] w, uint8[512,768] t, uint8[768] g, uint8[768] b, "
        "T s, U z",
        "y, m = QEmbedLayerNormalization (i, , w, t, , g, b, , s, s, , s, s, z, z, , z, z)",
    ),
}
SHORT = {"S": "float", "U": "uint8", "I": "int8", "T": "float", "J": "int8"}


def drawn(kind: str, name: str, shape: list[int]) -> np.ndarray:
    """An operand: S and T are scales, U and zeros I and J points, `i` tokens, the rest random."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if kind in ("S", "T"):
        return random.uniform(0.005, 0.02, shape).astype(np.float32)
    if kind in ("I", "J"):
        return np.zeros(shape, np.int8)
    if kind == "U":
        return np.array(117, np.uint8)
    fixed = {"last": np.full(shape, 400), "total": np.array(401), "p": np.zeros(shape)}
    if name in fixed:
        return fixed[name].astype(kind)
    if kind == "float":
        return (random.standard_normal(shape) * 0.5).astype(np.float32)
    if name == "i":
        return random.integers(0, 1000, shape).astype(kind)
    limits = np.iinfo(kind)
    return random.integers(limits.min // 2, limits.max // 2, shape).astype(kind)


def made(operands: str, node: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and its inputs."""
    given, _, fixed = operands.partition(" | ")
    feeds, declared, constants = {}, [], []
    for text in [*given.split(", "), *filter(None, fixed.split(", "))]:
        head, name = text.split(" ")
        kind, _, sizes = head.partition("[")
        shape = [int(n) for n in sizes.rstrip("]").split(",") if n]
        array = drawn(kind, name, shape)
        if text in fixed.split(", "):
            constants.append(numpy_helper.from_array(array, name))
            continue
        feeds[name] = array
        declared.append(f"{SHORT.get(kind, kind)}{shape or ''} {name}")
    results, _, call = node.partition(" = ") if node.startswith("y, ") else ("y", "", node)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
        f"g ({', '.join(declared)}) => (float y) {{ {results} = com.microsoft.{call} }}"
    )
    model.graph.initializer.extend(constants)
    whole = operands.startswith("uint8") and "y" in node and "ys" in node
    kind = onnx.TensorProto.UINT8 if whole or "MaxPool" in node else onnx.TensorProto.FLOAT
    model.graph.output[0].type.tensor_type.elem_type = kind
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model, feeds


def calls(name: str) -> dict[str, Callable[[], object]]:
    """A call of each runtime."""
    import onnxruntime

    model, feeds = made(*CASES[name])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    return {"ostinato": ours.bind(feeds), "onnxruntime": lambda: theirs.run(None, feeds)}


def main() -> None:
    """Measure and print."""
    parser = harness.parser("operators of onnxruntime's own domain")
    parser.add_argument("words", nargs="*", help="operators whose name contains one of these")
    arguments = parser.parse_args()
    harness.start(arguments)
    columns = ["ostinato, us", "onnxruntime, us", "times faster"]
    table = harness.table("operators of com.microsoft", "operator", columns)
    for name in CASES:
        if arguments.words and not any(word in name for word in arguments.words):
            continue
        found = measure(calls(name))
        ours, theirs = (found[key] * 1e6 for key in ("ostinato", "onnxruntime"))
        table.add_row(name, f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}")
    harness.console.print(table)


if __name__ == "__main__":
    main()
