"""Operators that onnxruntime's tools write become those of the standard."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx_ir as ir

from ostinato.definitions import contributed
from ostinato.definitions.contributed.call import Call
from ostinato.definitions.contributed.tables import TABLES
from ostinato.errors import UnsupportedError
from ostinato.graph.rules import load_rules
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.contributed import BLOCKED, MICROSOFT
from ostinato.model.graphs import nodes_of, upstream
from ostinato.model.grown_caches import grown_caches
from ostinato.model.names import Names
from ostinato.model.schema import normal_domain, opset_of
from ostinato.model.values import constant_tensor
from ostinato.passes.normalise.infer_shapes import infer_of
from ostinato.passes.simplify.constant_folding import constant_folding
from ostinato.passes.simplify.eliminate_identity import eliminate_identity

# The first operator set whose Clip and Pad have operands where older ones have attributes.
_OLDEST = 11

load_rules(contributed.__name__, contributed.__path__)


def expand_contributed(model: ir.Model) -> int:
    """Replace the operators of `com.microsoft` and its like, in place; returns their number.

    Matches nodes of those domains, and of versions of standard operators that only onnxruntime
    has, in any graph. Writes the definition of each in standard operators. Valid because that is
    what onnxruntime documents the operators to compute.

    Raises `UnsupportedError` for a node whose attributes or operands have no definition, and for a
    model of an operator set older than 11.
    """
    nodes = [*_matches(model)]
    if not nodes:
        return 0
    opset = opset_of(model)
    if opset < _OLDEST:
        reason = f"the model imports opset {opset}, expected {_OLDEST} or later: convert it first"
        raise UnsupportedError(describe(nodes[0]), nodes[0].op_type, reason)
    if any(map(_is_made_of_constants, nodes)):
        # Definitions look at weights and scales.
        eliminate_identity(model)
        constant_folding(model)
    names, known = Names(model), grown_caches(model)
    for node in nodes:
        caches = known if node.graph is model.graph else None
        writer = Writer(model.graph, names, opset, ir.DataType.FLOAT, describe(node))
        infer = partial(infer_of, model=model)
        call = Call(node, writer, infer, _block(nodes), caches=caches)
        call.check_scales()
        call.expand(TABLES[normal_domain(node.domain)][node.op_type])
    for domain in (MICROSOFT, BLOCKED):
        model.opset_imports.pop(domain, None)
    return len(nodes)


def _matches(model: ir.Model) -> Iterator[ir.Node]:
    for node in nodes_of(model):
        if node.op_type in TABLES.get(normal_domain(node.domain), ()):
            yield node


def _is_made_of_constants(node: ir.Node) -> bool:
    """Whether other nodes make an operand of constants alone."""
    made = [value for value in node.inputs if value is not None and value.producer() is not None]
    return any(
        all(v.producer() is not None or constant_tensor(v) is not None for v in upstream([value]))
        for value in made
    )


def _block(nodes: list[ir.Node]) -> int:
    """Channels in a block of the images of this file.

    onnxruntime takes as many as a vector of its machine has numbers, and reads files as if they
    had been written on the same kind of machine; so does this where sizes do not tell.
    """
    for node in nodes:
        if node.domain == BLOCKED and node.op_type == "Conv":
            weights = node.inputs[1]
            if weights is not None and weights.shape is not None and weights.shape[0] % 16:
                return 8
    found = np.show_config("dicts")["SIMD Extensions"].get("found", [])
    return 16 if any(name.startswith("AVX512") for name in found) else 8
