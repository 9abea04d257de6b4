"""Compute once what follows from constants alone through rounded operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.quantised import blocks_of
from ostinato.graph.random import is_random
from ostinato.model.graphs import is_standard, subgraphs
from ostinato.model.names import Names
from ostinato.model.values import constant_tensor, static_dims
from ostinato.passes.simplify.constant_folding import (
    SMALL_RESULT_BYTES,
    constant_room,
    store_constant,
    take_room,
)
from ostinato.passes.simplify.dead_code import dead_code
from ostinato.reference.direct import EXACT_FLOATS

_EXACT_FLOATS = frozenset(ir.DataType.from_numpy(dtype) for dtype in EXACT_FLOATS)

# Operators that widen a constant, stored in a narrow type, for its readers.
_WIDENINGS = frozenset(("Cast", "DequantizeLinear"))
# Dequantised biases, which have four bytes as they are, and single numbers, such as an exponent,
# are not worth a kernel in each call.
_ONE_NUMBER_BYTES = 4
# Taps along an axis from which convolutions compute several positions together, and positions of an
# image: 64 channels of 32 x 32 pixels with weights that are widened in each call take 1.5 of the
# time (`benchmarks.bench_narrow`).
_FEW_TAPS, _MANY_PLACES = 3, 64

# The outputs of a model without inputs, by name, but those whose bits depend on an option.
Evaluate = Callable[[ir.Model], Mapping[str, np.ndarray]]


def constant_evaluation(model: ir.Model, evaluate: Evaluate) -> int:
    """Store what nodes of the main graph make of constants alone; returns the number of values.

    Matches nodes that depend on nothing but initializers, are neither random nor have bodies, and
    whose results something that varies reads; in place of results that have no fixed size or exceed
    the room that there is for constants their operands, and so for nodes that only move or convert
    elements, such as the DequantizeLinear of narrow weights, or compute more exactly than they
    read: what of these `constant_folding` leaves is not worth storing. Weights of windows over
    images are, each of which meets many positions, and so are floats of 8 bits and what has scales
    for blocks of few numbers.

    Valid because native code gives the same bits wherever a node stands. `evaluate` runs the
    nodes, and leaves out values that depend on `Options.flush_denormals`.
    """
    wanted = _wanted(model)
    if not wanted:
        return 0
    results = evaluate(_part(model, {value.name for value in wanted}))
    # Before uses move to what is stored.
    counted = [value.name or "" for value in wanted if not _is_widened_first(value)]
    names = Names(model)
    for value in wanted:
        array = results.get(value.name or "")
        if array is not None:
            store_constant(model, names, value, array)
    take_room(model, sum(results[name].nbytes for name in counted if name in results))
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
        if _is_widened_first(value):
            wanted.append(value)
            continue
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
    if node.domain or is_random(node) or any(True for _ in subgraphs(node)):
        return False
    return all(v is None or v in known or constant_tensor(v) is not None for v in node.inputs)


def _is_left(node: ir.Node, size: float) -> bool:
    """Whether a node moves or converts elements, or rounds none of more than it is made of.

    size: bytes of the result.
    """
    facts = facts_of(node.op_type)
    operands = [value for value in node.inputs if value is not None]
    dtype = next((value.dtype for value in operands), None)
    if node.op_type == "DequantizeLinear":
        return size > max(_ONE_NUMBER_BYTES, _bytes(operands[0]))
    if not facts.computes or dtype is None:
        return True
    is_exact = facts.exact_floats if dtype in _EXACT_FLOATS else facts.exact_integers
    return is_exact and size > max(SMALL_RESULT_BYTES, *map(_bytes, operands))


def _is_widened_first(value: ir.Value) -> bool:
    """Whether a value is a stored constant widened, and widening it in each call takes longer.

    So are weights of convolutions over images alone, floats of 8 bits, and what has scales for
    blocks of few numbers. It is as large as it would be in a model of floats, and so takes no room
    from others.
    """
    maker = value.producer()
    if maker is None or maker.op_type not in _WIDENINGS or value.is_graph_output():
        return False
    if constant_tensor(maker.inputs[0]) is None:
        return False
    uses = list(value.uses())
    over_images = uses != [] and all(use.idx == 1 and _is_over_image(use.node) for use in uses)
    return over_images or _is_float8(maker.inputs[0]) or _has_short_blocks(maker)


def _is_float8(value: ir.Value | None) -> bool:
    """Whether numbers are floats of 8 bits, which take six operations to widen.

    GRU layers of 64 to 1024 units take 0.38 to 0.77 of the time for one step with float32 in their
    place, and 0.8 to 0.95 for 100 steps (`session.bind`, both by turns).
    """
    return value is not None and value.dtype is not None and "FLOAT8" in value.dtype.name


def _has_short_blocks(node: ir.Node) -> bool:
    """Whether the last block is not full, or scales and zero points of blocks are many.

    With them a constant has more than half of the bytes that floats have.
    """
    blocks = blocks_of(node)
    if blocks is None:
        return False
    narrow = sum(_bytes(value) for value in node.inputs if value is not None)
    floats = _elements(node.inputs[0]) * np.dtype(np.float32).itemsize
    return not blocks.are_even or 2 * narrow > floats


def _is_over_image(node: ir.Node) -> bool:
    """Whether a node is a Conv of three taps or more over many positions, of all channels."""
    places, kernel = ((static_dims(value) or ())[2:] for value in node.inputs[:2])
    group = node.attributes.get_int("group", 1)
    if not is_standard(node, "Conv") or group != 1 or len(kernel) < 2:
        return False
    many = math.prod(_MANY_PLACES if n is None else n for n in places) >= _MANY_PLACES
    return many and max(n or 0 for n in kernel) >= _FEW_TAPS


def _bytes(value: ir.Value) -> float:
    """The size of a tensor of numbers; infinity where it is not fixed, and for all else."""
    dtype, is_tensor = value.dtype, isinstance(value.type, ir.TensorType)
    if not is_tensor or dtype is None or dtype is ir.DataType.STRING:
        return math.inf
    return _elements(value) * dtype.itemsize


def _elements(value: ir.Value | None) -> float:
    """The number of elements of a tensor; infinity where that is not fixed."""
    dims = static_dims(value)
    return math.inf if dims is None else math.prod(math.inf if n is None else n for n in dims)
