"""Products and convolutions with what is fused into them, also with images in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.model.contributed import BLOCKED
from tools.fuzz.random_contributed import Contributed, contributed, image, maybe, real, windows
from tools.fuzz.random_node import Array, Drawer

ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": (0.2,),
    "Clip": (-0.5, 0.7),
    "HardSigmoid": (0.2, 0.4),
}
# Channels in a block of onnxruntime on machines with AVX-512.
BLOCK = 16


def _activation(d: Drawer) -> dict[str, Any]:
    if d.chance(0.3):
        return {}
    name = d.choose(list(ACTIVATIONS))
    about: dict[str, Any] = {"activation": name}
    return about | ({"activation_params": ACTIVATIONS[name]} if ACTIVATIONS[name] else {})


@contributed(4)
def _fused_matmul(d: Drawer) -> Contributed:
    op = d.choose(("FusedMatMul", "FusedMatMul", "TransposeMatMul"))
    left, right = d.flag(), d.flag()
    rows, inner, columns = (d.choose((1, 3, 5, 8)) for _ in range(3))
    batch = [d.number(1, 3) for _ in range(d.number(0, 2))]
    a = [*batch, *((inner, rows) if left else (rows, inner))]
    b = [*batch, *((columns, inner) if right else (inner, columns))]
    about: dict[str, Any] = {"transA": left, "transB": right, "alpha": d.choose((1.0, 0.5, -2.0))}
    if op == "FusedMatMul" and batch and d.chance(0.4):
        # The axis of rows comes before those of the batch.
        for letter, shape in (("A", a), ("B", b)):
            shape[:-1] = [shape[-2], *shape[:-2]]
            about[f"transBatch{letter}"] = 1
    elif len(batch) == 2 and d.chance(0.3):
        b = b[1:]
    return Contributed(op, [real(d, "float32", *a), real(d, "float32", *b)], about)


@contributed(3)
def _fused_gemm(d: Drawer) -> Contributed:
    left, right, m, k, n = d.flag(), d.flag(), d.number(1, 5), d.number(1, 5), d.number(1, 9)
    a, b = ((k, m) if left else (m, k)), ((n, k) if right else (k, n))
    c = maybe(d, real(d, "float32", *d.choose(((n,), (1, n), (m, 1), (m, n), (1,), ()))))
    about = {"transA": left, "transB": right, "alpha": d.choose((1.0, 0.5)), "beta": 2.0}
    given = _activation(d)
    about |= {key: value for key, value in given.items() if key == "activation"}
    names = ("activation_alpha", "activation_beta")
    about |= dict(zip(names, given.get("activation_params", ()), strict=False))
    if about.get("activation") in ("Clip", "HardSigmoid"):
        raise LookupError
    return Contributed("FusedGemm", [real(d, "float32", *a), real(d, "float32", *b), c], about)


def _convolution(d: Drawer, ranks: tuple[int, ...]) -> tuple[Array, Array, dict[str, Any]]:
    rank, group = d.choose(ranks), d.choose((1, 1, 2))
    kernel = [d.number(1, 3) for _ in range(rank)]
    inner, outer = d.number(1, 3), d.number(1, 3)
    about = windows(d, rank, kernel) | {"group": group}
    if d.chance(0.5):
        about["kernel_shape"] = kernel
    x = real(d, "float32", *image(d, group * inner, rank))
    return x, real(d, "float32", group * outer, inner, *kernel), about


@contributed(4)
def _fused_conv(d: Drawer) -> Contributed:
    x, w, about = _convolution(d, (1, 2, 2, 3))
    bias = maybe(d, real(d, "float32", len(w)))
    return Contributed("FusedConv", [x, w, bias], about | _activation(d))


@contributed(2)
def _nhwc_pool(d: Drawer) -> Contributed:
    rank = d.choose((1, 2, 2, 3))
    kernel = [d.number(1, 3) for _ in range(rank)]
    shape = image(d, d.number(1, 17), rank)
    about = windows(d, rank, kernel) | {"kernel_shape": kernel, "ceil_mode": d.flag()}
    x = np.moveaxis(d.data(d.choose(("int8", "uint8")), shape, 0.2), 1, -1)
    return Contributed("NhwcMaxPool", [np.ascontiguousarray(x)], about)


@contributed(5)
def _narrow_weights(d: Drawer) -> Contributed:
    bits, block = d.choose((4, 4, 8, 2)), d.choose((16, 32))
    k, n = d.choose((8, 16, 20, 32, 40, 64)), d.choose((1, 3, 8, 17))
    blocks, bits_of = -(-k // block), block * bits // 8
    lead = [d.number(1, 3) for _ in range(d.number(1, 3))]
    a = real(d, "float32", *lead, k)
    packed = d.random.integers(0, 256, (n, blocks, bits_of)).astype(np.uint8)
    scales = real(d, "float32", n * blocks) if d.chance(0.5) else real(d, "float32", n, blocks)
    size = -(-blocks * bits // 8)
    zero = d.random.integers(0, 256, n * size).astype(np.uint8) if d.chance(0.5) else None
    if zero is not None and d.chance(0.5):
        zero = zero.reshape(n, size)
    bias = maybe(d, real(d, "float32", n), 0.3)
    # Sums of bytes need an operator of opset 12.
    level = d.choose((0, 4)) if d.opset >= 12 else 0
    about = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    return Contributed(
        "MatMulNBits", [a, packed, scales, zero, None, bias], about, fixed=(1, 2, 3, 5)
    )


@contributed(3)
def _codes(d: Drawer) -> Contributed:
    block, k, n = d.choose((16, 32, 64)), d.choose((16, 32, 64, 24)), d.choose((1, 3, 8))
    a = real(d, "float32", *[d.number(1, 3) for _ in range(d.number(1, 2))], k)
    packed = d.random.integers(0, 256, (n * k + 1) // 2).astype(np.uint8)
    largest = np.abs(real(d, "float32", -(-n * k // block)))
    about = {"K": k, "N": n, "block_size": block, "quant_type": d.flag()}
    return Contributed("MatMulBnb4", [a, packed, largest], about, fixed=(1, 2))


@contributed(3)
def _gathered(d: Drawer) -> Contributed:
    rows, columns, block = d.number(2, 5), d.choose((32, 64, 40)), d.choose((16, 32))
    bits = d.choose((4, 8))
    shape = (rows, columns) if d.chance(0.6) else (rows, 2, columns)
    rank = len(shape)
    packed = d.random.integers(0, 256, (*shape[:-1], columns * bits // 8)).astype(np.uint8)
    blocks = -(-columns // block)
    scales = real(d, "float32", *shape[:-1], blocks)
    width = -(-blocks * bits // 8)
    zero = maybe(d, d.random.integers(0, 256, (*shape[:-1], width)).astype(np.uint8))
    indices = d.random.integers(-rows, rows, [d.number(1, 3) for _ in range(d.number(0, 2))])
    indices = np.asarray(indices, d.choose(("int64", "int32")))
    about = {"gather_axis": 0, "quantize_axis": rank - 1, "block_size": block, "bits": bits}
    operands = [packed, indices, scales, zero]
    return Contributed("GatherBlockQuantized", operands, about, fixed=(0, 2, 3))


def _blocks(weights: Array, by_input: bool) -> Array:
    """Weights `[O, I, ..]` in the order of onnxruntime's kernels."""
    outputs, inputs, *kernel = weights.shape
    window = tuple(range(3, 3 + len(kernel)))
    parts = weights.reshape(outputs // BLOCK, BLOCK, inputs, *kernel)
    if not by_input:
        return parts.transpose(0, 2, *window, 1).reshape(weights.shape)
    both = weights.reshape(outputs // BLOCK, BLOCK, inputs // BLOCK, BLOCK, *kernel)
    window = tuple(range(4, 4 + len(kernel)))
    return both.transpose(0, 2, *window, 3, 1).reshape(weights.shape)


@contributed(3)
def _blocked_conv(d: Drawer) -> Contributed:
    kernel = [d.number(1, 3), d.number(1, 3)]
    inputs, outputs = BLOCK * d.number(1, 2), BLOCK * d.number(1, 2)
    is_depthwise = d.chance(0.3)
    shape = (outputs, 1 if is_depthwise else inputs, *kernel)
    x = real(d, "float32", *image(d, outputs if is_depthwise else inputs, 2))
    w = _blocks(real(d, "float32", *shape), by_input=not is_depthwise)
    about = windows(d, 2, kernel) | {"group": outputs if is_depthwise else 1}
    about |= {"kernel_shape": kernel}
    operands = [x, w, maybe(d, real(d, "float32", outputs))]
    about |= _activation(d)
    return Contributed("Conv", operands, about, fixed=(1, 2), domain=BLOCKED, channels=outputs)


@contributed(3)
def _blocked_pool(d: Drawer) -> Contributed:
    op = d.choose(("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Upsample"))
    kernel = [d.number(1, 3), d.number(1, 3)]
    channels = BLOCK * d.number(1, 2)
    about: dict[str, Any] = {}
    if op in ("MaxPool", "AveragePool"):
        about = windows(d, 2, kernel, op == "MaxPool") | {"kernel_shape": kernel}
        about["ceil_mode"] = d.flag()
    if op == "AveragePool" and not about["ceil_mode"]:
        # onnxruntime divides sums of windows beyond the padding by all of the window.
        about["count_include_pad"] = d.flag()
    if op == "Upsample":
        about["scales"] = [1, 1, d.number(1, 3), d.number(1, 3)]
        about["mode"] = d.choose(("nearest", "linear"))
        if about["mode"] == "linear":
            ways = ("asymmetric", "align_corners", "half_pixel")
            about["coordinate_transformation_mode"] = d.choose(ways)
    x = real(d, "float32", *image(d, channels, 2))
    return Contributed(op, [x], about, domain=BLOCKED, channels=channels)
