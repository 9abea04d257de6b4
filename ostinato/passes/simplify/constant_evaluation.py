"""What follows from constants alone, and is rounded on the way, is computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.random import is_random
from ostinato.model.graphs import subgraphs
from ostinato.model.names import Names
from ostinato.model.values import constant_array, static_dims
from ostinato.passes.simplify.constant_folding import (
    EXACT_FLOATS,
    SMALL_RESULT_BYTES,
    constant_room,
    store_constant,
    take_room,
)
from ostinato.passes.simplify.dead_code import dead_code

_EXACT_FLOATS = frozenset(ir.DataType.from_numpy(dtype) for dtype in EXACT_FLOATS)

# The outputs of a model without inputs, by name, but those whose bits depend on an option.
Evaluate = Callable[[ir.Model], Mapping[str, np.ndarray]]


def constant_evaluation(model: ir.Model, evaluate: Evaluate) -> int:
    """Store what nodes of the main graph make of constants alone; returns the number of values.

    Matches nodes that depend on nothing but initializers, are neither random nor have bodies, and
    whose results something that varies reads; in place of results that have no fixed size or exceed
    the room that there is for constants their operands, and so for nodes that only move or convert
    elements, such as the DequantizeLinear of weights, or compute more exactly than they read: what
    of these `constant_folding` leaves is not worth storing.

    Valid because native code gives the same bits wherever a node stands. `evaluate` runs the
    nodes, and leaves out values that depend on `Options.flush_denormals`.
    """
    wanted = _wanted(model)
    if not wanted:
        return 0
    results = evaluate(_part(model, {value.name for value in wanted}))
    names = Names(model)
    for value in wanted:
        array = results.get(value.name or "")
        if array is not None:
            store_constant(model, names, value, array)
    take_room(model, sum(array.nbytes for array in results.values()))
    dead_code(model)
    return len(results)


def _part(model: ir.Model, names: Container[str | None]) -> ir.Model:
    """The nodes behind the values of these names, as a model without inputs."""
    part = model.clone()
    part.graph.inputs.clear()
    part.graph.outputs[:] = [v for node in part.graph for v in node.outputs if v.name in names]
    dead_code(part)
    return part


def _wanted(model: ir.Model) -> list[ir.Value]:
    """The values to compute: what varies reads them, or what is left reads them for it."""
    constant: dict[ir.Value, ir.Node] = {}
    for node in model.graph:
        if _is_constant(node, constant):
            constant.update(dict.fromkeys(node.outputs, node))
    makers = set(constant.values())
    pending = [
        value
        for value in constant
        if value.is_graph_output() or any(use.node not in makers for use in value.uses())
    ]
    room: float = constant_room(model)
    seen, wanted = set(pending), []
    for value in pending:
        size = _bytes(value)
        if size <= room and not _is_left(constant[value], size):
            room -= size
            wanted.append(value)
            continue
        for operand in constant[value].inputs:
            if operand in constant and operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return wanted


def _is_constant(node: ir.Node, known: Container[ir.Value]) -> bool:
    """Whether a node of the standard makes the same of constants in every run."""
    if node.domain not in ("", "ai.onnx") or is_random(node) or any(True for _ in subgraphs(node)):
        return False
    return all(v is None or v in known or constant_array(v) is not None for v in node.inputs)


def _is_left(node: ir.Node, size: float) -> bool:
    """Whether a node moves or converts elements, or rounds none of more than it is made of.

    size: bytes of the result.
    """
    facts = facts_of(node.op_type)
    operands = [value for value in node.inputs if value is not None]
    dtype = next((value.dtype for value in operands), None)
    if not facts.computes or dtype is None:
        return True
    is_exact = facts.exact_floats if dtype in _EXACT_FLOATS else facts.exact_integers
    return is_exact and size > max(SMALL_RESULT_BYTES, *map(_bytes, operands))


def _bytes(value: ir.Value) -> float:
    """The size of a tensor of numbers; infinity where it is not fixed, and for all else."""
    dims, dtype = static_dims(value), value.dtype
    is_tensor = isinstance(value.type, ir.TensorType)
    if not is_tensor or dims is None or dtype is None or dtype is ir.DataType.STRING:
        return math.inf
    return math.prod(math.inf if n is None else n for n in dims) * dtype.itemsize
