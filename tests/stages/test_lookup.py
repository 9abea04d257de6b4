"""Texts beside native code: looked up before it, or by places behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ostinato
from ostinato.errors import InputError, OstinatoError, RunError, UnsupportedError
from tests import witness

COLOURS = ["red", "green", "blue"]
COEFFICIENTS = np.random.default_rng(0).standard_normal(12).astype("f").tolist()


def texts(*rows: str) -> np.ndarray:
    return np.array(rows, object)[:, None]


def classifier(version: int = 3) -> onnx.ModelProto:
    """One column of numbers and one of colours are classified as a text."""
    ml = "ai.onnx.ml"
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain=ml, offset=[0.5], scale=[2.0]),
        helper.make_node("OneHotEncoder", ["c"], ["o"], domain=ml, cats_strings=COLOURS),
        helper.make_node("Reshape", ["o", "flat"], ["f"]),
        helper.make_node("Concat", ["s", "f"], ["all"], axis=1),
        helper.make_node(
            "LinearClassifier",
            ["all"],
            ["y", "p"],
            domain=ml,
            coefficients=COEFFICIENTS,
            intercepts=[0.1, 0.0, -0.1],
            classlabels_strings=["no", "perhaps", "yes"],
        ),
        helper.make_node("Softmax", ["p"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1]),
            helper.make_tensor_value_info("c", TensorProto.STRING, ["N", 1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.STRING, ["N"]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 3]),
        ],
        [helper.make_tensor("flat", TensorProto.INT64, [2], [-1, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ml, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


FEEDS: list[dict[str, Any]] = [
    {"x": np.array([[1.0]], "f"), "c": texts("green")},
    {"x": np.array([[-3.0], [0.0], [2.0], [9.0]], "f"), "c": texts("blue", "red", "pink", "")},
]


@pytest.mark.parametrize("version", [1, 3])
def test_one_native_part_lies_between_texts(version: int, tmp_path: Any) -> None:
    model = classifier(version)
    wanted = [witness.run(model.SerializeToString(), feeds) for feeds in FEEDS]
    for _ in range(2):
        session = ostinato.InferenceSession(model, cache_dir=tmp_path, fallback=False)
        assert session.report().fallback == [] and len([*session._flow.natives()]) == 1
        for feeds, expected in [*zip(FEEDS, wanted, strict=True)] * 3:
            got = session.run(None, feeds)
            assert got[0].dtype == object and got[0].tolist() == expected[0].tolist()
            np.testing.assert_allclose(got[1], expected[1], 1e-5)
            assert session.run(["y"], feeds)[0].tolist() == expected[0].tolist()
            z = np.empty_like(expected[1])
            session.run(["z"], feeds, out={"z": z})
            assert (z == got[1]).all()
            call = session.bind(feeds)
            call()
            assert call.outputs["y"].tolist() == expected[0].tolist()


def test_inputs_are_checked_in_every_call() -> None:
    session = ostinato.InferenceSession(classifier(), cache_dir=None)
    for _ in range(2):
        assert len(session.run(None, {"x": [[1.0]], "c": [["red"]]})[0]) == 1
        assert len(session.run(None, {"x": [[1.0]], "c": np.array([["red"]])})[0]) == 1
        with pytest.raises(InputError, match="input 'c'"):
            session.run(None, {"x": [[1.0]], "c": np.ones((1, 1), "f")})
        with pytest.raises(OstinatoError, match="N"):
            session.run(None, {"x": np.ones((2, 1), "f"), "c": texts("red")})
        with pytest.raises(InputError, match="input 'c'"):
            session.run(None, {"x": np.ones((1, 1), "f"), "c": texts("red")[0]})
        with pytest.raises(RunError, match="unhashable"):
            unhashable = np.empty((1, 1), object)
            unhashable[0, 0] = []
            session.run(None, {"x": np.ones((1, 1), "f"), "c": unhashable})


def encoder(x: int, y: int, **about: Any) -> onnx.ModelProto:
    has_tensors = any(isinstance(value, onnx.TensorProto) for value in about.values())
    version = 1 if "classes_strings" in about else 4 if has_tensors else 2
    graph = helper.make_graph(
        [helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **about)],
        "g",
        [helper.make_tensor_value_info("x", x, ["N"])],
        [helper.make_tensor_value_info("y", y, ["N"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


TEXT, INTEGER, FLOAT = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT


def tensor(kind: int, *values: Any) -> onnx.TensorProto:
    return helper.make_tensor("t", kind, [len(values)], values)


KEYS = {"keys_strings": COLOURS}
COLUMN = np.array(["blue", "pink", "red", "red"], object)


@pytest.mark.parametrize(
    ("x", "y", "about"),
    [
        (COLUMN, INTEGER, {**KEYS, "values_int64s": [5, 6, 7]}),
        (COLUMN, FLOAT, {**KEYS, "values_floats": [0.5, 0.25, 7.0], "default_float": 3.5}),
        (COLUMN, TEXT, {**KEYS, "values_strings": ["r", "g", "b"]}),
        (COLUMN, INTEGER, {"classes_strings": COLOURS}),
        # Of keys that are repeated the first one, or in version 1 the last one.
        (COLUMN, INTEGER, {"keys_strings": ["red", "blue", "red"], "values_int64s": [5, 6, 7]}),
        (COLUMN, INTEGER, {"classes_strings": ["red", "blue", "red"]}),
        (np.array([4, 2]), TEXT, {"keys_int64s": [2, 2, 4], "values_strings": ["u", "v", "w"]}),
        (np.array([2, 9, -1, 0]), TEXT, {"classes_strings": COLOURS, "default_string": "none"}),
        (np.array([4, 2, 3]), TEXT, {"keys_int64s": [2, 4], "values_strings": ["two", "four"]}),
        (np.array([0.5, 3], "f"), TEXT, {"keys_floats": [0.5], "values_strings": ["half"]}),
        (
            np.array([4, 2, 3]),
            TEXT,
            {"keys_int64s": [2, 4], "values_tensor": tensor(TEXT, b"two", b"four")},
        ),
        (
            COLUMN,
            INTEGER,
            {
                "keys_tensor": tensor(TEXT, b"red", b"blue"),
                "values_tensor": tensor(INTEGER, 5, 6),
                "default_tensor": tensor(INTEGER, 9),
            },
        ),
        (
            COLUMN,
            TEXT,
            {"keys_tensor": tensor(TEXT, b"red", b"blue"), "values_strings": ["r", "b"]},
        ),
        # The default for all types, whatever others are given.
        (
            COLUMN,
            INTEGER,
            {**KEYS, "values_int64s": [5, 6, 7], "default_tensor": tensor(INTEGER, 9)},
        ),
        (
            COLUMN,
            FLOAT,
            {
                **KEYS,
                "values_floats": [0.5, 0.25, 7.0],
                "default_float": 3.5,
                "default_tensor": tensor(FLOAT, 1.5),
            },
        ),
        (
            COLUMN,
            TEXT,
            {**KEYS, "values_strings": ["r", "g", "b"], "default_tensor": tensor(TEXT, b"none")},
        ),
        (
            np.array([4, 2, 3]),
            TEXT,
            {
                "keys_int64s": [2, 4],
                "values_strings": ["two", "four"],
                "default_tensor": tensor(TEXT, b"many"),
            },
        ),
    ],
)
def test_encoders_of_texts_are_looked_up(x: np.ndarray, y: int, about: dict[str, Any]) -> None:
    kind = TEXT if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    model = encoder(kind, y, **about)
    session = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    for _ in range(2):
        (got,) = session.run(None, {"x": x})
        (expected,) = witness.run(model.SerializeToString(), {"x": x})
        assert got.tolist() == expected.tolist()
        assert got.dtype == (object if y == TEXT else expected.dtype)


def test_no_library_has_texts(tmp_path: Any) -> None:
    with pytest.raises(UnsupportedError, match="is made of texts, expected numbers"):
        ostinato.build(encoder(INTEGER, TEXT, classes_strings=COLOURS), tmp_path)


def test_bodies_in_a_branch_read_constant_texts() -> None:
    """The Loop has no native form; the product beside it has one."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[2, 2] f, int64 n) => (string[K] y, float[2, 2] z)
        <string[1] b = {"p"}, string[1] q = {"q"}> {
            y, z = If (c) <
                then_branch = t () => (string[J] u, float[2, 2] h) {
                    h = MatMul (f, f)
                    u = Loop (n, "", q) <
                        body = l (int64 i, bool p, string[M] s) => (bool o, string[O] r) {
                            o = Identity (p)
                            r = Concat <axis = 0> (b, s)
                        }
                    >
                },
                else_branch = e () => (string[I] v, float[2, 2] k) {
                    v = Identity (b)
                    k = Tanh (f)
                }
            >
        }"""
    )
    feeds = {"c": np.array(True), "f": np.eye(2, dtype="f"), "n": np.array(2)}
    y, z = ostinato.InferenceSession(model, cache_dir=None).run(None, feeds)
    assert y.tolist() == ["p", "p", "q"] and (z == feeds["f"]).all()
