"""Products with weights of few bits, against onnxruntime."""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from ostinato import InferenceSession, ShapeError
from tests import witness
from tests.definitions.contributed.nodes import agrees, fed, graph, normal


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
    given = normal(*rows, k).astype(dtype)
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
    agrees(*_of_few_bits((40, 6, bits, 32), (2, 3), points))


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
    agrees(*_of_few_bits(sizes, (3,), points, dtype, accuracy_level=4))


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


def test_weights_of_few_bits_stay_narrow() -> None:
    random, (k, n) = np.random.default_rng(0), (256, 64)
    packed = random.integers(0, 256, (n, k // 32, 16)).astype(np.uint8)
    scales = random.uniform(0.01, 0.1, (n, k // 32)).astype(np.float32)
    constants = [numpy_helper.from_array(a, name) for a, name in ((packed, "b"), (scales, "s"))]
    node = helper.make_node(
        "MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, block_size=32
    )
    session = InferenceSession(graph([node], {"a": [1, k]}, ["y"], constants), cache_dir=None)
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
        InferenceSession(graph([node], {"a": [2, 40]}, ["y"], constants))


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
    model = fed(node, feeds, constants, opset=21)
    (want,) = witness.run(model.SerializeToString(), feeds)
    (got,) = InferenceSession(model, fallback=False).run(None, feeds)
    np.testing.assert_array_equal(got, want)


def test_rows_of_few_bits_in_other_sizes() -> None:
    constants = {"d": np.zeros((8, 16), np.uint8), "s": np.ones((8, 2), np.float32)}
    node = helper.make_node(
        "GatherBlockQuantized", ["d", "i", "s"], ["y"], domain="com.microsoft", block_size=32
    )
    with pytest.raises(ShapeError, match=r"input 's\w*' has shape \[8, 2\], expected \[8, 1\]"):
        InferenceSession(fed(node, {"i": np.zeros((2,), np.int64)}, constants))


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
    agrees(graph([*made, node], {"X": [4, 2, 3]}, ["Y"], constants), {"X": normal(4, 2, 3)})


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
    feeds = {"a": normal(3, k)}
    agrees(fed(node, feeds, constants), feeds)
