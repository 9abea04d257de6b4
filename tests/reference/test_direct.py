from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from ostinato.reference.direct import direct_kernel
from ostinato.reference.kernels import KERNELS

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
N = np.array([3, -5, 7])


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Add", [N, N], {}),
    ("Add", [N, ints(2)], {}),
    ("Add", [X, X[:, :1] / 3], {}),
    ("Div", [X, X[1] / 7], {}),
    ("Div", [np.array([7, -7, 7, -7, 6, 0]), np.array([2, 2, -2, -2, -3, 5])], {}),
    ("Div", [np.array([200, 7], np.uint8), np.array([3], np.uint8)], {}),
    ("Mul", [np.array([200], np.uint8), np.array([3], np.uint8)], {}),
    ("Sub", [N, np.array(4)], {}),
    ("Abs", [N], {}),
    ("Abs", [X - 7.5], {}),
    ("Neg", [np.array(3)], {}),
    ("Sqrt", [X], {}),
    ("Equal", [N, ints(-5)], {}),
    ("Greater", [X, X[1]], {}),
    ("GreaterOrEqual", [N, N], {}),
    ("Less", [X, X[1]], {}),
    ("LessOrEqual", [np.array(3), np.array(4)], {}),
    ("Mod", [N, ints(-2)], {}),
    ("Mod", [np.array([200], np.uint8), np.array([3], np.uint8)], {}),
    ("Range", [np.array(7), np.array(-4), np.array(-3)], {}),
    ("Range", [np.array(1, np.int32), np.array(9, np.int32), np.array(2, np.int32)], {}),
    ("Trilu", [X], {}),
    ("Trilu", [X, np.array(-1)], {"upper": 0}),
    ("Trilu", [N.reshape(1, 3) > 0, np.array(1)], {"upper": 1}),
    ("Where", [X > 7, X, X[:, :1] / 3], {}),
    ("Where", [N > 0, N, np.array(4)], {}),
    ("Cast", [N], {"to": onnx.TensorProto.FLOAT}),
    ("Cast", [X], {"to": onnx.TensorProto.BOOL}),
    ("Cast", [X - 7.5], {"to": onnx.TensorProto.INT32}),
    ("Concat", [X, X, X[:, :1]], {"axis": 1}),
    ("Concat", [X, X], {"axis": -1}),
    ("ConstantOfShape", [ints(2, 0, 3)], {}),
    (
        "ConstantOfShape",
        [ints(2, 3)],
        {"value": onnx.helper.make_tensor("v", onnx.TensorProto.INT64, [1], [9])},
    ),
    ("ConstantOfShape", [np.zeros(0, np.int64)], {}),
    ("Expand", [X, ints(5, 1, 1, 4)], {}),
    ("Expand", [X[:, :1], ints(3, 1)], {}),
    ("Gather", [X, ints(1, -1, 0)], {"axis": 2}),
    ("Gather", [X, np.array(1)], {}),
    ("Reshape", [X, ints(0, -1)], {}),
    ("Reshape", [X[:0], ints(0, 6)], {"allowzero": 1}),
    ("Slice", [X, ints(1), ints(9)], {}),
    ("Slice", [X, ints(-1, 3), ints(-9, 0), ints(1, -1), ints(-1, -2)], {}),
    ("Slice", [X, ints(2), ints(1), ints(0)], {}),
    ("Squeeze", [X[:1, :, :1]], {}),
    ("Squeeze", [X[:1, :, :1], ints(-1)], {}),
    ("Transpose", [X], {}),
    ("Transpose", [X], {"perm": [1, 2, 0]}),
    ("Unsqueeze", [X, ints(0, -1)], {}),
    ("Unsqueeze", [X, ints(4, 1)], {}),
]


def node_of(kind: str, inputs: list[Any], attributes: dict[str, Any]) -> tuple[Any, ir.Node]:
    names = [f"i{number}" for number in range(len(inputs))]
    proto = onnx.helper.make_node(kind, names, ["y"], **attributes)
    node = ir.from_proto(proto)
    if "to" in attributes:
        node.outputs[0].dtype = ir.DataType(attributes["to"])
    return proto, node


@pytest.mark.parametrize(("kind", "inputs", "attributes"), CASES)
def test_results_are_those_of_the_reference(
    kind: str, inputs: list[Any], attributes: dict[str, Any]
) -> None:
    proto, node = node_of(kind, inputs, attributes)
    graph = onnx.helper.make_graph(
        [proto],
        "g",
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in zip(proto.input, inputs, strict=True)
        ],
        [onnx.helper.make_tensor_value_info("y", 0, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    evaluator = ReferenceEvaluator(model, new_ops=KERNELS)
    (expected,) = evaluator.run(None, dict(zip(proto.input, inputs, strict=True)))
    got = direct_kernel(node, inputs)
    assert got is not None and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("Gather", [X, ints(2)]),
        ("Reshape", [X, ints(5, -1)]),
        ("Expand", [X, ints(7)]),
        ("Squeeze", [X, ints(0)]),
        ("Slice", [X, ints(0), ints(1), ints(5)]),
        ("Slice", [X, ints(0), ints(1), ints(0), ints(0)]),
        ("Concat", [X, X[0]]),
    ],
)
def test_operands_that_do_not_fit_are_refused(kind: str, inputs: list[Any]) -> None:
    _, node = node_of(kind, inputs, {"axis": 0} if kind == "Concat" else {})
    with pytest.raises((ValueError, IndexError)):
        direct_kernel(node, inputs)


def test_what_is_not_here_is_left_to_the_reference() -> None:
    for kind, inputs in (("Pow", [N, N]), ("Add", [X, X[0].astype(np.float64)]), ("Slice", [X])):
        assert direct_kernel(node_of(kind, inputs, {})[1], inputs) is None
