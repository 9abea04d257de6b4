"""Structure of a model: every value has one producer that runs before its readers.

`onnx.checker` tests the same and more, but its messages name neither nodes inside bodies nor
cycles, and it accepts operators of unknown domains. What is found here is reported by name; the
rest (attribute types, arity, tensor sizes) is left to `onnx.checker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from ostinato.errors import ModelError, UnsupportedError
from ostinato.model.check_bodies import check_bodies
from ostinato.model.check_calls import FunctionKey, called, check_calls
from ostinato.model.check_inferable import check_inferable
from ostinato.model.order import bodies
from ostinato.model.schema import normal_domain, schema_of
from ostinato.spelling import mistyped


def check_structure(model: onnx.ModelProto) -> None:
    """Raise `ModelError` or `UnsupportedError` when the graph of `model` does not hold together."""
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"the model has IR version {model.ir_version}, the installed onnx package knows 1 to "
            f"{onnx.IR_VERSION}; upgrade onnx, or export the model for an earlier version"
        )
    functions = {(normal_domain(f.domain), f.name, f.overload): f for f in model.functions}
    check_calls(model, functions)
    keys = {*functions}
    _Structure(_opsets(model.opset_import, "the model"), keys).graph(model.graph, [])
    for function in model.functions:
        where = f"function {function.name!r}"
        structure = _Structure(_opsets(function.opset_import, where), keys)
        defined = set(function.input)
        structure.nodes(function.node, [defined])
        for name in function.output:
            if name not in defined:
                raise ModelError(f"{where}: output {name!r} is not produced by any node")


def _opsets(imports: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    versions: dict[str, int] = {}
    for item in imports:
        domain = normal_domain(item.domain)
        if versions.setdefault(domain, item.version) != item.version:
            raise ModelError(f"{where} imports two versions of domain {domain or 'ai.onnx'!r}")
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= versions.get("", 1) <= newest:
        raise ModelError(
            f"{where} imports opset {versions['']} of ai.onnx, the installed onnx package knows "
            f"1 to {newest}; upgrade onnx, or convert the model with onnx.version_converter"
        )
    return versions


def _label(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), "<unnamed>")


class _Structure:
    def __init__(self, opsets: Mapping[str, int], functions: set[FunctionKey]) -> None:
        self._opsets, self._functions = opsets, functions

    def graph(self, graph: onnx.GraphProto, outer: list[set[str]]) -> None:
        """Check a graph whose enclosing graphs define the names in `outer`, outermost first."""
        where = f"graph {graph.name!r}"
        inputs = [value.name for value in graph.input]
        _refuse_repeats(inputs, where, "input")
        _refuse_repeats([tensor.name for tensor in graph.initializer], where, "initializer")
        if not outer:
            _refuse_repeats([value.name for value in graph.output], where, "output")
        defined = {*inputs, *(tensor.name for tensor in graph.initializer)}
        if "" in defined:
            raise ModelError(f"{where}: an input or initializer has no name")
        self.nodes(graph.node, [*outer, defined])
        for value in graph.output:
            if value.name not in defined:
                raise ModelError(f"{where}: output {value.name!r} is not produced by any node")

    def nodes(self, nodes: Sequence[onnx.NodeProto], scopes: list[set[str]]) -> None:
        """Check nodes in order, adding what they produce to the last of `scopes`."""
        for node in nodes:
            self._operator(node)
            check_inferable(node, _label(node))
            check_bodies(node, _label(node), self._opsets.get("", 0))
            for name in node.input:
                if name and not any(name in scope for scope in scopes):
                    raise ModelError(_missing(node, name, nodes))
            for body in bodies(node):
                self.graph(body, scopes)
            for name in node.output:
                if name and name in scopes[-1]:
                    raise ModelError(
                        f"node {_label(node)!r} ({node.op_type}): output {name!r} has the name of "
                        "another value; every value must be produced once"
                    )
                if name:
                    scopes[-1].add(name)

    def _operator(self, node: onnx.NodeProto) -> None:
        domain = normal_domain(node.domain)
        if not node.op_type:
            raise ModelError(f"node {_label(node)!r}: it names no operator (op_type is empty)")
        if called(node) in self._functions:
            return
        version = self._opsets.get(domain)
        if version is None:
            raise ModelError(
                f"node {_label(node)!r} ({node.op_type}): no opset is imported for domain "
                f"{domain or 'ai.onnx'!r}"
            )
        if schema_of(node.op_type, domain, version) is None:
            raise UnsupportedError(
                _label(node),
                node.op_type,
                _unknown(node.op_type, domain, version),
            )


def _unknown(op_type: str, domain: str, version: int) -> str:
    """Why an operator that no schema describes is refused, and what may be done."""
    refused = f"{domain or 'ai.onnx'} version {version} has no such operator"
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain]
    versions = [schema.since_version for schema in schemas if schema.name == op_type]
    if versions:
        return f"{refused}; it is one since {min(versions)}: import that version of the domain"
    meant = mistyped(op_type, {schema.name for schema in schemas})
    if meant:
        return f"{refused}; {meant}"
    if not domain:
        return refused
    return (
        f"{refused} that is known here: let the model define it as a function, or run the model "
        "by ostinato.onnxruntime, which leaves it to onnxruntime"
    )


def _refuse_repeats(names: Sequence[str], where: str, kind: str) -> None:
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"{where}: two {kind}s are named {repeated!r}")


def _missing(node: onnx.NodeProto, name: str, nodes: Sequence[onnx.NodeProto]) -> str:
    """Why input `name` of `node` is not there: never produced, part of a cycle or behind one."""
    where = f"node {_label(node)!r} ({node.op_type}): input {name!r}"
    producers = {output: other for other in nodes for output in other.output if output}
    if name not in producers:
        return f"{where} is not an input, an initializer or the output of any node"
    pending, seen = [name], {name}
    while pending:
        producer = producers.get(pending.pop())
        if producer is node:
            return f"{where} depends on the node's own output: the graph has a cycle"
        upstream = set(producer.input) - seen if producer is not None else set()
        seen |= upstream
        pending.extend(upstream)
    return f"{where} depends on nodes that form a cycle"
