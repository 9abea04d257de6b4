"""Files that ONNX does not allow, or hardly, whose meaning is clear: read as others read them.

onnxruntime runs each of them, but those marked: what these lack follows from the rest as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from onnx import TensorProto

import ostinato
from ostinato.errors import InputError, ModelError, UnsupportedError
from tests import witness
from tests.golden import parse

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
CHAIN = "g (float[N, 3] x) => (float[N, 3] y) { a = Relu(x)  y = Neg(a) }"
LOOP = """
    g (float[N, 3] x, int64 n) => (float[N, 3] y) <bool yes = {1}> {
        y = Loop (n, yes, x) <body = b (int64 i, bool c, float[N, 3] s) => (bool k, float[N, 3] t) {
            k = Identity(c)  u = Exp(s)  t = Neg(u)
        }>
    }"""
CAPTURE = """
    g (float[N, 3] x, bool c) => (float[N, 3] y) {
        u = Relu(x)
        y = If (c) <
            then_branch = t () => (float[N, 3] p) { p = Add(u, u) },
            else_branch = e () => (float[N, 3] q) { q = Identity(u) }
        >
    }"""

File = tuple[onnx.ModelProto, dict[str, Any]]
FILES: dict[str, Callable[[], File]] = {}
# onnxruntime wants a type that it could infer, sorts no bodies and functions.
BEYOND = {"output-without-element-type", "unsorted-body", "unsorted-function", "no-ir-version"}


def file(function: Callable[[], File]) -> Callable[[], File]:
    FILES[function.__name__.replace("_", "-")] = function
    return function


def reverse(nodes: Any) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del nodes[:]
    nodes.extend(copies[::-1])


@file
def output_without_shape() -> File:
    model = parse(CHAIN)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model, {"x": X}


@file
def output_without_type() -> File:
    model = parse(CHAIN)
    model.graph.output[0].ClearField("type")
    return model, {"x": X}


@file
def output_without_element_type() -> File:
    model = parse(CHAIN)
    model.graph.output[0].type.tensor_type.ClearField("elem_type")
    return model, {"x": X}


@file
def input_without_shape() -> File:
    model = parse(CHAIN)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model, {"x": X}


@file
def input_of_negative_size() -> File:
    model = parse(CHAIN)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    return model, {"x": X}


@file
def unsorted() -> File:
    model = parse(CHAIN)
    reverse(model.graph.node)
    return model, {"x": X}


@file
def unsorted_capture() -> File:
    model = parse(CAPTURE)
    reverse(model.graph.node)
    return model, {"x": X, "c": np.array(True)}


@file
def unsorted_body() -> File:
    model = parse(LOOP)
    reverse(model.graph.node[0].attribute[0].g.node)
    return model, {"x": X, "n": np.array(2)}


@file
def unsorted_function() -> File:
    model = parse(CHAIN)
    make = onnx.helper.make_node
    nodes = [make("Neg", ["r"], ["q"]), make("Relu", ["p"], ["r"])]
    opsets = [onnx.helper.make_opsetid("", 17)]
    model.functions.append(onnx.helper.make_function("own", "F", ["p"], ["q"], nodes, opsets))
    model.opset_import.add(domain="own", version=1)
    model.graph.node[0].op_type, model.graph.node[0].domain = "F", "own"
    return model, {"x": X}


@file
def no_graph_name() -> File:
    model = parse(CHAIN)
    model.graph.name = ""
    return model, {"x": X}


@file
def no_ir_version() -> File:
    model = parse(CHAIN)
    model.ClearField("ir_version")
    return model, {"x": X}


@file
def domain_in_full() -> File:
    model = parse(CHAIN)
    model.graph.node[0].domain = "ai.onnx"
    model.opset_import.add(domain="ai.onnx", version=17)
    return model, {"x": X}


@file
def metadata_twice() -> File:
    model = parse(CHAIN)
    for value in "ab":
        model.metadata_props.add(key="k", value=value)
    return model, {"x": X}


@file
def devices() -> File:
    model = parse(CHAIN)
    model.ir_version = 11
    model.configuration.add(name="two", num_devices=2)
    model.graph.node[0].device_configurations.add()
    return model, {"x": X}


@file
def wrong_shapes_beside_values() -> File:
    model = parse(CHAIN)
    make = onnx.helper.make_tensor_value_info
    model.graph.value_info.extend([make("a", 1, [7, 7, 7]), make("nowhere", 1, [3])])
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    return model, {"x": X}


@file
def empty_names_at_the_end() -> File:
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { a = Clip(x)  y = Dropout(a) }")
    model.graph.node[0].input.extend(["", ""])
    model.graph.node[1].output.append("")
    return model, {"x": X}


def zip_map(nodes: list[onnx.NodeProto], **labels: Any) -> File:
    key = TensorProto.STRING if "classlabels_strings" in labels else TensorProto.INT64
    make = onnx.helper.make_node
    element = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    kind = onnx.helper.make_sequence_type_proto(onnx.helper.make_map_type_proto(key, element))
    graph = onnx.helper.make_graph(
        [*nodes, make("ZipMap", ["p"], ["z"], domain="ai.onnx.ml", **labels)],
        "g",
        [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [onnx.helper.make_value_info("z", kind)],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), {"x": X}


@file
def maps_of_names() -> File:
    return zip_map(
        [onnx.helper.make_node("Abs", ["x"], ["p"])], classlabels_strings=["a", "b", "c"]
    )


@file
def maps_of_numbers() -> File:
    return zip_map([onnx.helper.make_node("Abs", ["x"], ["p"])], classlabels_int64s=[7, 8, -9])


@file
def maps_without_type() -> File:
    model, feeds = maps_of_numbers()
    model.graph.output[0].ClearField("type")
    return model, feeds


@pytest.mark.parametrize("name", FILES)
def test_the_file_runs_and_agrees(name: str, tmp_path: Path) -> None:
    model, feeds = FILES[name]()
    onnx.save(model, tmp_path / "model.onnx")
    session = ostinato.InferenceSession(tmp_path / "model.onnx", cache_dir=None)
    results = session.run(None, feeds)
    if name in BEYOND:
        with pytest.raises(witness.WitnessError):
            witness.run(model.SerializeToString(), feeds)
        return
    expected = witness.run(model.SerializeToString(), feeds)
    for got, value in zip(results, expected, strict=True):
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(got, value, rtol=1e-6, strict=True)
        else:
            assert got == value


@pytest.mark.parametrize("name", sorted(BEYOND))
def test_what_onnxruntime_does_not_run_is_right(name: str) -> None:
    model, feeds = FILES[name]()
    (y,) = ostinato.InferenceSession(model, cache_dir=None).run(None, feeds)
    special = {"unsorted-body": -np.exp(-np.exp(X)), "unsorted-function": np.maximum(X, 0)}
    expected = special.get(name, -np.maximum(X, 0))
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "kind", "shape"),
    [
        ("output-without-shape", "tensor(float)", ["N", 3]),
        ("output-without-type", "tensor(float)", ["N", 3]),
        ("input-without-shape", "tensor(float)", None),
        ("maps-of-names", "seq(map(string,tensor(float)))", None),
        ("maps-without-type", "seq(map(int64,tensor(float)))", None),
    ],
)
def test_outputs_are_described_as_far_as_they_are_known(name: str, kind: str, shape: Any) -> None:
    model, _ = FILES[name]()
    if name == "input-without-shape":
        model.graph.output[0].type.tensor_type.ClearField("shape")
    (output,) = ostinato.InferenceSession(model, cache_dir=None).get_outputs()
    assert (output.type, output.shape) == (kind, shape)


def test_a_map_is_a_dict_of_python_objects() -> None:
    model, feeds = maps_of_names()
    ((first, _),) = ostinato.InferenceSession(model, cache_dir=None).run(None, feeds)
    assert first == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert all(type(value) is float for value in first.values())


# ---- what stays refused, by name


def broken(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    model = parse(CHAIN)
    change(model)
    return model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.graph.input[0].ClearField("type"), "input 'x' is declared without a type"),
        (lambda m: m.opset_import.add(domain="ai.onnx", version=9), "two versions of domain"),
        (lambda m: m.graph.output.append(m.graph.output[0]), "two outputs are named 'y'"),
        (
            lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", TensorProto.INT64),
            "output 'y' is declared int64, and computed as float32",
        ),
        (lambda m: m.graph.node[1].input.__setitem__(0, "y"), "node 'y' .Neg.: .*cycle"),
    ],
)
def test_what_is_not_clear_is_refused(
    change: Callable[[onnx.ModelProto], object], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        ostinato.InferenceSession(broken(change), cache_dir=None)


# ---- initializers that are inputs too

SCALE = """
    g (float[N, 3] x, float[3] w, float[1] b) => (float[N, 3] y)
    <float[3] w = {1, 2, 3}, float[1] b = {10}> { p = Mul(x, w)  y = Add(p, b) }"""
W, B = np.array([5, 6, 7], np.float32), np.array([-1], np.float32)


def scaled(w: Any = (1, 2, 3), b: float = 10) -> np.ndarray:
    return X * np.asarray(w, np.float32) + np.float32(b)


@pytest.mark.parametrize("as_file", [True, False])
def test_initializers_are_overridden_by_the_feed(as_file: bool, tmp_path: Path) -> None:
    model: Any = parse(SCALE)
    if as_file:
        onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
        model = tmp_path / "m.onnx"
    session = ostinato.InferenceSession(model, cache_dir=tmp_path / "cache")
    assert [a.name for a in session.get_inputs()] == ["x"]
    assert [(a.name, a.type, a.shape) for a in session.get_overridable_initializers()] == [
        ("w", "tensor(float)", [3]),
        ("b", "tensor(float)", [1]),
    ]
    for feeds, expected in [
        ({}, scaled()),
        ({"w": W}, scaled(w=W)),
        ({"w": 2 * W}, scaled(w=2 * W)),
        ({}, scaled()),
        ({"b": B}, scaled(b=-1)),
        ({"w": W}, scaled(w=W)),
        ({"w": W, "b": B}, scaled(w=W, b=-1)),
    ]:
        (y,) = session.run(["y"], {"x": X, **feeds})
        np.testing.assert_array_equal(y, expected)
        if not as_file:
            np.testing.assert_array_equal(
                y, witness.run(model.SerializeToString(), {"x": X, **feeds})[0]
            )
    target = np.empty_like(X)
    session.run(None, {"x": X, "w": W}, out={"y": target})
    np.testing.assert_array_equal(target, scaled(w=W))
    call = session.bind({"x": X, "w": W})
    call()
    np.testing.assert_array_equal(call.outputs["y"], scaled(w=W))
    again = ostinato.InferenceSession(model, cache_dir=tmp_path / "cache")
    assert again.report().from_cache
    np.testing.assert_array_equal(again.run(None, {"x": X, "w": W})[0], scaled(w=W))


def test_overriding_compiles_once_for_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from ostinato import compiler

    session = ostinato.InferenceSession(parse(SCALE), cache_dir=None)
    compiled: list[object] = []
    original = compiler.compile_model

    def counted(*given: Any, **named: Any) -> Any:
        compiled.append(given)
        return original(*given, **named)

    monkeypatch.setattr(compiler, "compile_model", counted)
    for factor in range(4):
        session.run(None, {"x": X, "w": factor * W})
    assert len(compiled) == 1


STATE = """
    g (float[N, 3] x, float[1, 3] h, float[3] w) => (float[N, 3] y, float[1, 3] next)
    <float[1, 3] h = {1, 2, 3}, float[3] w = {1, 1, 1}, int64[1] rows = {0}> {
        u = Mul(x, w)  y = Add(u, h)  next = ReduceSum(y, rows)
    }"""


def test_a_state_that_is_an_initializer_begins_with_its_value() -> None:
    session = ostinato.InferenceSession(parse(STATE), cache_dir=None)
    given = np.array([[1, 0, -1]], np.float32)
    for initial in (None, {"h": given}):
        stream = session.stream(iter([("h", "next")]), initial)
        h = np.array([[1, 2, 3]], np.float32) if initial is None else given
        for _ in range(3):
            y = X + h
            np.testing.assert_array_equal(stream.step({"x": X})[0], y)
            h = y.sum(0, keepdims=True)
    with pytest.raises(InputError, match="unknown input 'w'"):
        stream.step({"x": X, "w": W})
    with pytest.raises(InputError, match="initial: expected a dict"):
        session.stream({"h": "next"}, initial=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown input 'v'"):
        session.stream({"v": "next"})


def test_overridden_operands_that_decide_shapes() -> None:
    model = parse("""
        g (float[N, 3] x, int64[2] s, int64[1] a) => (float[P, Q] y)
        <int64[2] s = {-1, 3}, int64[1] a = {1}> { r = ReduceSum(x, a)  p = Sub(x, r)
            y = Reshape(p, s) }""")
    session = ostinato.InferenceSession(model, cache_dir=None)
    for s, a in [((-1, 3), 1), ((3, -1), 1), ((1, 6), 0)]:
        feeds = {"x": X, "s": np.array(s), "a": np.array([a])}
        expected = (X - X.sum(a, keepdims=True)).reshape(s)
        np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-6)
    strict = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    with pytest.raises(UnsupportedError, match="axes"):
        strict.run(None, {"x": X, "a": np.array([0])})


def test_mistakes_in_overriding_are_named() -> None:
    session = ostinato.InferenceSession(parse(SCALE), cache_dir=None)
    with pytest.raises(InputError, match=r"input 'w': expected float32\[3\], got float64\[3\]"):
        session.run(None, {"x": X, "w": W.astype(float)})
    with pytest.raises(InputError, match="missing input 'x'"):
        session.run(None, {"w": W})
    with pytest.raises(InputError, match="unknown input 'v'"):
        session.run(None, {"x": X, "v": W})
    np.testing.assert_array_equal(session.run(None, {"x": X, "w": W})[0], scaled(w=W))


def test_a_model_that_changed_since_is_not_mixed_with_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parse(SCALE), path)
    session = ostinato.InferenceSession(path, cache_dir=None)
    onnx.save(parse(SCALE.replace("Mul", "Div")), path)
    with pytest.raises(ModelError, match="not what it was"):
        session.run(None, {"x": X, "w": W})


def test_up_to_ir_version_3_initializers_are_constants() -> None:
    model = parse(SCALE)
    model.ir_version = 3
    session = ostinato.InferenceSession(model, cache_dir=None)
    assert session.get_overridable_initializers() == []
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], scaled())
    with pytest.raises(InputError, match="unknown input 'w'"):
        session.run(None, {"x": X, "w": W})
    with pytest.raises(witness.WitnessError):
        witness.run(model.SerializeToString(), {"x": X, "w": W})
