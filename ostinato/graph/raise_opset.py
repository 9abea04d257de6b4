"""Raises a model to a later opset: to 9, the first one with `Scan`, or to any other."""

from __future__ import annotations

import onnx.version_converter
import onnx_ir as ir
from onnx import defs

from ostinato.errors import UnsupportedError
from ostinato.graph.opset_changes import change_between
from ostinato.graph.restated import older_nodes, repair
from ostinato.model.attributes import describe
from ostinato.model.load import load_model
from ostinato.model.schema import opset_of
from ostinato.model.write import innermost, to_model_proto

_SCAN_OPSET = 9
_SCAN_IR_VERSION = 4  # the first in which an initializer need not be a graph input as well


def raise_opset(model: ir.Model, except_for: frozenset[ir.Node]) -> int:
    """Raise `model` in place to opset 9 if it is older, and return the opset it then imports.

    Nodes of `except_for` are about to be replaced and are not looked at. Raises
    `UnsupportedError` for the first other node whose operator changed; nothing is modified then.
    """
    opset = opset_of(model)
    if opset < _SCAN_OPSET:
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            if not node.domain and node not in except_for:
                _check_unchanged(node, opset)
        model.opset_imports[""] = opset = _SCAN_OPSET
    model.ir_version = max(model.ir_version, _SCAN_IR_VERSION)
    return opset


def converted(model: ir.Model, opset: int) -> ir.Model:
    """The model in `opset`, itself where it is not older; loaded afresh otherwise.

    Raises `UnsupportedError` for a model that the onnx package cannot convert.
    """
    before = opset_of(model)
    if before >= opset:
        return model
    try:
        proto = onnx.version_converter.convert_version(to_model_proto(model), opset)
    except Exception as error:  # whatever the converter makes of an operator it does not know
        raise UnsupportedError(
            str(model.graph.name),
            "model",
            f"has opset {before}, and cannot be converted to {opset}: "
            f"{innermost(error)}; export it again with a later opset",
        ) from error
    raised = ir.from_proto(proto)
    repair(raised, older_nodes(model, before, opset))
    return load_model(raised)


def _check_unchanged(node: ir.Node, opset: int) -> None:
    old = defs.get_schema(node.op_type, opset)
    new = defs.get_schema(node.op_type, _SCAN_OPSET)
    reason = change_between(node, old, new)
    if reason:
        raise UnsupportedError(
            describe(node),
            node.op_type,
            f"{reason} between opset {opset} of this model and opset {_SCAN_OPSET}, which the "
            "expansion of recurrent nodes needs; convert the model with onnx.version_converter",
        )
