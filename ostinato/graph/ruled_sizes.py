"""Sizes of the values of a model by the size rules of their operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from ostinato.graph.axis_maps import Form
from ostinato.graph.facts import Facts, facts_of
from ostinato.graph.loop_form import LoopForm, read_loop
from ostinato.model.values import constant_array, dims_of, optional_input, static_dims
from ostinato.sizes.dims import Size

# A result that is the same for operands of all these ranks does not depend on the rank: a sum of
# everything.
_RANKS = (0, 1, 2, 9)


def ruled_sizes(value: ir.Value, opset: int) -> Sequence[Size | None] | None:
    """The sizes of a value that a node makes, as far as its size rule knows them.

    None where there is no rule, or where the rank depends on operands of unknown rank.
    """
    node = value.producer()
    facts = Facts() if node is None else facts_of(node.op_type, node.domain)
    if node is None or facts.sizes is None:
        return None
    # To a rule an operand without sizes is one that is left out.
    has_rank = all(operand is None or operand.shape is not None for operand in node.inputs)
    results = [_sizes(node, facts, opset, rank) for rank in ((0,) if has_rank else _RANKS)]
    sizes = results[0]
    if sizes is None or any(other != sizes for other in results):
        return None
    index = node.outputs.index(value)
    return sizes[index] if index < len(sizes) else None


def refine_shapes(node: ir.Node, opset: int) -> None:
    """Write numbers where shapes of the results have names, as far as they follow from numbers.

    The sizes of a Pad are known once its operand has become a constant. What a Scan collects is as
    long as what it reads.
    """
    if all(_is_static(value, opset) for value in node.outputs):
        return
    loop = read_loop(node, opset) if node.op_type == "Scan" else None
    if loop is not None:
        _refine_scan(loop, opset)
    elif all(_is_static(operand, opset) for operand in node.inputs if operand is not None):
        for value in node.outputs:
            _refine(value, ruled_sizes(value, opset))


def _refine_scan(loop: LoopForm, opset: int) -> None:
    length: Size | None = None
    for state in loop.states:
        _refine(state.before, static_dims(state.initial))
    for scanned in loop.scanned:
        dims = static_dims(scanned.source)
        if dims and -len(dims) <= scanned.axis < len(dims):
            length, axis = dims[scanned.axis], scanned.axis % len(dims)
            _refine(scanned.element, (*dims[:axis], *dims[axis + 1 :]))
    for node in loop.body:
        refine_shapes(node, opset)
    for state in loop.states:
        _refine(state.final, static_dims(state.initial))
    for stacked in loop.stacked:
        sizes = ruled_sizes(stacked.element, opset)
        if sizes is not None:
            axis = stacked.axis % (len(sizes) + 1)
            _refine(stacked.result, (*sizes[:axis], length, *sizes[axis:]))


def _refine(value: ir.Value, sizes: Sequence[Size | None] | None) -> None:
    shape = value.shape
    if shape is not None and sizes is not None and len(sizes) == len(shape):
        pairs = zip(sizes, shape, strict=True)
        known = [new if isinstance(new, int) and not isinstance(n, int) else n for new, n in pairs]
        if known != [*shape]:
            value.shape = ir.Shape(known)


def _is_static(value: ir.Value, opset: int) -> bool:
    """Whether all sizes are numbers that follow from the graph: the shape of a result may not."""
    if value.shape is not None and value.is_graph_output() and value.producer():
        sizes = ruled_sizes(value, opset)
        return sizes is not None and None not in sizes and [*sizes] == [*value.shape]
    dims = static_dims(value)
    return dims is not None and None not in dims


def _sizes(
    node: ir.Node, facts: Facts, opset: int, rank: int
) -> Sequence[Sequence[Size | None] | None] | None:
    """What the size rule says if operands of unknown rank have this one."""
    unknown = (None,) * rank
    dims = [
        None if value is None else unknown if value.shape is None else dims_of(value)
        for value in node.inputs
    ]
    assert facts.sizes is not None
    try:
        return facts.sizes(Form(node, dims, partial(_constant, node), opset))
    except (ArithmeticError, LookupError, TypeError, ValueError):  # attributes that do not fit
        return None


def _constant(node: ir.Node, index: int) -> np.ndarray | None:
    return constant_array(optional_input(node, index))
