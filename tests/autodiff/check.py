"""Gradients beside central differences, both in float64."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx.defs
from onnx import TensorProto, helper, numpy_helper
from onnx.inliner import inline_local_functions

import ostinato
from ostinato.autodiff import gradient
from ostinato.model.order import attribute_graphs
from tests import witness
from tests.oracle import ops

Arrays = dict[str, np.ndarray]

STEP = 1e-5
TOLERANCE = 1e-6
MOST_ELEMENTS = 24


def in_doubles(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 in place of float32 everywhere."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    opset = next(one.version for one in model.opset_import if one.domain == "")
    _graph_in_doubles(copy.graph, opset)
    return copy


def _graph_in_doubles(graph: onnx.GraphProto, opset: int) -> None:
    never = {
        name
        for node in graph.node
        for name, types in zip(node.input, _operand_types(node, opset), strict=False)
        if "tensor(float)" in types and "tensor(double)" not in types
    }
    del graph.value_info[:]
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        if tensor.name not in never:
            _tensor_in_doubles(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _tensor_in_doubles(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to":
                attribute.i = (
                    TensorProto.DOUBLE if attribute.i == TensorProto.FLOAT else attribute.i
                )
            for body in attribute_graphs(attribute):
                _graph_in_doubles(body, opset)


def _operand_types(node: onnx.NodeProto, opset: int) -> Iterator[Collection[str]]:
    """The types that each operand of the node may have."""
    if onnx.defs.has(node.op_type, opset, node.domain):
        for formal in onnx.defs.get_schema(node.op_type, opset, node.domain).inputs:
            yield formal.types


def _tensor_in_doubles(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def with_loss(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with one output, `loss`: the sum of all float elements that it returned, each

    times a number that is given: the output `y` times the new input `y_factors`.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    terms, element = [], TensorProto.FLOAT
    for output in model.graph.output:
        name, kind = output.name, output.type.tensor_type.elem_type
        if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE):
            continue
        element = kind
        factors = copy.graph.input.add(name=f"{name}_factors")
        factors.type.CopyFrom(output.type)
        copy.graph.node.append(helper.make_node("Mul", [name, f"{name}_factors"], [f"{name}_x"]))
        copy.graph.node.append(
            helper.make_node("ReduceSum", [f"{name}_x"], [f"{name}_sum"], keepdims=0)
        )
        terms.append(f"{name}_sum")
    copy.graph.node.append(helper.make_node("Sum", terms, ["loss"]))
    del copy.graph.output[:]
    copy.graph.output.append(helper.make_tensor_value_info("loss", element, []))
    return copy


def check(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    wrt: Sequence[str] | None = None,
    *,
    native: bool = True,
    tolerance: float = TOLERANCE,
    onnxruntime: bool = True,
    checkpoint: int | None = None,
) -> onnx.ModelProto:
    """Assert that the gradients of a float32 model are the central differences of it in float64,

    and, to the precision of float32, what onnxruntime makes of the gradient model.
    wrt: float inputs and initializers, all float inputs when left out. native: whether the whole
    gradient model has to compile. Returns the gradient model in float64.
    """
    feeds = {name: np.asarray(array) for name, array in feeds.items()}
    if wrt is None:
        wrt = [name for name, array in feeds.items() if array.dtype == np.float32]
    doubles = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feeds.items()}
    random = np.random.default_rng(5)
    expected_loss = 0.0
    plain = inline_local_functions(in_doubles(model))
    for output, result in zip(model.graph.output, ops.run(plain, doubles), strict=True):
        kind = output.type.tensor_type.elem_type
        if kind in (TensorProto.FLOAT, TensorProto.DOUBLE):
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            factor = random.standard_normal(np.shape(result)).astype(dtype)
            feeds[f"{output.name}_factors"] = factor
            doubles[f"{output.name}_factors"] = factor.astype(np.float64)
            expected_loss += float((result * doubles[f"{output.name}_factors"]).sum())

    # Gradients for initializers are those of what float32 makes of constants, and of no input.
    # Nor are constants that a gradient in float32 has folded those of float64.
    is_moved = doubles.keys() >= set(wrt)
    wide = in_doubles(with_loss(model))
    narrow = gradient(with_loss(model), "loss", wrt, checkpoint) if onnxruntime else None
    differentiated = (
        in_doubles(narrow) if narrow and is_moved else gradient(wide, "loss", wrt, checkpoint)
    )
    session = ostinato.InferenceSession(differentiated, cache_dir=None, fallback=not native)
    names = [output.name for output in session.get_outputs()]
    assert names == ["loss", *(f"{name}_grad" for name in wrt)]
    got = dict(zip(names, session.run(None, doubles), strict=True))
    np.testing.assert_allclose(got["loss"], expected_loss, rtol=1e-9, atol=1e-9)
    moved = (session, doubles) if is_moved else opened(wide, doubles, wrt)
    for name, (places, expected) in slopes(*moved, wrt).items():
        found = got[f"{name}_grad"].reshape(-1)[places]
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale, err_msg=name)
    if narrow:
        answers = witness.run(narrow.SerializeToString(), feeds)
        for (name, mine), theirs in zip(got.items(), answers, strict=True):
            scale = max(1.0, float(np.abs(mine).max(initial=0)))
            np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-4 * scale, err_msg=name)
    return differentiated


def opened(
    model: onnx.ModelProto, feeds: Arrays, wrt: Sequence[str]
) -> tuple[ostinato.InferenceSession, Arrays]:
    """A session of the model, and its inputs; initializers in `wrt` are among them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    feeds = dict(feeds)
    for tensor in list(copy.graph.initializer):
        if tensor.name in wrt:
            feeds[tensor.name] = numpy_helper.to_array(tensor)
            copy.graph.initializer.remove(tensor)
            copy.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return ostinato.InferenceSession(copy, cache_dir=None), feeds


def slopes(
    session: ostinato.InferenceSession, feeds: Arrays, wrt: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Some places of each array, flattened, and the slope of the output `loss` there."""
    random = np.random.default_rng(3)

    def moved(name: str, place: int, step: float) -> float:
        array = feeds[name].copy()
        array.reshape(-1)[place] += step
        return float(session.run(["loss"], {**feeds, name: array})[0])

    found = {}
    for name in wrt:
        size = feeds[name].size
        places = np.sort(random.permutation(size)[:MOST_ELEMENTS])
        found[name] = (
            places,
            np.array([(moved(name, p, STEP) - moved(name, p, -STEP)) / (2 * STEP) for p in places]),
        )
    return found


def differences(
    model: onnx.ModelProto, feeds: Arrays, wrt: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The `slopes` of a model."""
    return slopes(*opened(model, feeds, wrt), wrt)
