"""What a hostile file, path or cache may try: each is refused by name, in no time."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato
from ostinato.errors import ModelError, OptionError, OstinatoError
from ostinato.model.load import load_model

SECONDS = 20


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """End a test that hangs, where Python still hears of it."""
    old = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it takes too long"))
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def value(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Any, inputs: Any, outputs: Any, constants: Any = (), opset: int = 21
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def add() -> onnx.ModelProto:
    w = numpy_helper.from_array(np.ones(1, np.float32), "w")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model([node], [value("x", ["A"])], [value("y", ["A"])], [w])


# Paths


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_a_path_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path.mkdir()
    with pytest.raises(ModelError, match=f"{path}: cannot be read: .*{kind}"):
        ostinato.InferenceSession(path, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("where", ["tensor", "training"])
@pytest.mark.parametrize("location", ["pipe", "/dev/zero"])
def test_external_data_of_no_tensor_is_not_opened(
    tmp_path: Path, where: str, location: str
) -> None:
    proto = add()
    os.mkfifo(tmp_path / "pipe")
    tensor = proto.graph.initializer[0]
    if where == "training":
        tensor = proto.training_info.add().initialization.initializer.add()
        tensor.CopyFrom(proto.graph.initializer[0])
        tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    for _ in range(2):
        session = ostinato.InferenceSession(tmp_path / "m.onnx", cache_dir=tmp_path / "cache")
        assert session.run(None, {"x": [1.0]})[0] == 2


@pytest.mark.parametrize("location", ["pipe", "link", "folder", "/dev/zero", "../w", "a\0b", ""])
def test_external_data_that_is_no_file_in_the_folder_is_refused(
    tmp_path: Path, location: str
) -> None:
    (tmp_path / "w").write_bytes(bytes(4))
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(tmp_path / "w")
    proto = add()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx: tensor 'w'"):
        ostinato.InferenceSession(folder / "m.onnx", cache_dir=tmp_path / "cache")


# Sizes

IMAGE = value("x", [1, 1, "L"])
SIZES = {
    "LRN": (helper.make_node("LRN", ["x"], ["y"], size=2**60), [1, "C", 4]),
    "LRN-less": (helper.make_node("LRN", ["x"], ["y"], size=2**40), [1, "C", 4]),
    "MaxPool": (
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2**40], pads=[2**39] * 2),
        [1, 1, "L"],
    ),
    "DFT": (helper.make_node("DFT", ["x", "n"], ["y"]), ["N", "M", 1]),
    "GRU": (helper.make_node("GRU", ["x", "w", "w"], ["y"], hidden_size=2**40), ["T", 1, 4]),
    "ConvTranspose": (
        helper.make_node("ConvTranspose", ["x", "k"], ["y"], strides=[2**40]),
        [1, 1, "L"],
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_in_attributes_are_bounded_before_work_begins(name: str) -> None:
    node, shape = SIZES[name]
    node.name = "n"
    constants = [
        numpy_helper.from_array(np.int64(2**59), "n"),
        numpy_helper.from_array(np.ones((1, 1, 3), np.float32), "k"),
    ]
    proto = model(
        [node],
        [value("x", shape), value("w", [1, "Q", "H"])],
        [value("y", list("abcd" if name in ("GRU",) else "abc"))],
        [constant for constant in constants if constant.name in node.input],
    )
    tracemalloc.start()
    try:
        with pytest.raises(OstinatoError, match="node 'n"):
            ostinato.InferenceSession(proto, cache_dir=None)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_constant_that_doubles_is_not_written_out() -> None:
    one = numpy_helper.from_array(np.ones(4, np.float32), "v0")
    nodes = [helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(26)]
    nodes.append(helper.make_node("Gather", ["v26", "z"], ["y"]))
    proto = model(nodes, [value("z", [1], TensorProto.INT64)], [value("y", [1])], [one])
    tracemalloc.start()
    try:
        load_model(proto)
        ostinato.optimize(proto)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_more_axes_than_arrays_have_are_refused() -> None:
    node = helper.make_node("Neg", ["x"], ["y"], name="n")
    proto = model([node], [value("x", [1] * 101)], [value("y", [1] * 101)])
    with pytest.raises(ModelError, match="'x' has 101 axes"):
        ostinato.InferenceSession(proto, cache_dir=None)


# What rules and the onnx package do not expect


def _case(op: str, *shapes: Any, outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(shapes))]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="n", **attributes)
    inputs = [value(name, shape) for name, shape in zip(names, shapes, strict=True)]
    return model([node], inputs, [value(name, None) for name in results], opset=24)


UNEXPECTED = {
    "split": _case("Split", [7, 4], outputs=3, num_outputs=2),
    "einsum": _case("Einsum", [3, 5], [5, 4], equation="a b"),
    "eye": _case("EyeLike", [3, 3], dtype=99),
    "attention": _case("Attention", *[[1, 2, 3, 4]] * 3, outputs=4, qk_matmul_output_mode=9),
    "linear-attention": _case(
        "LinearAttention", *[[1, 3, 4]] * 3, outputs=2, kv_num_heads=0, q_num_heads=0
    ),
    "resize": _case("Resize", [1, 4]),
    "gather": _case("GatherND", [3, 4, 5], [3, 3, 1], batch_dims=-2),
    "layer-norm": _case("LayerNormalization", [3, 4], [4], axis=2**31),
    "scale": _case("Attention", *[[1, 2, 3, 4]] * 3, scale=float("inf")),
}
UNEXPECTED["gather"].graph.input[1].type.tensor_type.elem_type = TensorProto.INT64


@pytest.mark.parametrize("name", UNEXPECTED)
def test_nodes_that_contradict_themselves_are_refused_by_name(name: str) -> None:
    with pytest.raises(OstinatoError, match="'n'"):
        ostinato.InferenceSession(UNEXPECTED[name], cache_dir=None)


def test_sizes_that_inference_makes_negative_do_not_end_the_process() -> None:
    bounds = [numpy_helper.from_array(np.array([n]), name) for n, name in ((0, "s"), (2, "e"))]
    nodes = [
        helper.make_node("MaxPool", ["x"], ["t"], kernel_shape=[9], name="n"),
        helper.make_node("Slice", ["t", "s", "e", "e"], ["y"]),
    ]
    proto = model(nodes, [value("x", [1, 1, 4])], [value("y", [None] * 3)], bounds)
    with pytest.raises(OstinatoError, match="node 'n'"):
        ostinato.InferenceSession(proto, cache_dir=None)


def test_a_failure_of_the_inference_of_one_node_leaves_the_others_theirs() -> None:
    axes = [numpy_helper.from_array(np.array([n]), name) for n, name in ((0, "s"), (99, "e"))]
    nodes = [
        helper.make_node("Slice", ["x", "s", "e", "e"], ["y"], name="n"),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    proto = model(nodes, [value("x", [3, 4])], [value("y", [None] * 2), value("z", [3, 4])], axes)
    assert load_model(proto).graph.outputs[1].shape == [3, 4]


@pytest.mark.parametrize("part", ["input", "initializer", "node"])
def test_what_the_checks_of_onnx_find_is_named(part: str) -> None:
    proto = add()
    if part == "input":
        proto.graph.input[0].type.Clear()
    elif part == "initializer":
        proto.graph.initializer[0].dims.append(7)
    else:
        proto.graph.node[0].attribute.append(helper.make_attribute("extra", 1))
    name = {"input": "input 'x'", "initializer": "initializer 'w'", "node": "node 'y' .Add."}[part]
    with pytest.raises(ModelError, match=name) as caught:
        ostinato.InferenceSession(proto, cache_dir=None)
    assert "Field '" not in str(caught.value) and "Context" not in str(caught.value)


def test_what_a_rule_does_not_expect_is_an_error_that_names_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ostinato.ops import LOWERINGS

    def rule(context: Any) -> Any:
        return ()[1]

    monkeypatch.setitem(LOWERINGS, "Add", rule)
    with pytest.raises(ModelError, match=r"node 'y' \(Add\).*IndexError.*report"):
        ostinato.InferenceSession(add(), cache_dir=None)


# The cache


@pytest.mark.parametrize("folder", [5, b"x", "a\0b", "", 1.5, True])
def test_a_cache_folder_that_is_no_path_is_refused(folder: Any) -> None:
    with pytest.raises(OptionError, match="cache_dir"):
        ostinato.InferenceSession(add(), cache_dir=folder)


TRUNCATED = """
import os, sys
import numpy as np
import ostinato
model, folder = sys.argv[1:]
ostinato.InferenceSession(model, cache_dir=folder)
session = ostinato.InferenceSession(model, cache_dir=folder)
assert session.report()["from_cache"]
for name in os.listdir(folder):
    os.truncate(os.path.join(folder, name), 0)
print(session.run(None, {"x": np.ones(2, np.float32)})[0].tolist())
"""


def test_an_entry_that_is_cut_short_does_not_matter_to_a_live_session(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(add().SerializeToString())
    command = [sys.executable, "-c", TRUNCATED, str(tmp_path / "m.onnx"), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0]\n"), done.stderr


def test_a_pipe_in_place_of_an_entry_is_a_miss(tmp_path: Path) -> None:
    ostinato.InferenceSession(add(), cache_dir=tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
        os.mkfifo(path)
    session = ostinato.InferenceSession(add(), cache_dir=tmp_path)
    assert not session.report()["from_cache"]
    assert ostinato.InferenceSession(add(), cache_dir=tmp_path).report()["from_cache"]


PROCESSES, ROUNDS = 20, 5


def _share(folder: Path, number: int) -> None:
    """Load models from a folder that others use, and remove what is in it now and then."""
    chance = random.Random(number)
    for _ in range(ROUNDS):
        factor = chance.randrange(3)
        proto = add()
        proto.graph.initializer[0].CopyFrom(
            numpy_helper.from_array(np.full(1, factor, np.float32), "w")
        )
        limit = chance.choice((0, 20_000, 4 << 30))
        session = ostinato.InferenceSession(proto, cache_dir=folder, cache_bytes=limit)
        assert session.run(None, {"x": [1.0]})[0].tolist() == [1 + factor]
        if chance.random() < 0.3:
            for path in folder.iterdir():
                path.unlink(missing_ok=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_twenty_processes_share_a_folder_in_which_entries_are_removed(tmp_path: Path) -> None:
    signal.alarm(10 * SECONDS)
    children = []
    for number in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            try:
                _share(tmp_path, number)
                os._exit(0)
            except BaseException as error:
                os.write(2, f"process {number}: {error!r}\n".encode())
            finally:
                os._exit(1)
        children.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert statuses == [0] * PROCESSES
    unfinished = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert not unfinished


def test_a_divisor_beyond_64_bits_is_an_error_of_the_run() -> None:
    node = helper.make_node("DepthToSpace", ["x"], ["y"], name="n", blocksize=2**62)
    proto = model([node], [value("x", [2, "B", 2, 3])], [value("y", [2, "C", "H", "W"])])
    session = ostinato.InferenceSession(proto, cache_dir=None)
    with pytest.raises(OstinatoError, match=r"node 'n'|output 'y'|64 bits"):
        session.run(None, {"x": np.ones((2, 2, 2, 3), np.float32)})


# Constants that a few bytes describe


def _concats(count: int, before: int) -> list[onnx.NodeProto]:
    """Each value is the two before it joined, or twice the one before it."""
    pairs = [(f"v{i - before}", f"v{i - 1}", f"v{i}") for i in range(before, count)]
    return [helper.make_node("Concat", [a, b], [c], axis=0) for a, b, c in pairs]


def _constant(name: str, *numbers: int, kind: type = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, kind), name)


LARGE_CONSTANTS = {
    "doubled": (_concats(27, 1), []),
    "sums": (_concats(38, 2), []),
    "sizes": ([helper.make_node("Shape", ["z"], ["v0"]), *_concats(21, 1)], []),
    "expanded": (
        [
            helper.make_node("Expand", ["v0", "s"], ["e"]),
            helper.make_node("Reshape", ["e", "m"], ["v"]),
        ],
        [_constant("s", 2**28, 4), _constant("m", -1)],
    ),
    "gathered": (
        [
            helper.make_node("Expand", ["zero", "s"], ["e"]),
            helper.make_node("Gather", ["v0", "e"], ["v"]),
        ],
        [_constant("s", 2**30), _constant("zero", 0)],
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.parametrize("name", LARGE_CONSTANTS)
def test_constants_that_few_bytes_describe_take_little_memory(tmp_path: Path, name: str) -> None:
    nodes, constants = LARGE_CONSTANTS[name]
    last = nodes[-1].output[0]
    z = value("z", [1], TensorProto.INT64)
    kind = TensorProto.INT64 if name == "sizes" else TensorProto.FLOAT
    given = [_constant(f"v{i}", 1, 1, 1, 1, kind=np.float32) for i in range(2)]
    held = [tensor for tensor in given if not any(tensor.name in n.output for n in nodes)]
    proto = model(
        [*nodes, helper.make_node("Gather", [last, "z"], ["o"])],
        [z],
        [value("o", [1], kind)],
        [*held, *constants],
    )
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    script = (
        "import resource, sys, ostinato, ostinato.compiler\n"
        "most = 1500 << 20\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
        "try:\n"
        "    ostinato.InferenceSession(sys.argv[1], cache_dir=None)\n"
        "except ostinato.OstinatoError as error:\n"
        "    assert 'not enough memory to compile' not in str(error), error\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.onnx")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:]


# Loops without end


EMPTY = {
    "tile": ("float[T, 3] x) => (float[R, 3] y) { y = Tile(x, many) }", [(0, 3)]),
    "transposed": (
        "float[A, B] x, float[B, A] z) => (float[B, A] y) { t = Transpose(x)  y = Add(t, z) }",
        [(2**50, 0), (0, 2**50)],
    ),
    "sum": (
        "float[A, B, C] x) => (float[B] y) { y = ReduceSum<keepdims = 0>(x, ends) }",
        [(2**50, 2, 0)],
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_loops_around_nothing_take_no_steps(name: str) -> None:
    text, shapes = EMPTY[name]
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g ({text}')
    for key, numbers in {"many": (2**50, 1), "ends": (0, 2)}.items():
        if key in text:
            proto.graph.initializer.append(_constant(key, *numbers))
    session = ostinato.InferenceSession(proto, cache_dir=None, fallback=False)
    names = [argument.name for argument in session.get_inputs()]
    feeds = {n: np.zeros(s, np.float32) for n, s in zip(names, shapes, strict=True)}
    (result,) = session.run(None, feeds)
    assert result.shape == (2,) if name == "sum" else result.size == 0


def test_a_number_of_skips_from_a_file_is_bounded() -> None:
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        max_gram_length=2,
        min_gram_length=1,
        max_skip_count=2**31,
        mode="TF",
        ngram_counts=[0, 1],
        ngram_indexes=[0, 1],
        pool_int64s=[1, 1, 2],
    )
    proto = model([node], [value("x", [3], TensorProto.INT64)], [value("y", [2])])
    (result,) = ostinato.InferenceSession(proto, cache_dir=None).run(
        None, {"x": np.array([1, 5, 2])}
    )
    assert result.tolist() == [1, 1]
