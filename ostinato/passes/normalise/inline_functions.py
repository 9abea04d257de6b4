"""Calls of model-local functions become the nodes of the function."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.edit import append_copy
from ostinato.model.attributes import describe
from ostinato.model.graphs import nodes_of
from ostinato.model.names import make_names_unique
from ostinato.model.nesting import check_nesting
from ostinato.model.schema import opset_of, since_version


def inline_functions(model: ir.Model) -> int:
    """Inline every model-local function and drop the functions; returns the number of calls.

    Matches a node that names a function stored in the model, in any graph and in other functions.
    Makes a copy of the function's nodes with the node's inputs and attributes in place of the
    function's. Valid because that is the definition of a call (ONNX IR, "Functions").

    Raises `UnsupportedError` for a function written for another operator set than the model's,
    where one of its nodes is of another version.
    """
    if not model.functions:
        return 0
    from onnx_ir.passes.common import InlinePass

    domains = {function.domain for function in model.functions.values()}
    _import_as_the_model(model)
    _return_own_values(model)
    calls = sum(node.op_identifier() in model.functions for node in nodes_of(model))
    try:
        InlinePass()(model)
    except (ValueError, RuntimeError, AssertionError) as error:
        names = ", ".join(sorted(function.name for function in model.functions.values()))
        raise UnsupportedError(names, "function call", str(error.__cause__ or error)) from error
    model.functions.clear()
    used = {node.domain for node in nodes_of(model)}
    for domain in domains - used - {""}:
        model.opset_imports.pop(domain, None)
    check_nesting(model)
    make_names_unique(model)
    return calls


def _import_as_the_model(model: ir.Model) -> None:
    """Have functions import the operators of the standard that the model imports."""
    latest = opset_of(model)
    for function in model.functions.values():
        opset = function.opset_imports.get("", latest)
        for node in ir.traversal.RecursiveGraphIterator(function):
            if node.domain:
                continue
            if since_version(node.op_type, "", opset) != since_version(node.op_type, "", latest):
                raise UnsupportedError(
                    describe(node),
                    node.op_type,
                    f"is of opset {opset} in function {function.name!r} and of another version in "
                    f"opset {latest}, which the model imports; export both with one opset",
                )
        if "" in function.opset_imports:
            function.opset_imports[""] = latest


def _return_own_values(model: ir.Model) -> None:
    """Put an Identity behind each function output that is an input of the function.

    The inliner gives the value that a function returns the name of the caller's value; without
    this it would rename an input of the caller.
    """
    for function in model.functions.values():
        for position, value in enumerate(function.outputs):
            if value.is_graph_input():
                name = f"{value.name}_output_{position}"
                function.outputs[position] = append_copy(function, value, name)
