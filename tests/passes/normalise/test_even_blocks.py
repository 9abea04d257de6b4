from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato
from ostinato import Options


def model(terms: int, block: int, zero: bool = False, axis: int = 0) -> onnx.ModelProto:
    """`x @ DequantizeLinear(w)`, the weights in blocks along their terms."""
    random = np.random.default_rng(0)
    shape, blocks = [20, 20], [20, 20]
    shape[axis], blocks[axis] = terms, -(-terms // block)
    constants = {
        "w": random.integers(-8, 8, shape, np.int8),
        "scale": random.uniform(0.1, 1, blocks).astype("f"),
    }
    if zero:
        constants["zero"] = random.integers(-3, 3, blocks, np.int8)
    matrix = "d" if axis == 0 else "t"
    nodes = [
        helper.make_node("DequantizeLinear", list(constants), ["d"], axis=axis, block_size=block),
        *([] if axis == 0 else [helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])]),
        helper.make_node("MatMul", ["x", matrix], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, terms])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 20])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def dequantized(source: onnx.ModelProto) -> np.ndarray:
    """The weights by the definition of the operator, each by the scale of its block."""
    given = {i.name: numpy_helper.to_array(i) for i in source.graph.initializer}
    attributes = {a.name: a.i for a in source.graph.node[0].attribute}
    axis, block = attributes["axis"], attributes["block_size"]
    every = np.arange(given["w"].shape[axis]) // block
    zero = given["zero"].take(every, axis) if "zero" in given else np.int8(0)
    return (given["w"].astype("f") - zero) * given["scale"].take(every, axis)


@pytest.mark.parametrize(
    ("terms", "block", "kept"),
    # Even blocks of 16, 4 and 24 numbers; those of 2 and 1 do not pay.
    [(48, 32, True), (36, 32, True), (24, 32, True), (50, 32, False), (37, 16, False)],
)
@pytest.mark.parametrize(
    "given", [{}, {"zero": True}, {"axis": 1}], ids=["rows", "zero", "columns"]
)
def test_last_blocks_that_are_not_full_have_the_bits_of_the_definition(terms, block, kept, given):
    source = model(terms, block, **given)
    session = ostinato.InferenceSession(source, Options(cache_dir=None))
    # Nothing widens weights in a call.
    assert len(session.report()["kernels"]) == 1
    x = np.random.default_rng(1).standard_normal((3, terms)).astype("f")
    wide = dequantized(source)
    plain = wide if given.get("axis", 0) == 0 else np.ascontiguousarray(wide.T)
    floats = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            source.graph.input,
            source.graph.output,
            [numpy_helper.from_array(plain, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    (expected,) = ostinato.InferenceSession(floats, cache_dir=None).run(None, {"x": x})
    (got,) = session.run(None, {"x": x})
    assert got.tobytes() == expected.tobytes()
    assert session.report()["passes"]["even_blocks"] == kept


@pytest.mark.parametrize(
    ("op", "shape", "axis", "reads"),
    [
        # The output columns, rows of a table and channels of windows: no sum runs along blocks
        # alone.
        ("MatMul", (8, 40), 1, (3, 8)),
        ("Gather", (40, 8), 0, (5,)),
        ("Conv", (4, 40, 3), 1, (1, 40, 9)),
    ],
)
def test_blocks_that_readers_have_no_form_for_are_widened_once(op, shape, axis, reads):
    random = np.random.default_rng(0)
    blocks = [n if i != axis else n // 20 for i, n in enumerate(shape)]
    constants = {
        "w": random.integers(-128, 128, shape, np.int8),
        "scale": random.uniform(0.1, 1, blocks).astype("f"),
    }
    kind = np.int64 if op == "Gather" else np.float32
    x = random.integers(0, 40, reads).astype(kind)
    operands = ["d", "x"] if op == "Gather" else ["x", "d"]
    nodes = [
        helper.make_node("DequantizeLinear", list(constants), ["d"], axis=axis, block_size=20),
        helper.make_node(op, operands, ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(
                "x", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), reads
            )
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ostinato.InferenceSession(source, Options(cache_dir=None))
    assert not any(kernel["fused"] == ["d"] for kernel in session.report()["kernels"])
    each_time = ostinato.InferenceSession(source, Options(cache_dir=None, disable=("widen_late",)))
    assert any(kernel["fused"] == ["d"] for kernel in each_time.report()["kernels"])
    (got,), (expected,) = (one.run(None, {"x": x}) for one in (session, each_time))
    assert got.tobytes() == expected.tobytes()
