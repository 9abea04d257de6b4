from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import ostinato
from ostinato.errors import OstinatoError
from ostinato.protobuf import onnx_fields, structure, wire
from ostinato.protobuf.structure import LEAST, split
from ostinato.protobuf.wire import field, items

W, V = (np.arange(2 * LEAST, dtype=np.float32).reshape(2, LEAST) + i for i in (1, 7))


def model(w: np.ndarray = W, name: str = "w", op: str = "MatMul") -> onnx.ModelProto:
    """A product with a weight, and one with another weight in a branch."""
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[1, 2] x, bool c) => (float[1, n] y) {
            p = OP(x, NAME)
            y = If(c) <
                then_branch = a () => (float[1, n] r) { k = Constant<value = float[2] {1, 2}>()
                    r = MatMul(x, k) },
                else_branch = b () => (float[1, n] s) { s = Neg(p) }
            >
        }"""
    made = onnx.parser.parse_model(text.replace("OP", op).replace("NAME", name))
    made.graph.initializer.append(numpy_helper.from_array(w, name))
    inner = made.graph.node[1].attribute[0].g.node[0].attribute[0]
    inner.t.CopyFrom(numpy_helper.from_array(V))
    return made


def parts(made: onnx.ModelProto) -> tuple[bytes, list[np.ndarray]]:
    structure, weights, _ = split(memoryview(made.SerializeToString()))
    return structure, [weight.array() for weight in weights]


def test_weights_are_found_wherever_they_are_nested():
    _, weights = parts(model())
    assert len(weights) == 2
    for found in (W, V):
        assert any(np.array_equal(weight, found.reshape(-1)) for weight in weights)


def test_other_weights_have_the_same_structure():
    assert parts(model(W + 3))[0] == parts(model())[0]


@pytest.mark.parametrize(
    "other",
    [
        model(name="v"),
        model(op="Gemm"),
        model(W.astype(np.float64)),
        model(W.reshape(LEAST, 2)),
        model(W[:, :-1]),
    ],
    ids=["name", "operator", "type", "shape", "size"],
)
def test_all_else_is_structure(other: onnx.ModelProto):
    assert parts(other)[0] != parts(model())[0]


def test_few_elements_and_integers_are_structure():
    few, many = np.ones(LEAST - 1, np.float32), np.arange(LEAST)
    for one in (few, many):
        structure, weights = parts(model(one))
        assert len(weights) == 1 and structure != parts(model(one + 1))[0]


def test_how_elements_are_written_is_no_structure():
    written = model()
    packed = helper.make_tensor("w", onnx.TensorProto.FLOAT, W.shape, W.reshape(-1))
    packed.doc_string = "of another tool"
    written.graph.initializer[0].CopyFrom(packed)
    structure, weights = parts(written)
    assert structure == parts(model())[0]
    assert any(np.array_equal(weight, W.reshape(-1)) for weight in weights)


def test_every_file_that_is_cut_short_is_refused_or_another_one():
    data = model().SerializeToString()
    whole = split(memoryview(data)).structure
    for size in range(0, len(data), 7):
        try:
            structure = split(memoryview(data[:size])).structure
        except IndexError:
            continue
        assert structure != whole


def test_a_tensor_with_a_field_for_each_element_is_structure():
    unpacked = onnx.TensorProto(name="w", dims=W.shape, data_type=onnx.TensorProto.FLOAT)
    elements = b"".join(b"\x25" + value.tobytes() for value in W.reshape(-1))
    tensor = unpacked.SerializeToString() + elements
    assert numpy_helper.to_array(onnx.TensorProto.FromString(tensor)).tolist() == W.tolist()
    # The last field of a message of its own, so that no length has to be changed.
    graph = field(onnx_fields.GRAPH_INITIALIZER, len(tensor)) + tensor
    structure, weights, _ = split(memoryview(field(onnx_fields.MODEL_GRAPH, len(graph)) + graph))
    other = graph.replace(W[0, 5].tobytes(), W[1, 5].tobytes())
    assert not weights
    assert structure != split(memoryview(field(onnx_fields.MODEL_GRAPH, len(other)) + other))[0]


def test_elements_of_lists_are_not_looked_at(monkeypatch: pytest.MonkeyPatch):
    node = helper.make_node(
        *("TreeEnsembleClassifier", ["x"], ["y"]),
        domain="ai.onnx.ml",
        nodes_treeids=[0] * 1000,
        nodes_modes=["LEAF"] * 1000,
        nodes_values=[0.0] * 1000,
        value=numpy_helper.from_array(W),
    )
    made = helper.make_model(helper.make_graph([node], "g", [], []))
    seen = []

    def counted(*place):
        for item in items(*place):
            seen.append(item)
            yield item

    for module in (structure, wire):
        monkeypatch.setattr(module, "items", counted)
    _, weights = parts(made)
    assert len(weights) == 1
    assert len(seen) < 100


def nested(depth: int) -> bytes:
    """A file of as many graphs, each in an attribute of the node of the next one."""
    inner = b""
    for _ in range(depth):
        attribute = field(onnx_fields.ATTRIBUTE_GRAPH, len(inner)) + inner + b"\x0a\x04body"
        node = field(onnx_fields.NODE_ATTRIBUTE, len(attribute)) + attribute + b"\x22\x02If"
        inner = (
            field(onnx_fields.GRAPH_NODE, len(node)) + node + b"\x12\x01g" + b"\x52\x40" + b"d" * 64
        )
    return field(onnx_fields.MODEL_GRAPH, len(inner)) + inner


def test_graphs_nested_without_end_are_left_to_the_compiler(tmp_path: Path):
    with pytest.raises(OstinatoError, match="nested"):
        ostinato.InferenceSession(nested(2000), cache_dir=tmp_path)
