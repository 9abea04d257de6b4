"""Nodes that move elements, over strings: what moves numbers moves these as well.

Native code moves no strings, so that kernels compute them that nothing else tries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import ostinato
from ostinato.graph.facts import facts_of
from tools.fuzz.modes import Array, Feeds, Mode


def moved_elements(model: onnx.ModelProto) -> set[str]:
    """The operands whose elements the only node of a model moves; none where strings may not be."""
    (node,), opset = model.graph.node, model.opset_import[0].version
    schema = onnx.defs.get_schema(node.op_type, opset)
    if not facts_of(node.op_type).moves or "tensor(string)" not in schema.inputs[0].types:
        return set()
    types = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(node.input))]
    same = {n for n, name in zip(node.input, types, strict=True) if name == types[0]}
    return same if schema.outputs[0].type_str == types[0] else set()


class AsStrings(Mode):
    """The mode of a model over strings that are the elements."""

    def run(self, session: ostinato.InferenceSession, model: bytes, feeds: Feeds) -> list[Any]:
        """The outputs of the other model, as the elements that its strings are."""
        other = onnx.ModelProto.FromString(model)
        graph, moved = other.graph, moved_elements(other)
        arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer} | dict(feeds)
        elements = {_text(x): x for name in moved & arrays.keys() for x in arrays[name].flat}
        for tensor in graph.initializer:
            if tensor.name in moved:
                made = _strings(arrays[tensor.name])
                tensor.CopyFrom(numpy_helper.from_array(made, tensor.name))
        for value in (*graph.input, *graph.output):
            if value.name in {*moved, *graph.node[0].output}:
                value.type.tensor_type.elem_type = onnx.TensorProto.STRING
        given = {n: _strings(a) if n in moved else a for n, a in feeds.items()}
        runner = ostinato.InferenceSession(other, cache_dir=None)
        dtype = arrays[next(iter(moved & arrays.keys()))].dtype
        elements[""] = np.zeros((), dtype)[()]
        return [
            np.array([elements[text] for text in result.flat], dtype).reshape(result.shape)
            for result in runner.run(None, given)
        ]


def _text(element: Any) -> str:
    """Of a zero it is the empty string, which is put where nobody says what."""
    return "" if element.tobytes() == bytes(element.itemsize) else element.tobytes().hex()


def _strings(array: Array) -> Array:
    return np.array([_text(x) for x in array.flat], object).reshape(array.shape)
