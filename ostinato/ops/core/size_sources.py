"""The values that operands are computed from: small integers where they are so as shapes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.facts import facts_of
from ostinato.model.graphs import operands, subgraphs, upstream
from ostinato.model.values import constant_tensor
from ostinato.ops.core.known_sizes import LIMIT, MOST_TERMS
from ostinato.ops.core.registry import Context, UnknownOperandError
from ostinato.ops.core.tensor import Joined, Tensor
from ostinato.program.expr import INTEGERS
from ostinato.sizes.dims import product
from ostinato.sizes.strides import Shape

# Elements of these types can be sizes, or conditions that sizes depend on.
_SIZE_DTYPES = frozenset((*INTEGERS, "bool")) - {"uint64"}
# Shapes are computed by fewer operators than this.
_MOST_VALUES = 200


def can_be_sizes(dtype: str, shape: Shape, most: int = LIMIT) -> bool:
    """Whether the elements of such a value are few enough, and of a type, to be sizes."""
    count = product(shape)
    return isinstance(count, int) and count <= most and dtype in _SIZE_DTYPES


def _makes_sizes(node: ir.Node) -> bool:
    """Whether a node computes with sizes, or makes another view of them."""
    facts = facts_of(node.op_type, node.domain)
    return facts.arithmetic is not None or (facts.moves and (facts.cheap or facts.in_order))


def size_sources(
    value: ir.Value,
    is_known: Callable[[ir.Value], bool],
    is_source: Callable[[ir.Value], bool],
) -> set[ir.Value] | None:
    """The values from which this is computed as shapes are; None where something else takes part.

    is_known: whether the elements of a value are numbers or sizes by now. is_source: whether they
    could be made sizes.
    """
    found: dict[ir.Value, set[ir.Value] | None] = {}
    opened: set[ir.Value] = set()

    def below(made: ir.Value) -> list[ir.Value]:
        node = made.producer()
        if node is None or not _makes_sizes(node) or is_known(made) or len(opened) >= _MOST_VALUES:
            return []
        opened.add(made)
        return operands(made)

    for made in upstream([value], below):
        found[made] = {made} if is_source(made) else None
        if is_known(made):
            found[made] = set()
        elif made in opened:
            parts = [found[operand] for operand in operands(made)]
            if all(part is not None for part in parts):
                found[made] = {source for part in parts for source in part or ()}
    return found[value]


def _measurable(refusal: UnknownOperandError, measured: set[ir.Value]) -> set[ir.Value]:
    """The values that tell the operands in question when their elements are sizes."""
    lowered = refusal.lowered

    def is_known(value: ir.Value) -> bool:
        found = lowered(value) if lowered is not None else None
        return constant_tensor(value) is not None or getattr(found, "known", None) is not None

    def is_source(value: ir.Value) -> bool:
        found = lowered(value) if lowered is not None else None
        if not isinstance(found, (Tensor, Joined)):
            return False
        return can_be_sizes(found.dtype, found.shape, MOST_TERMS)

    sources: set[ir.Value] = set()
    for operand in refusal.operands:
        found = size_sources(operand, is_known, is_source)
        if found is not None and found <= measured and is_source(operand):
            # Values computed from them are no sizes: the operand itself has to be one.
            found = {operand}
        if found is None:
            return set()
        sources |= found
    return sources


def told_by_steps(context: Context, body: ir.Graph, refusal: UnsupportedError) -> set[ir.Value]:
    """The values whose elements steps have to tell as sizes for a body not to be refused.

    None of them where that would not do. Raises `UnknownOperandError` for values that are made
    before the loop: known before it they are worth more, if that is possible.
    """
    if not isinstance(refusal, UnknownOperandError) or refusal.needs_constants:
        return set()
    sources = _measurable(refusal, context.builder.measured)
    outer = sources - set(made_in(body))
    if outer:
        told = UnknownOperandError(context.node, refusal.reason, [*outer], False)
        told.lowered = refusal.lowered
        raise told
    return sources


def made_in(body: ir.Graph) -> Iterator[ir.Value]:
    """The inputs and results of a graph and of those in it."""
    yield from body.inputs
    for node in body.all_nodes():
        yield from node.outputs
        for inner in subgraphs(node):
            yield from inner.inputs


def depends_on(refusal: UnknownOperandError, values: Sequence[ir.Value]) -> bool:
    """Whether an operand that has to be known is computed from one of these values."""
    sources = set(values)
    return any(value in sources for value in upstream(refusal.operands, _read))


def _read(value: ir.Value) -> list[ir.Value]:
    """List the values that a value is computed from, bodies included."""
    node = value.producer()
    bodies = [] if node is None else subgraphs(node)
    return [*operands(value), *(output for body in bodies for output in body.outputs)]
