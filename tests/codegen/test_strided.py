"""Lanes that lie close together: every stride, both ways, at the ends of memory."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ostinato
from ostinato.codegen.strided import SPREAD, load_close, load_spread, load_windows
from ostinato.codegen.writer import Value, Writer, integer
from ostinato.compiler import stages
from ostinato.options import Options

STRIDES = (-1, 2, -2, 3, -3, 4, 5)


def sliced(stride: int, dtype: int) -> onnx.ModelProto:
    """y = x[::stride], in a kernel of its own."""
    start, stop = (0, 2**62) if stride > 0 else (2**62, -(2**62))
    constants = [
        helper.make_tensor(name, onnx.TensorProto.INT64, [1], [number])
        for name, number in (("start", start), ("stop", stop), ("axis", 0), ("stride", stride))
    ]
    node = helper.make_node("Slice", ["x", "start", "stop", "axis", "stride"], ["y"])
    x = helper.make_tensor_value_info("x", dtype, ["N"])
    y = helper.make_tensor_value_info("y", dtype, ["M"])
    graph = helper.make_graph([node], "sliced", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


class Memory(Writer):
    """In place of a writer: loads and shuffles what is written, from so many elements."""

    def __init__(self, size: int) -> None:
        super().__init__(set())
        self._elements = np.arange(1.0, size + 1)
        self.vectors = {"zeroinitializer": np.zeros(64)}
        self.loads = 0

    def pointer(self, address: Value, offset: Value, _: str) -> Value:
        return integer(int(address.text) + int(offset.text))

    def emit(self, type_: str, text: str) -> Value:
        operands = re.findall(r"%\d+|zeroinitializer", text)
        if text.startswith("load"):
            count = int((re.findall(r"<(\d+) x", text) or [1])[0])
            start = int(re.findall(r"ptr (-?\d+)", text)[0])
            assert 0 <= start <= self._elements.size - count, "a load outside of memory"
            vector, self.loads = self._elements[start : start + count], self.loads + 1
        elif text.startswith("insertelement"):
            vector = np.array([self.vectors[operands[1]][0], *[0.0] * 63])
        else:
            picks = [int(n) for n in re.findall(r"i32 (\d+)", text)]
            width = int(re.findall(r"<(\d+) x", text)[0])
            both = np.concatenate([self.vectors[name][:width] for name in operands])
            vector = both[picks]
        name = f"%{len(self.vectors)}"
        self.vectors[name] = vector
        return Value(name, type_)


@pytest.mark.parametrize("stride", [1, -1, 2, -2])
@pytest.mark.parametrize("width", [4, 16])
def test_lanes_close_to_each_other_are_found_in_two_vectors(stride, width):
    for alive in range(1, width + 1):
        span = (alive - 1) * abs(stride) + 1
        memory = Memory(span)
        first = integer(0 if stride > 0 else span - 1)
        found = load_close(memory, first, stride, "float", width, 4, alive)
        lanes = np.zeros(width)
        lanes[:alive] = np.arange(1.0, span + 1)[::stride]
        np.testing.assert_array_equal(memory.vectors[found.text][:width], lanes)
        assert memory.loads <= 2


@pytest.mark.parametrize("width", [2, 4, 16])
def test_taps_of_windows_two_elements_apart_are_found_in_three_vectors(width):
    for alive in range(2, width + 1):
        for taps in range(2, width + 1):
            span = 2 * (alive - 1) + taps
            memory = Memory(span)
            found = load_windows(memory, integer(0), "float", width, 4, alive, taps)
            for tap, lanes in enumerate(found):
                expected = np.arange(1.0, span + 1)[tap::2][:alive]
                np.testing.assert_array_equal(memory.vectors[lanes.text][:alive], expected)
            assert memory.loads <= 3


@pytest.mark.parametrize(
    ("taps", "dtype"),
    [
        *((taps, "float32") for taps in (1, 2, 3, 5, 7)),
        *((taps, "float64") for taps in (2, 5)),
        *((taps, "uint8") for taps in (1, 3, 7)),
    ],
)
def test_windows_two_elements_apart(taps: int, dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def session(size: int | str, length: int | str) -> ostinato.InferenceSession:
        node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[taps], strides=[2])
        infos = [
            helper.make_tensor_value_info(name, kind, [1, 2, n])
            for name, n in (("x", size), ("y", length))
        ]
        graph = helper.make_graph([node], "g", infos[:1], infos[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        return ostinato.InferenceSession(model, cache_dir=None)

    of_any_size = session("N", "M")
    for length in (1, 2, 7, 14, 16, 17, 28, 33, 64, 77, 129):
        size = 2 * (length - 1) + taps
        x = np.random.default_rng(size).integers(0, 200, (1, 2, size)).astype(dtype)
        windows = np.lib.stride_tricks.sliding_window_view(x, taps, axis=2)
        for one in (of_any_size, session(size, length)):
            (y,) = one.run(None, {"x": x})
            np.testing.assert_array_equal(y, windows.max(-1)[..., ::2])


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "float16"])
def test_loads(stride: int, dtype: str) -> None:
    model = sliced(stride, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    session = ostinato.InferenceSession(model, cache_dir=None)
    for length in (0, 1, 2, 15, 31, 32, 33, 64, 127, 128, 129, 300):
        x = np.arange(length).astype(dtype)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, x[::stride])


@pytest.mark.parametrize("stride", [1, 2, -1, -2])
def test_bytes_of_an_axis_that_fills_no_register(stride: int) -> None:
    """A pool reads and writes them in parts; it touches nothing behind the last one."""
    step, reverse = abs(stride), stride < 0
    for length in (2, 13, 31, 56, 63):
        nodes = [helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2], strides=[step])]
        ends = [np.array([n]) for n in ((-1, -1000, 2, -1) if reverse else (0, 1000, 2, 1))]
        constants = [numpy_helper.from_array(n, name) for n, name in zip(ends, "seat", strict=True)]
        nodes.append(helper.make_node("Slice", ["p", *"seat"], ["y"]))
        size = 2 + (length - 1) * step
        shapes = {"x": [1, 3, size], "y": [1, 3, length]}
        x_info, y_info = (
            helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, shape)
            for name, shape in shapes.items()
        )
        graph = helper.make_graph(nodes, "g", [x_info], [y_info], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        x = np.random.default_rng(length).integers(0, 256, (1, 3, size)).astype(np.uint8)
        pairs = np.maximum(x[..., :-1], x[..., 1:])[..., ::step]
        (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
        np.testing.assert_array_equal(y, pairs[..., ::-1] if reverse else pairs)


@pytest.mark.parametrize("stride", [-1, 2, *SPREAD])
def test_close_lanes_are_not_gathered(stride: int) -> None:
    def gathers(step: int) -> int:
        options = Options(target="x86-64-v4")
        text = dict(stages(sliced(step, onnx.TensorProto.FLOAT), options))["llvm"]
        return text.count("call <16 x float> @llvm.masked.gather")

    # Lanes 5 apart are gathered, in whole vectors and in the last one.
    assert gathers(stride) < gathers(5)


def test_lanes_far_apart_have_addresses_of_their_own() -> None:
    """Machines that do not gather take no vector of addresses where all lanes exist."""

    def gathers(target: str) -> int:
        text = dict(stages(sliced(5, onnx.TensorProto.FLOAT), Options(target=target)))["llvm"]
        calls = [line for line in text.splitlines() if "@llvm.masked.gather" in line]
        return sum("call" in line and "splat (i1 true)" in line for line in calls)

    assert gathers("x86-64-v4") > 0
    for target in ("x86-64-v3", "cortex-a53", "wasm"):
        assert gathers(target) == 0


COMPLEX = """
<ir_version: 10, opset_import: ["" : 17]>
complex (float[N] a, float[N] b) => (float[N, 2] y)
<int64[1] last = {-1}>
{
    p = Mul(a, b)
    q = Sub(a, b)
    u = Unsqueeze(p, last)
    v = Unsqueeze(q, last)
    y = Concat<axis = -1>(u, v)
}
"""


def test_stores_that_fill_memory_together() -> None:
    session = ostinato.InferenceSession(onnx.parser.parse_model(COMPLEX), cache_dir=None)
    for length in (0, 1, 7, 16, 32, 33, 100):
        a, b = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
        guarded = np.full((length + 2, 2), 7, np.float32)
        session.run(None, {"a": a, "b": b}, out={"y": guarded[1:-1]})
        np.testing.assert_array_equal(guarded[1:-1], np.stack([a * b, a - b], -1))
        assert (guarded[[0, -1]] == 7).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int64", "float16"])
def test_three_stores_that_fill_memory_together(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y = (
        helper.make_tensor_value_info(name, kind, shape)
        for name, shape in (("x", [3, "N"]), ("y", ["N", 3]))
    )
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    graph = helper.make_graph([node], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    session = ostinato.InferenceSession(model, cache_dir=None)
    for length in (0, 1, 5, 7, 16, 17, 31, 64, 65, 200):
        a = np.random.default_rng(length).integers(0, 99, (3, length)).astype(dtype)
        guarded = np.full((length + 2, 3), 7, dtype)
        session.run(None, {"x": a}, out={"y": guarded[1:-1]})
        np.testing.assert_array_equal(guarded[1:-1], a.T)
        assert (guarded[[0, -1]] == 7).all()
    text = dict(stages(model, Options(target="x86-64-v4", cache_dir=None)))["llvm"]
    assert "masked.scatter" not in text


@pytest.mark.parametrize("width", [4, 8, 16, 32])
@pytest.mark.parametrize("stride", SPREAD)
def test_lanes_three_or_four_apart_come_from_whole_vectors(stride, width):
    span = (width - 1) * stride + 1
    memory = Memory(span)
    found = load_spread(memory, integer(0), stride, "float", width, 4)
    np.testing.assert_array_equal(
        memory.vectors[found.text][:width], np.arange(1, span + 1, stride)
    )
    assert memory.loads == stride


@pytest.mark.parametrize("dtype", ["float16", "int16", "int32", "int64", "uint32", "float32"])
def test_what_is_stored_the_other_way_round_is_transposed_in_registers(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    for shape in ((64, 96), (33, 40), (8, 128)):
        infos = [
            helper.make_tensor_value_info(name, kind, sizes)
            for name, sizes in (("x", shape), ("y", shape[::-1]))
        ]
        model = helper.make_model(
            helper.make_graph([node], "g", infos[:1], infos[1:]),
            opset_imports=[helper.make_opsetid("", 17)],
        )
        x = np.random.default_rng(0).integers(0, 99, shape).astype(dtype)
        (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
        np.testing.assert_array_equal(y, x.T)
        if shape[0] % 8:
            continue  # The last rows of all are stored one by one.
        text = dict(stages(model, Options(target="x86-64-v4")))["llvm"]
        assert "shufflevector" in text
        assert "masked.gather" not in text and "masked.scatter" not in text


@pytest.mark.parametrize(("columns", "rows"), [(1024, 16), (1000, 8)])
def test_lanes_that_evict_each_other_are_stored_a_line_at_a_time(columns: int, rows: int) -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [columns, 64]), ("y", [64, columns]))
    )
    graph = helper.make_graph([node], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    text = dict(stages(model, Options(target="x86-64-v4")))["llvm"]
    assert f"store <{rows} x float>" in text
    assert ("store <16 x float>" in text) == (rows == 16)
