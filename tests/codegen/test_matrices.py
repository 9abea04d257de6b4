"""Products of bytes in registers of tiles: the sums of any other way to compute them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ostinato import InferenceSession, Options
from ostinato.codegen.target import host_target
from ostinato.compiler import stages

has_tiles = pytest.mark.skipif(
    not host_target().machine.byte_tiles, reason="this machine has no registers of tiles"
)


def product(rows: int | str, words: np.ndarray, zero: int, batch: tuple[int, ...] = ()) -> object:
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, [*batch, rows, len(words)])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, None)]
    constants = [
        numpy_helper.from_array(words, "w"),
        numpy_helper.from_array(np.uint8(zero), "z"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# Rows, terms and columns that fill registers and that do not; each also with nothing left of them.
SHAPES = [
    (16, 64, 16),
    (33, 128, 64),
    (47, 132, 80),
    (17, 124, 130),
    (31, 190, 17),
    (16, 65, 48),
    (100, 512, 33),
]


@pytest.mark.parametrize(("rows", "terms", "columns"), SHAPES)
def test_sums(rows, terms, columns):
    rng = np.random.default_rng(rows)
    x = rng.integers(0, 256, (rows, terms)).astype(np.uint8)
    w = rng.integers(-128, 128, (terms, columns)).astype(np.int8)
    session = InferenceSession(product(rows, w, 77), cache_dir=None)
    expected = (x.astype(np.int64) - 77) @ w.astype(np.int64)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_batches_and_threads():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (3, 40, 256)).astype(np.uint8)
    w = rng.integers(-128, 128, (256, 96)).astype(np.int8)
    expected = (x.astype(np.int64) - 9) @ w.astype(np.int64)
    for threads in (1, 2):
        session = InferenceSession(product(40, w, 9, (3,)), cache_dir=None, threads=threads)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def convolution(
    shape: tuple[int, ...],
    w: np.ndarray,
    zero: np.ndarray,
    stride: int,
    is_last: bool,
    group: int = 1,
) -> object:
    """ConvInteger with a border of one pixel, of images whose channels come last or second."""
    source, target = ("x", "z") if is_last else ("image", "y")
    about = {"pads": [1] * 4, "strides": [stride] * 2, "group": group}
    nodes = [helper.make_node("ConvInteger", [source, "w", "p"], [target], **about)]
    if is_last:
        nodes.insert(0, helper.make_node("Transpose", ["image"], ["x"], perm=[0, 3, 1, 2]))
        nodes.append(helper.make_node("Transpose", ["z"], ["y"], perm=[0, 2, 3, 1]))
    kind = helper.np_dtype_to_tensor_dtype(zero.dtype)
    image = helper.make_tensor_value_info("image", kind, shape)
    result = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(zero, "p")]
    graph = helper.make_graph(nodes, "g", [image], [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# Height, width, channels, filters, size of the filters, stride.
IMAGES = [
    (5, 33, 64, 64, 3, 1),
    (9, 40, 36, 20, 3, 2),
    (6, 20, 80, 16, 1, 1),
    (4, 17, 64, 70, 3, 1),
    (3, 18, 8, 32, 3, 1),
    (14, 14, 32, 48, 3, 1),
]


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("is_last", [False, True], ids=["second", "last"])
def test_convolutions(image, dtype, is_last):
    height, width, channels, filters, size, stride = image
    rng = np.random.default_rng(width)
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max + 1, (2, channels, height, width)).astype(dtype)
    w = rng.integers(-128, 128, (filters, channels, size, size)).astype(np.int8)
    zero = np.array(77, dtype)
    padded = np.pad(x.astype(np.int64) - 77, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    expected = np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int64), optimize=True)
    if is_last:
        x, expected = (a.transpose(0, 2, 3, 1).copy() for a in (x, expected))
    for threads in (1, 2):
        model = convolution(x.shape, w, zero, stride, is_last)
        session = InferenceSession(model, cache_dir=None, threads=threads)
        np.testing.assert_array_equal(session.run(None, {"image": x})[0], expected)


@pytest.mark.parametrize(("group", "stride"), [(16, 1), (16, 2), (4, 1), (2, 2)])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("is_last", [False, True], ids=["second", "last"])
def test_convolutions_in_groups(group, stride, dtype, is_last):
    rng, limits, depth = np.random.default_rng(group), np.iinfo(dtype), 16 // group
    x = rng.integers(limits.min, limits.max + 1, (2, 16, 9, 20)).astype(dtype)
    w = rng.integers(-128, 128, (32, depth, 3, 3)).astype(np.int8)
    zero = np.array(77, dtype)
    padded = np.pad(x.astype(np.int64) - 77, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    windows = windows.reshape(2, group, depth, *windows.shape[2:])
    filters = w.astype(np.int64).reshape(group, 32 // group, depth, 3, 3)
    expected = np.einsum("ngchwij,gmcij->ngmhw", windows, filters, optimize=True)
    expected = expected.reshape(2, 32, *expected.shape[3:])
    if is_last:
        x, expected = (a.transpose(0, 2, 3, 1).copy() for a in (x, expected))
    model = convolution(x.shape, w, zero, stride, is_last, group)
    session = InferenceSession(model, cache_dir=None)
    np.testing.assert_array_equal(session.run(None, {"image": x})[0], expected)


@has_tiles
def test_only_where_the_system_was_asked():
    model = product(64, np.ones((64, 64), np.int8), 1)
    here = dict(stages(model, Options(cache_dir=None)))
    assert "tdpbusd" in here["asm"]
    other = dict(stages(model, Options(cache_dir=None, target="x86-64-v4")))
    assert "tdpbusd" not in other["asm"]
    wide = np.ones((64, 64), np.int8)
    few = dict(stages(product(3, wide, 1), Options(cache_dir=None)))
    assert "tdpbusd" not in few["asm"]


@has_tiles
def test_many_products_of_other_sizes():
    """Their sizes do not become parameters of one function."""
    nodes, inputs, outputs, constants = [], [], [], []
    for i in range(9):
        depth = 96 + 16 * i
        constants.append(numpy_helper.from_array(np.ones((depth, 64), np.int8), f"w{i}"))
        nodes.append(helper.make_node("MatMulInteger", [f"x{i}", f"w{i}"], [f"y{i}"]))
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.UINT8, [64, depth]))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.INT32, None))
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    code = dict(stages(model, Options(cache_dir=None)))["asm"]
    assert "tdpbusd" in code and "vpdpbusd" not in code


@has_tiles
def test_a_program_starts_anew(tmp_path):
    """Code from the cache runs in a process that has compiled nothing, and so asked for nothing."""
    x, ones = np.full((64, 64), 3, np.uint8), np.ones((64, 64), np.int8)
    InferenceSession(product(64, ones, 1), cache_dir=tmp_path).run(None, {"x": x})
    text = f"""
import numpy as np, ostinato
from tests.codegen.test_matrices import product
x, ones = np.full((64, 64), 3, np.uint8), np.ones((64, 64), np.int8)
session = ostinato.InferenceSession(product(64, ones, 1), cache_dir={str(tmp_path)!r})
print(session.report()["from_cache"], session.run(None, {{"x": x}})[0].sum())
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert run.stdout.split() == ["True", str(2 * 64**3)], run.stderr
