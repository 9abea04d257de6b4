"""Weights that a model computes from constants, such as normalised ones, become constants."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.model.graphs import nodes_of, subgraphs
from ostinato.model.names import Names
from ostinato.model.values import constant_array
from ostinato.model.write import to_model_proto
from ostinato.passes.simplify.constant_folding import store_constant
from ostinato.passes.simplify.dead_code import dead_code
from ostinato.quantization.sites import is_product, tied_transposes
from ostinato.runtime.session import InferenceSession


def evaluate_operands(model: ir.Model) -> int:
    """Store the operands of products that depend on constants alone; returns their number.

    Matches operands of the nodes that `find_sites` looks for, if nodes of the main graph compute
    them, but not DequantizeLinear: its constants are narrow already. A session computes them, as it
    would in each run.
    """
    kept = {turn.outputs[0] for turn in tied_transposes(model)}
    computed = _computed_from_constants(model.graph) - kept
    products = (node for node in nodes_of(model) if is_product(node))
    wanted = [*dict.fromkeys(x for node in products for x in node.inputs if x in computed)]
    if not wanted:
        return 0
    clone = model.clone()
    made = {value.name: value for node in clone.graph for value in node.outputs}
    clone.graph.outputs[:] = [made[value.name] for value in wanted]
    dead_code(clone)
    clone.graph.inputs.clear()
    results = InferenceSession(to_model_proto(clone), cache_dir=None).run(None, {})
    names = Names(model)
    for value, array in zip(wanted, results, strict=True):
        store_constant(model, names, value, array)
    return len(wanted)


def _computed_from_constants(graph: ir.Graph) -> set[ir.Value]:
    """The results of nodes all of whose operands are constants, or such results."""
    found: set[ir.Value] = set()
    for node in graph:
        if node.domain or node.op_type == "DequantizeLinear" or facts_of(node.op_type).random:
            continue
        operands = [x for x in node.inputs if x is not None]
        is_known = all(x in found or constant_array(x) is not None for x in operands)
        if operands and is_known and not [*subgraphs(node)]:
            found.update(x for x in node.outputs if x.name and x.dtype is not None)
    return found
