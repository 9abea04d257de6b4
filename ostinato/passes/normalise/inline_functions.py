"""Calls of model-local functions become the nodes of the function."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.edit import append_copy
from ostinato.model.graphs import nodes_of
from ostinato.model.names import make_names_unique
from ostinato.model.nesting import check_nesting


def inline_functions(model: ir.Model) -> int:
    """Inline every model-local function and drop the functions; returns the number of calls.

    Matches a node that names a function stored in the model, in any graph and in other functions.
    Makes a copy of the function's nodes with the node's inputs and attributes in place of the
    function's. Valid because that is the definition of a call (ONNX IR, "Functions").

    Raises `UnsupportedError` for a function written for another operator set than the model's.
    """
    if not model.functions:
        return 0
    from onnx_ir.passes.common import InlinePass

    domains = {function.domain for function in model.functions.values()}
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
