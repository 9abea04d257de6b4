"""Golden tests of graph passes: ONNX text in, ONNX text out, equal results before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from ostinato.model.load import load_model
from tests import witness

HEADER = '<ir_version: 8, opset_import: ["": {opset}]>\n'
# The size that a named dimension has in the feeds made here.
NAMED_SIZE = 3


def parse(text: str, opset: int = 17) -> onnx.ModelProto:
    """The model of a text that holds a graph, or a whole model when it begins with `<`."""
    text = text.strip()
    return onnx.parser.parse_model(
        text if text.startswith("<") else HEADER.format(opset=opset) + text
    )


def check(
    rewrite: Callable[[ir.Model], int],
    before: str,
    after: str,
    *,
    opset: int = 17,
    count: int | None = None,
    evaluate: str = "reference",
) -> ir.Model:
    """Assert that `rewrite` turns `before` into `after` and keeps the results.

    `count` is what the pass must return. `evaluate` names who compares the results: "reference"
    (bit for bit), "onnxruntime" (bit for bit, in a subprocess), or "nobody".
    """
    source = parse(before, opset)
    model = load_model(source)
    changed = rewrite(model)
    result = ir.to_proto(model)
    assert canonical_text(result) == canonical_text(parse(after, opset))
    onnx.checker.check_model(result, full_check=True)
    if count is not None:
        assert changed == count
    if evaluate != "nobody":
        feeds = make_feeds(source)
        run = {"reference": run_reference, "onnxruntime": run_onnxruntime}[evaluate]
        for expected, got in zip(run(source, feeds), run(result, feeds), strict=True):
            np.testing.assert_array_equal(got, expected, strict=True)
    return model


def canonical_text(model: onnx.ModelProto) -> str:
    """The text of a model without node names, inferred shapes and the order of initializers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = 8
    for graph in _graphs(copy.graph):
        del graph.value_info[:]
        graph.name = ""
        constants = sorted(graph.initializer, key=lambda tensor: tensor.name)
        del graph.initializer[:]
        graph.initializer.extend(constants)
        for node in graph.node:
            node.name = ""
            node.doc_string = ""
            attributes = sorted(node.attribute, key=lambda attribute: attribute.name)
            del node.attribute[:]
            node.attribute.extend(attributes)
        if graph is not copy.graph:
            for value in (*graph.input, *graph.output):
                value.ClearField("type")
    return str(onnx.printer.to_text(copy))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in ([attribute.g] if attribute.HasField("g") else [], attribute.graphs):
                for nested in body:
                    yield from _graphs(nested)


def make_feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random feeds for the inputs of a model that have no default."""
    random = np.random.default_rng(seed)
    constants = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [
            d.dim_value if d.HasField("dim_value") else NAMED_SIZE
            for d in value.type.tensor_type.shape.dim
        ]
        if dtype.kind == "f":
            feeds[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            feeds[value.name] = random.integers(0, 2, shape).astype(dtype)
    return feeds


def run_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs as `onnx.reference` computes them."""
    return list(ReferenceEvaluator(model).run(None, feeds))


def run_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs as onnxruntime computes them in a process of its own."""
    return witness.run(model.SerializeToString(), feeds)
