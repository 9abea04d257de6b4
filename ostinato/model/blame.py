"""Find the part of a model that the onnx package refuses.

Its checks stop at the first mistake, and what they say names the node or value at best in the words
of protobuf. Where a check has failed, the parts of the model are checked one by one to find the
part that fails in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import onnx
import onnx.checker

from ostinato.model.order import bodies

# The name of a part, and a check of it.
Part: TypeAlias = "tuple[str, Callable[[], Any]]"

# The largest version that the checks can be asked about.
_MOST = 2**31 - 1
_CONTEXT = "; ==> Context:"
# The parts that messages of the checks name by themselves, and what they say of fields.
_NODE = re.compile(r"Bad node spec for node\. Name: (.*?) OpType: (\w+)")
_TENSOR = re.compile(r"tensor name: ([^)]*)\)")
_VALUE = re.compile(r"value_info name: ([^)]*)\)")
_FIELD = re.compile(r"Field '(\w+)' of '\w+' is required (?:but missing|to be non-empty)\.?")


def blamed(model: onnx.ModelProto, message: str) -> str:
    """The message of a check that `model` failed, beginning with the part that is to blame."""
    reason = _FIELD.sub(r"it has no \1", message.partition(_CONTEXT)[0])
    return f"{_part(model, message)}: {reason}"


def _part(model: onnx.ModelProto, message: str) -> str:
    parts = [_parts(model.graph, _context(model.ir_version, model.opset_import))]
    for function in model.functions:
        parts.append(_nodes(function.node, _context(model.ir_version, function.opset_import)))
    for name, check in chain(*parts):
        try:
            check()
        except Exception as error:
            if str(error).splitlines()[:1] == [message.partition(_CONTEXT)[0]]:
                return name
    for pattern, text in (
        (_NODE, "node {!r} ({})"),
        (_TENSOR, "tensor {!r}"),
        (_VALUE, "value {!r}"),
    ):
        found = pattern.search(message)
        if found:
            return text.format(*found.groups())
    return f"graph {model.graph.name!r}"


def _context(ir_version: int, opsets: Iterable[onnx.OperatorSetIdProto]) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = max(0, min(ir_version, _MOST))
    context.opset_imports = {item.domain: max(1, min(item.version, _MOST)) for item in opsets}
    return context


def _parts(graph: onnx.GraphProto, context: Any) -> Iterator[Part]:
    """The values, constants and nodes of a graph, those of inner graphs before their node."""
    yield from _values("input", graph.input, context)
    yield from _values("output", graph.output, context)
    for tensor in graph.initializer:
        yield f"initializer {tensor.name!r}", partial(onnx.checker.check_tensor, tensor, context)
    yield from _nodes(graph.node, context)


def _nodes(nodes: Iterable[onnx.NodeProto], context: Any) -> Iterator[Part]:
    for number, node in enumerate(nodes):
        for body in bodies(node):
            yield from _parts(body, context)
        label = node.name or next((name for name in node.output if name), f"number {number}")
        yield f"node {label!r} ({node.op_type})", partial(onnx.checker.check_node, node, context)


def _values(kind: str, values: Iterable[onnx.ValueInfoProto], context: Any) -> Iterator[Part]:
    for value in values:
        yield f"{kind} {value.name!r}", partial(onnx.checker.check_value_info, value, context)
