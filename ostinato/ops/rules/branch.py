"""If: one of two graphs, chosen while compiling or while running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ostinato.errors import ShapeError
from ostinato.guards import Guards
from ostinato.model.graphs import BRANCHES
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context, UnknownOperandError, lowers
from ostinato.ops.core.singles import known_element, single
from ostinato.ops.core.tensor import AnyValue, Tensor, Value, dense, drop_ones, share_memory
from ostinato.ops.rules.elements import is_element, returns_condition
from ostinato.ops.rules.sequence_forms import common_form, flattened, form, in_form, rebuilt
from ostinato.ops.rules.sequences import MissingElementError
from ostinato.program.conditions import telling
from ostinato.program.expr import Extent, constant
from ostinato.program.nodes import Branch, Require, Stmt
from ostinato.sizes.dims import Dim, Size, computed, maximum

if TYPE_CHECKING:
    import onnx_ir as ir


# What says that no run takes a way to its end.
_EndError: TypeAlias = MissingElementError | ShapeError
_END_ERRORS = (MissingElementError, ShapeError)


class _DifferentFormError(UnknownOperandError):
    """The ways of an If give values that cannot share memory."""


@lowers("If")
def lower_if(context: Context) -> list[AnyValue]:
    """The outputs of one of two graphs.

    Where their shapes differ and sizes decide between them, the program is made for the sizes that
    choose the first: exporters write a Squeeze of an axis that is 1 in this way. Another one is
    made for those that choose the second when they come.
    """
    condition = single(context, context.input(0), "cond", "bool")
    ways = [context.attributes.graph(name) for name in BRANCHES]
    assert condition is not None
    chosen = known_element(condition)
    if chosen is not None:
        return context.lower_body(ways[0] if chosen else ways[1], [])
    builder = context.builder
    mark = builder.checkpoint()
    decides = None if condition.known is None else condition.known.reshape(-1)[0]
    if not builder.guarded or not isinstance(decides, Dim) or computed(decides):
        return _branch(context, condition, ways, is_merged=True)
    try:
        return _branch(context, condition, ways, is_merged=False)
    except _DifferentFormError:
        pass
    builder.rollback(mark)
    if builder.guarded is Guards.OTHERWISE:
        builder.require.guard(1 - decides, "sizes for which its condition is true")
        return context.lower_body(ways[1], [])
    builder.require.guard(decides, "sizes for which its condition is false")
    return context.lower_body(ways[0], [])


def _branch(
    context: Context, condition: Value, ways: Sequence[ir.Graph], is_merged: bool
) -> list[AnyValue]:
    """Both ways behind a run-time condition; their outputs share memory.

    is_merged: where their shapes differ, the way that is taken computes the sizes of the result.
    """
    builder = context.builder
    flag = _scalar(builder, condition, "bool")
    blocks: list[list[Stmt]] = []
    made: list[list[AnyValue] | _EndError] = []
    for way in ways:
        checks = len(builder.draft.checks)
        with builder.emit.block([]) as statements:
            made.append(_way(context, way))
        blocks.append([*_required(builder, checks), *statements])
    forms = _in_rows(context, blocks, _that_end(builder, blocks, made))
    if [form(value) for value in forms[0]] != [form(value) for value in forms[1]]:
        reason = "branches give sequences of different lengths, or optionals of which one is empty"
        raise _DifferentFormError(context.node, reason, _operands(context, 0), True)
    results = _as_elements(context, [flattened(values) for values in forms])
    targets = [_target(context, pair, blocks, is_merged) for pair in zip(*results, strict=True)]
    for statements, values in zip(blocks, results, strict=True):
        with builder.emit.block(statements):
            for value, target in zip(values, targets, strict=True):
                for own, size in zip(value.shape, target.shape, strict=True):
                    if own != size:
                        builder.sizes.compute(size, Extent(own))
                if share_memory(value, target):
                    continue
                builder.limits.memory(target.dtype, target.shape)
                builder.copy(value, dense(value.dtype, value.shape, target.buffer))
    builder.emit.append(Branch(flag.buffer, tuple(blocks[0]), tuple(blocks[1])))
    return rebuilt(forms[0], targets)


def _that_end(
    builder: Builder, blocks: list[list[Stmt]], made: Sequence[list[AnyValue] | _EndError]
) -> list[list[AnyValue]]:
    """The values of both ways, of which one may read an element that is not there.

    Or its sizes contradict each other, as what another If has decided makes them. It ends a run
    that takes it: models ask before they do what is impossible otherwise. Raises the error where
    both ways do.
    """
    found = [values for values in made if not isinstance(values, _END_ERRORS)]
    ends = {way: error for way, error in enumerate(made) if isinstance(error, _END_ERRORS)}
    if not found:
        raise ends[0]
    for way, error in ends.items():
        with builder.emit.block([]) as statements:
            never = builder.compute((), lambda _: constant(False, "bool"))
            builder.emit.append(Require(never.buffer, str(error)))
            values = [_nothing(builder, value) for value in flattened(found[0])]
        blocks[way] = statements
        found.insert(way, rebuilt(found[0], values))
    return found


def _nothing(builder: Builder, value: Value) -> Tensor:
    """A value like another one, with as few elements as a run may give it."""
    return builder.empty(value.dtype, tuple(0 if computed(n) else n for n in value.shape))


def _in_rows(
    context: Context, blocks: Sequence[list[Stmt]], forms: Sequence[list[AnyValue]]
) -> list[list[AnyValue]]:
    """The values of both ways, sequences of different lengths as rows of tensors if they can be."""
    changed: list[list[AnyValue]] = [[], []]
    for pair in zip(*forms, strict=True):
        made: list[AnyValue] = list(pair)
        # Where only one of the ways computes a size, elements of the other way may have another.
        wanted = common_form(context.builder, pair, lambda size: bool(computed(size)))
        if form(pair[0]) != form(pair[1]) and wanted is not None:
            for way, value in enumerate(pair):
                with context.builder.emit.block(blocks[way]):
                    made[way] = in_form(context, value, wanted) or value
        for values, value in zip(changed, made, strict=True):
            values.append(value)
    return changed


def _as_elements(context: Context, results: list[list[Value]]) -> list[list[Value]]:
    """Single elements of different ranks as scalars where only the element is read.

    PyTorch writes `bool(a) and bool(b)` as an If of which one branch gives `b` with its axes and
    the other one a scalar; paddle2onnx joins vectors of one element to what comes of it.
    """
    if any(len(values) != len(context.node.outputs) for values in results):
        return results
    for i, made in enumerate(context.node.outputs):
        pair = [values[i] for values in results]
        ranks = {len(value.shape) for value in pair}
        if len(ranks) > 1 and is_element(context.builder, made, max(ranks)):
            for values, value in zip(results, pair, strict=True):
                if value.size == 1:
                    values[i] = drop_ones(value, tuple(range(len(value.shape)))) or value
    return results


def _way(context: Context, way: ir.Graph) -> list[AnyValue] | _EndError:
    """The values of a way; the error where no run can take it to its end."""
    appending = context.builder.appending
    for i, (made, value) in enumerate(zip(context.node.outputs, way.outputs, strict=True)):
        node = value.producer()
        # What a loop carries on is appended to in place in the way that is taken, too.
        if made.name in appending and value.name and node is not None and node.graph is way:
            appending[value.name] = appending[made.name]
        if is_element(context.builder, made):
            returns_condition(context.builder, way, i)
    try:
        return context.lower_body(way, [])
    except _END_ERRORS as error:
        return error


def _operands(context: Context, *positions: int) -> list[ir.Value]:
    """Operands of the node that are no constants."""
    inputs = context.node.inputs
    values = [inputs[i] for i in positions if i < len(inputs) and not context.is_constant(i)]
    return [value for value in values if value is not None]


def _required(builder: Builder, start: int) -> list[Stmt]:
    """The conditions on sizes made since `start`: they must hold only if this way is taken."""
    checks = telling(builder.draft.checks[start:])
    del builder.draft.checks[start:]
    if not checks:
        return []
    with builder.emit.block([]) as statements:
        builder.require.now(*(replace(c, size=_named(builder, c.size)) for c in checks))
    return statements


def _named(builder: Builder, size: Size) -> Size:
    """What shapes tell is computed once for them; values may be beyond what sizes can be."""
    is_of_values = builder.require.is_data_dependent(size)
    return size if is_of_values else builder.sizes.named(size, True)


def _target(
    context: Context, pair: Sequence[Value], blocks: Sequence[list[Stmt]], is_merged: bool
) -> Tensor:
    """Memory for either value; sizes that differ are declared, and each way checks its own."""
    yes, no = pair
    builder = context.builder
    is_alike = yes.dtype == no.dtype and len(yes.shape) == len(no.shape)
    if is_merged and is_alike:
        sizes = list(yes.shape)
        for i, (left, right) in enumerate(zip(yes.shape, no.shape, strict=True)):
            if left != right:
                most: list[Size] = []
                for statements, size in zip(blocks, (left, right), strict=True):
                    with builder.emit.block(statements):
                        most.append(builder.limits.most(size))
                sizes[i] = builder.sizes.either(left, right, maximum(*most), f"axis {i} of output")
        # The way that is taken checks that there is memory once it has computed the sizes.
        if share_memory(yes, no):
            assert isinstance(yes, Tensor)
            return replace(yes, shape=tuple(sizes), known=None, progression=None)
        with builder.emit.block([]):
            return builder.empty(yes.dtype, tuple(sizes))
    if yes.dtype != no.dtype or yes.shape != no.shape:
        reason = (
            f"branches give {yes.dtype}[{', '.join(map(str, yes.shape))}] and "
            f"{no.dtype}[{', '.join(map(str, no.shape))}], which has no native form"
        )
        raise _DifferentFormError(context.node, reason, _operands(context, 0), True)
    return builder.empty(yes.dtype, yes.shape)


def _scalar(builder: Builder, value: Value, dtype: str) -> Tensor:
    """The single element of a value, in a buffer of its own."""
    target = builder.empty(dtype, ())
    source = builder.strided(value)
    builder.copy(Tensor(source.dtype, (), source.base), target)
    return target
