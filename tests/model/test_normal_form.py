from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx_ir as ir
import pytest

from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.model.values import constant_array
from tests.golden import canonical_text, parse


def normal(model: onnx.ModelProto) -> str:
    return canonical_text(ir.to_proto(load_model(model)))


def test_default_of_an_input_becomes_a_constant():
    proto = parse("g (float[N] x) => (float[N] y) <float[1] w = {2}> { y = Mul(x, w) }")
    expected = normal(proto)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [1]))
    for version in (3, 8):
        proto.ir_version = version
        assert normal(proto) == expected


def test_open_sizes_need_not_be_equal():
    proto = parse("g (float[N, M] x) => (float[N, M] y) { y = Relu(x) }")
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = "?"
    (x,) = load_model(proto).graph.inputs
    assert x.shape is not None and [size.value for size in x.shape] == [None, None]


def sparse(indices: np.ndarray, dims: list[int]) -> onnx.SparseTensorProto:
    values = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "s")
    return onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(indices), dims)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_become_dense(indices: list):
    tensor = sparse(np.array(indices, np.int64), [2, 3])
    proto = parse("g (float[2, 3] x) => (float[2, 3] y) { c = Identity(x)  y = Mul(c, s) }")
    proto.graph.sparse_initializer.append(tensor)
    model = load_model(proto)
    dense = np.array([[0, 1, 0], [0, 0, 2]], np.float32)
    np.testing.assert_array_equal(constant_array(model.graph.initializers["s"]), dense)

    proto = parse("g (float[2, 3] x) => (float[2, 3] y) { y = Mul(x, c) }")
    proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["c"], sparse_value=tensor))
    constant = next(iter(load_model(proto).graph))
    np.testing.assert_array_equal(constant.attributes["value"].as_tensor().numpy(), dense)


@pytest.mark.parametrize(
    ("indices", "dims"),
    [([1, 6], [2, 3]), ([-1, 2], [2, 3]), ([1, 2], [1 << 40, 1 << 20]), ([1], [2, 3])],
)
def test_bad_sparse_tensors(indices: list[int], dims: list[int]):
    proto = parse("g (float[2, 3] x) => (float[2, 3] y) { y = Mul(x, s) }")
    proto.graph.sparse_initializer.append(sparse(np.array(indices, np.int64), dims))
    with pytest.raises(ModelError, match="sparse tensor 's'"):
        load_model(proto)


def test_bodies_return_values_of_their_own():
    before = """
        g (bool c, float[N] x) => (float[N] y, float[N] z) {
            t = Exp(x)
            y, z = If (c) <
                then_branch = a () => (float[N] t, float[N] x) { },
                else_branch = b () => (float[N] q, float[N] q) { q = Relu(x) }>
        }
        """
    after = """
        g (bool c, float[N] x) => (float[N] y, float[N] z) {
            t = Exp(x)
            y, z = If (c) <
                then_branch = a () => (float[N] t_output_0, float[N] x_output_1) {
                    t_output_0 = Identity(t)
                    x_output_1 = Identity(x)
                },
                else_branch = b () => (float[N] q, float[N] q_output_1) {
                    q = Relu(x)
                    q_output_1 = Identity(q)
                }>
        }
        """
    assert normal(parse(before)) == canonical_text(parse(after))


def test_wrong_shapes_inside_are_forgotten_and_inferred_anew():
    proto = parse("g (float[3, 4] x) => (float[M] y) { t = Transpose(x)  y = Flatten(t) }")
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("t", 1, [7, 7, 7]))
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    transpose = next(iter(load_model(proto).graph))
    assert list(transpose.outputs[0].shape) == [4, 3]


def test_shapes_reach_the_body_of_a_scan():
    proto = parse("""
        g (float[T, B, 2] x, float[B, 2] h) => (float[B, 2] hn) {
            hn = Scan <num_scan_inputs = 1, body = b (float[9] s, float[9] e) => (float[9] sn) {
                t = Add(s, e)
                sn = Neg(t)
            }> (h, x)
        }
        """)
    scan = next(iter(load_model(proto).graph))
    add = next(iter(scan.attributes["body"].as_graph()))
    assert [str(size) for size in add.outputs[0].shape] == ["B", "2"]
