"""Tables of frames by frames, as of attention: scores, masks and biases, weights.

Rows are the frames of a step, columns the places of a ring or all frames so far (`attention`). A
place that a row may not see must have no part in its result. So the form of a table says what is
at such places: anything ("scores"), minus infinity ("masked"), or zero ("weights", "zeros").
Softmax makes weights of what is masked, and sums over a row's places are taken of zeros alone.

Masks are not recognised by the nodes that compute them. They are computed for one length and looked
at (`masks`): which columns does a row see? One with the same meaning is written. Where a table has
values of its own, as a bias that grows with distance, its nodes are written once more (`indexed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.writer import Operand
from ostinato.model.values import filled
from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import Element, Fixed, Length, OfLength, Sizes, Table
from ostinato.streaming.fixed import uniform
from ostinato.streaming.indexed import Indexed
from ostinato.streaming.masks import NEVER, Band, band_of, frames_ahead, seen_by_rows
from ostinato.streaming.rules.attention import NO_MASK, kept, ring_of
from ostinato.streaming.rules.hiding import (
    computed,
    frames_of,
    hidden_from,
    not_understood,
    rows_of,
)

_ZERO = ("weights", "zeros")
# Operators that keep zeros, and those that make zeros of minus infinity.
_KEEP_ZERO = frozenset({"Abs", "Neg", "Relu", "Sqrt", "Tanh"})
_HIDE = frozenset({"Exp", "Relu", "Sigmoid"})


def table_rule(context: Context) -> None:
    """Convert a node that reads a table of frames by frames."""
    found = [i for i in range(len(context.node.inputs)) if _table(context, i) is not None]
    facts = facts_of(context.op_type, context.node.domain)
    rule = _RULES.get(context.op_type) if context.node.domain == "" else None
    if rule is not None and found[0] == 0:
        rule(context)
    elif facts.elementwise and not facts.broadcasts:
        _alone(context)
    elif facts.elementwise:
        _combined(context, found)
    else:
        raise context.refuse("reads a table of frames by frames, as of attention")


def _table(context: Context, index: int) -> Table | None:
    fact = context.fact(context.given(index)) if context.has(index) else None
    return fact if isinstance(fact, Table) else None


def _first_table(context: Context) -> Table:
    table = _table(context, 0)
    if table is None:
        raise context.refuse("reads a table of frames by frames, as of attention")
    return table


def _alone(context: Context) -> None:
    """Apply an operator of one operand to each element."""
    table = _first_table(context)
    if context.op_type == "IsNaN" and table.form == "weights":
        # Every row sees itself, so none of them is empty.
        context.set(replace(table, form="nowhere"))
    elif table.form == "masked" and context.op_type in _HIDE:
        context.set(replace(table, form="zeros"))
    elif table.form == "scores" or not facts_of(context.op_type).computes:
        context.set_all(table)
    elif table.form in _ZERO and context.op_type in _KEEP_ZERO:
        context.set(replace(table, form="zeros"))
    else:
        raise context.refuse("computes with scores that are masked, or with weights")


def _softmax(context: Context) -> None:
    table = _first_table(context)
    if table.form != "masked":
        raise context.refuse(NO_MASK)
    if context.axis(-1) != context.rank(context.given(0)) - 1:
        raise context.refuse("normalises over the rows of a table of frames by frames")
    context.set(replace(table, form="weights"))


def _reshape(context: Context) -> None:
    """Reshape the axes in front of rows and columns."""
    table, elements = _first_table(context), context.elements(1)
    growing = [i for i, element in enumerate(elements) if isinstance(element, Length)]
    if growing != [len(elements) - 2, len(elements) - 1]:
        raise context.refuse("changes a table of frames by frames")
    frames = context.converter.frames(context.writer, table.rate)
    # As many columns remain as there are frames.
    columns = -1 if context.converter.grows else ring_of(context, table.rate).size
    context.write_sizes(1, (*elements[:-1], columns), growing[0], frames)
    context.set(table)


def _weighted(context: Context) -> None:
    """The weights by the values."""
    table, stream = _first_table(context), context.stream(1)
    if table.form not in _ZERO:
        raise context.refuse(NO_MASK)
    if stream is None or stream.axis != context.rank(context.given(1)) - 2:
        raise context.refuse("weighs something else than frames")
    if stream.rate != table.rate or stream.delay > table.delay or stream.steady:
        raise context.refuse("its weights and values are out of step")
    value, stream = timing.delayed(context, context.given(1), stream, table.delay - stream.delay)
    # Frames that mean nothing have no weight, but may hold infinities.
    context.operand(1, kept(context, timing.masked(context, value, stream, 0.0), stream))
    context.set(rows_of(context, table))


def _of_rows(context: Context) -> None:
    """The sum of each row's weights, or the largest of its scores."""
    table, rank = _first_table(context), context.rank(context.given(0))
    axes = context.axes(1)
    if axes is None or [axis % rank for axis in axes] != [rank - 1]:
        raise context.refuse("reduces a table of frames by frames, but not along its last axis")
    if table.form not in (_ZERO if context.op_type == "ReduceSum" else ("masked",)):
        raise context.refuse(NO_MASK)
    stream = rows_of(context, table)
    gone = not context.attributes.int("keepdims", 1)
    context.set(replace(stream, axis=stream.axis + 1) if gone else stream)


def _trilu(context: Context) -> None:
    """The lower triangle is zeros where a row may not see."""
    offset = context.constant(1) if context.has(1) else np.zeros(1, np.int64)
    if context.attributes.int("upper", 1) or offset is None or offset.item() != 0:
        raise context.refuse(
            "takes another part of a table of frames by frames than the lower triangle with its "
            "diagonal, which is what a causal model does"
        )
    assert context.converter.context is not None
    _hide(context, 0, context.given(0), Band(1, (context.converter.context - 1,)), 0.0)


def _shape(context: Context) -> None:
    """Sizes, of which those of rows and columns grow; what is made by them is looked at."""
    table = _first_table(context)
    elements: list[Element] = list(context.dims(context.given(0)))
    elements[-2:] = [Length(table.rate, table.extra)] * 2
    start, end = context.attributes.int("start", 0), context.attributes.int("end", len(elements))
    context.set(Sizes(tuple(elements[start:end])))


_RULES: dict[str, Callable[[Context], None]] = {
    "MatMul": _weighted,
    "Reshape": _reshape,
    "Shape": _shape,
    "Softmax": _softmax,
    "Trilu": _trilu,
    "ReduceMax": _of_rows,
    "ReduceSum": _of_rows,
}


@dataclass(frozen=True)
class _Operand:
    """The other operand of a table. band: the places rows see of it; None where it hides nothing.

    values: whether it has values of its own beside those that the band tells.
    """

    index: int
    band: Band | None = None
    values: bool = False


def _combined(context: Context, found: list[int]) -> None:
    """Apply an operator of several operands to each element."""
    if context.op_type == "Where" and 0 in found:
        _guarded(context)
        return
    tables = [table for i in found if (table := _table(context, i)) is not None]
    table = tables[0]
    if any(replace(other, form=table.form) != table for other in tables):
        raise context.refuse("combines tables of frames by frames that are out of step")
    if context.op_type == "Where" and len(found) == 1:
        _chosen(context, table, found[0], _operand(context, table, 0))
        return
    others = [
        _operand(context, table, i)
        for i in range(len(context.node.inputs))
        if i not in found and context.has(i)
    ]
    fill = {"Add": -np.inf, "Sub": -np.inf, "Mul": 0.0}.get(context.op_type)
    fill = None if context.op_type == "Sub" and found != [0] else fill
    hides = any(other.band is not None for other in others)
    if hides and fill is not None and len(tables) == len(others) == 1:
        (mask,) = others
        assert mask.band is not None
        scores = _with_values(context, table, found[0], mask)
        _hide(context, found[0], scores, mask.band, fill)
        return
    for other in others:
        _write_values(context, table, other)
    context.set(replace(table, form=_form(context, found, tables)))


def _form(context: Context, found: list[int], tables: list[Table]) -> str:
    """The form of the result, of operands in step."""
    forms = {table.form for table in tables}
    if forms == {"scores"}:
        return "scores"
    op_type, is_first = context.op_type, found[0] == 0
    if forms <= set(_ZERO):
        sums = op_type in ("Add", "Sub") and len(tables) == len(context.node.inputs)
        if sums or op_type == "Mul" or (op_type == "Div" and is_first and len(tables) == 1):
            return "zeros"
    if op_type == "Mul" and forms & set(_ZERO) and "masked" not in forms:
        return "zeros"
    stays = op_type == "Add" or (op_type == "Sub" and is_first)
    if forms == {"masked"} and len(tables) == 1 and stays:
        return "masked"
    raise context.refuse("computes with scores that are masked, or with weights")


def _operand(context: Context, table: Table, index: int) -> _Operand:
    """The operand at input `index`, which is no table."""
    value = context.given(index)
    fact, dims = context.fact(value), context.dims(value)
    if isinstance(fact, OfLength) or (_follows(context, value) and not isinstance(fact, Fixed)):
        return _looked_at(context, table, index)
    if isinstance(fact, Fixed):
        if all(n == 1 for n in dims[-2:]):
            return _Operand(index)
        if fact.contents is not None and len(dims) >= 2 and 1 not in dims[-2:]:
            return _looked_at(context, table, index)
    stream = context.stream(index)
    if stream is not None and stream.axis == len(dims) - 2 and dims[-1] == 1:
        if stream.rate != table.rate or stream.delay > table.delay:
            raise context.refuse(f"input {index} is out of step with scores")
        late, _ = timing.delayed(context, value, stream, table.delay - stream.delay)
        context.operand(index, late)
        return _Operand(index)
    raise context.refuse(f"input {index} has values of its own for columns of scores")


def _follows(context: Context, value: ir.Value) -> bool:
    return context.converter.lengths.decides(str(value.name))


def _looked_at(context: Context, table: Table, index: int) -> _Operand:
    """The places hidden by a table that follows from the length alone, and whether that is all."""
    limit = context.converter.context
    assert limit is not None
    contents, seen = _seen(context, table, index, 2)
    ahead = 0 if seen is None else frames_ahead(seen)
    if seen is not None and 0 < ahead < seen.shape[-1] - 1:
        # Only a longer sequence tells how far each row of a chunk looks back.
        contents, seen = _seen(context, table, index, ahead + 2)
    band = None if seen is None else band_of(seen, limit)
    if band is None or seen is None:
        if seen is not None and not seen.all() and context.op_type != "Mul":
            raise not_understood(context, index)
        return _Operand(index, values=True)
    neutral = 1.0 if context.op_type == "Mul" else 0.0
    pure = contents.dtype == bool or (contents[..., seen.any(0)] == neutral).all()
    return _Operand(index, band, not (band.exact and pure))


def _seen(
    context: Context, table: Table, index: int, more: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """A table that follows from the length, and where a row sees a column of it.

    more: frames of the sequence, beside those that a row can see.
    """
    contents = computed(context, index, table, more)
    if contents is None:
        raise not_understood(context, index)
    if context.op_type == "Sub":
        contents = -contents
    elif context.op_type == "Where" and contents.dtype == bool and _table(context, 2) is not None:
        contents = ~contents
    if context.op_type == "Mul" and contents.dtype != bool:
        return contents, seen_by_rows(contents != 0)
    return contents, seen_by_rows(contents)


def _write_values(context: Context, table: Table, operand: _Operand) -> None:
    """Let the node read the values at the rows and columns of a step."""
    if not operand.values:
        return
    value = context.given(operand.index)
    if not _follows(context, value):
        raise not_understood(context, operand.index)
    rows, columns = frames_of(context, table)
    made = Indexed(context, rows, columns).table(str(value.name), context.rank(value))
    context.operand(operand.index, made)


def _guarded(context: Context) -> None:
    """Zeros in place of weights where rows are empty, which none is."""
    nowhere, weights = _table(context, 0), _table(context, 2)
    if nowhere is None or nowhere.form != "nowhere" or weights is None:
        raise context.refuse("chooses by a table of frames by frames, as of attention")
    context.replace(context.writer.copy(context.given(2)), weights)


def _chosen(context: Context, table: Table, index: int, mask: _Operand) -> None:
    """Scores where a mask says so, and a number elsewhere."""
    number = _elsewhere(context, table, 3 - index)
    contents = computed(context, 0, table) if table.form == "weights" else None
    if contents is not None and contents.dtype == bool and (contents == (index == 1)).all():
        # Rows that see nothing, which none is.
        context.replace(context.writer.copy(context.given(index)), table)
    elif mask.band is not None and number is not None and (number <= NEVER or not number):
        _hide(
            context, index, _with_values(context, table, index, mask), mask.band, number and -np.inf
        )
    else:
        raise context.refuse("chooses among scores by a mask that is not understood")


def _elsewhere(context: Context, table: Table, index: int) -> float | None:
    """The number that all elements of an operand are, which may be as large as the scores."""
    value = context.given(index)
    array = context.constant(index)
    if array is None and _table(context, index) is None and _follows(context, value):
        array = computed(context, index, table)
    number = uniform(array)
    if number is not None and value.dtype is not None:
        one = np.array(number, value.dtype.numpy())
        context.operand(index, context.writer.value(one, "elsewhere"))
    return number


def _with_values(context: Context, table: Table, index: int, mask: _Operand) -> ir.Value:
    """The node's result where a mask hides nothing."""
    scores = context.given(index)
    if not mask.values:
        return scores
    _write_values(context, table, mask)
    operands = [context.given(i) for i in range(len(context.node.inputs))]
    return context.writer.op(context.op_type, operands, "scores", dtype=scores.dtype)


def _hide(context: Context, index: int, scores: ir.Value, band: Band, fill: float) -> None:
    """Let `scores` take the place of the node's result, and `fill` that of what no row sees.

    index: the table that tells where they lie in time.
    """
    table = _table(context, index)
    assert table is not None
    if table.form == "masked" and not fill:
        raise context.refuse("computes with scores that are masked, or with weights")
    hidden = hidden_from(context, table, band)
    operands: list[Operand] = [hidden, filled(scores, number=fill), scores]
    masked = context.writer.op("Where", operands, "masked", dtype=scores.dtype)
    form = "masked" if fill else "weights" if table.form == "weights" else "zeros"
    context.replace(masked, replace(table, form=form))
