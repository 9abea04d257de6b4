"""Sequences and optionals: which tensors there are is known while compiling, so none is moved.

A sequence is a tuple of values, an optional its element or `Absent`; nothing of them is left in the
loop program. A loop may carry a sequence that grows: then its elements are in one tensor
(`ops.rules.sequence_forms`). At the edges of compiled code the runtime takes sequences apart and
puts them together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.element_types import onnx_name
from ostinato.errors import ModelError
from ostinato.model.types import type_text
from ostinato.ops.core.known_sizes import known_int, known_size, known_sizes
from ostinato.ops.core.ordered_kernels import accumulate
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.singles import scalar
from ostinato.ops.core.tensor import (
    Absent,
    AnyValue,
    Pieces,
    Stack,
    Tensor,
    TensorSequence,
    Value,
    drop_ones,
    insert_ones,
    slice_axis,
    transpose,
)
from ostinato.ops.rules import pieces
from ostinato.ops.rules.gather import gather, require_all
from ostinato.ops.rules.parts import concatenated
from ostinato.ops.rules.sequence_forms import common_form, in_form, in_front, of_shape, put_back
from ostinato.ops.rules.views import axis_of
from ostinato.program.expr import Extent, cast, constant
from ostinato.sizes.conditions import is_less
from ostinato.sizes.dims import Dim, Size

# Longer sequences would make programs of as many pieces.
_LONGEST = 256


def kind_of(value: AnyValue) -> str:
    """The type as `signature.type_error` takes it: an element type, or a whole ONNX type."""
    if isinstance(value, Absent):
        return value.type
    if isinstance(value, (TensorSequence, Stack, Pieces)):
        return f"seq(tensor({onnx_name(value.dtype)}))"
    return value.dtype


class MissingElementError(ModelError):
    """An element is asked for that is not there: wrong, unless the node never runs."""


def _missing(context: Context, reason: str) -> MissingElementError:
    return MissingElementError(str(context.invalid(reason)))


def _sequence(context: Context) -> TensorSequence | Stack | Pieces:
    value = context.any_input(0)
    if not isinstance(value, (TensorSequence, Stack, Pieces)):
        raise context.invalid("input 0 is no sequence")
    return value


def _position(context: Context, place: int, least: int, most: int) -> int:
    """The number that operand `place` is, counted from the start; negative ones count back."""
    position = known_int(context, place, "input 'position'")
    if not least <= position <= most:
        raise context.invalid(f"position {position} is out of range: {least} to {most} are valid")
    return position if position >= 0 else position - least


@lowers("Identity")
def lower_identity(context: Context) -> AnyValue:
    """The value itself."""
    value = context.any_input(0)
    return context.input(0) if value is None else value


@lowers("SequenceEmpty")
def lower_sequence_empty(context: Context) -> TensorSequence:
    """A sequence without elements, by default of float32."""
    return TensorSequence(context.native_dtype(context.attributes.int("dtype", 1)), ())


@lowers("SequenceConstruct")
def lower_sequence_construct(context: Context) -> TensorSequence:
    """The operands in order."""
    values = context.all_inputs()
    return TensorSequence(values[0].dtype, tuple(values))


@lowers("SequenceInsert")
def lower_sequence_insert(context: Context) -> AnyValue:
    """The sequence with one more tensor before `position`, by default at the end."""
    sequence, value = _sequence(context), context.input(1)
    if value.dtype != sequence.dtype:
        raise context.invalid(f"input 'tensor' is {value.dtype}, the sequence {sequence.dtype}")
    if _is_open(context, 2):
        sequence = _of_any_length(context, sequence, value)
    if isinstance(sequence, (Stack, Pieces)):
        return _inserted(context, sequence, value)
    count = len(sequence.elements)
    if count >= _LONGEST:
        raise context.refuse(f"sequences of more than {_LONGEST} elements have no native form")
    place = count
    if context.optional(2) is not None:
        # Negative positions count from the end of the sequence as it was.
        place = _position(context, 2, -count, count)
    elements = (*sequence.elements[:place], value, *sequence.elements[place:])
    return TensorSequence(sequence.dtype, elements)


def _is_open(context: Context, operand: int) -> bool:
    """Whether only a run tells the position that an operand is."""
    position = context.optional(operand)
    known = None if position is None else position.known
    return position is not None and (known is None or any(isinstance(n, Dim) for n in known.flat))


def _of_any_length(
    context: Context, sequence: TensorSequence | Stack | Pieces, *more: Value
) -> TensorSequence | Stack | Pieces:
    """A sequence in a form for positions that a run computes, if it and others have one."""
    if not isinstance(sequence, TensorSequence):
        return sequence
    elements = TensorSequence(sequence.dtype, (*sequence.elements, *more))
    wanted = common_form(context.builder, [elements], lambda _: False)
    return sequence if wanted is None else in_form(context, sequence, wanted) or sequence


def _inserted(context: Context, sequence: Stack | Pieces, value: Value) -> Stack | Pieces:
    """As SequenceInsert: behind a state that grows in place."""
    if isinstance(sequence, Stack) and value.shape != sequence.element:
        sequence = _with_room_for(context, sequence, value)
    count = _count(sequence)
    at_end = context.optional(2) is None or _is_length(context.input(2), count)
    if isinstance(sequence, Pieces):
        if at_end:
            return pieces.appended(context, sequence, value)
        return pieces.inserted(context, sequence, value, _place(context, 2, count, count))
    row = insert_ones(of_shape(context.builder, value, sequence.element), (0,))
    if not at_end:
        place = _place(context, 2, count, count)
        first, last = pieces.parts(context, sequence.rows, place, place)
        return Stack(sequence.dtype, concatenated(context, [first, row, last], 0))
    appending = context.builder.appending.get(context.node.outputs[0].name or "")
    return Stack(sequence.dtype, pieces.behind(context, sequence.rows, row, appending))


def _with_room_for(context: Context, sequence: Stack, value: Value) -> Stack | Pieces:
    """The sequence in the form that a tensor of another size can join."""
    made = TensorSequence(value.dtype, (value,))
    wanted = common_form(context.builder, [sequence, made], lambda _: False)
    if wanted is None:
        raise context.refuse(
            f"a tensor of shape {list(map(str, value.shape))} joins a sequence of such of shape "
            f"{list(map(str, sequence.element))}, which has no native form in a loop"
        )
    found = in_form(context, sequence, wanted)
    assert found is not None
    return found


def _count(sequence: Stack | Pieces) -> Size:
    """The number of elements."""
    return sequence.length if isinstance(sequence, Pieces) else sequence.rows.shape[0]


def _is_length(position: Value, count: Size) -> bool:
    """Whether a position is the number of elements, as a program has it that inserts at the end."""
    known = position.known
    return known is not None and known.size == 1 and bool(known.item() == count)


def _place(context: Context, operand: int, count: Size, most: Size) -> Size:
    """The position in so many elements that an operand is, counted from the start, up to `most`."""
    start = known_size(context, operand, "input 'position'")
    place = start + count * is_less(start, 0)
    for size in (place, most - place):
        context.builder.require.that(size, f"position {start} is out of range")
    return context.builder.sizes.defined(place, "input 'position'", bound=most)


@lowers("SequenceErase")
def lower_sequence_erase(context: Context) -> AnyValue:
    """The sequence without the tensor at `position`, by default without the last."""
    sequence = _sequence(context)
    if _is_open(context, 1):
        sequence = _of_any_length(context, sequence)
    if isinstance(sequence, (Stack, Pieces)):
        return _erased(context, sequence)
    count = len(sequence.elements)
    if not count:
        raise _missing(context, "the sequence has no elements")
    place = count - 1
    if context.optional(1) is not None:
        place = _position(context, 1, -count, count - 1)
    elements = (*sequence.elements[:place], *sequence.elements[place + 1 :])
    return TensorSequence(sequence.dtype, elements)


def _erased(context: Context, sequence: Stack | Pieces) -> Stack | Pieces:
    builder, count = context.builder, _count_of_some(context, sequence)
    at_end = context.optional(1) is None
    if isinstance(sequence, Pieces):
        if at_end:
            return pieces.without_last(context, sequence)
        return pieces.erased(context, sequence, _place(context, 1, count, count - 1))
    if at_end:
        return Stack(sequence.dtype, slice_axis(builder.strided(sequence.rows), 0, 0, 1, count - 1))
    place = _place(context, 1, count, count - 1)
    rows = pieces.parts(context, sequence.rows, place, place + 1)
    return Stack(sequence.dtype, concatenated(context, rows, 0))


def _count_of_some(context: Context, sequence: Stack | Pieces) -> Size:
    """The number of elements, of which there must be some."""
    count = _count(sequence)
    if count == 0:
        raise _missing(context, "the sequence has no elements")
    context.builder.require.that(count - 1, "the sequence has no elements")
    return count


@lowers("SequenceLength")
def lower_sequence_length(context: Context) -> Value:
    """The number of elements."""
    sequence = _sequence(context)
    if isinstance(sequence, TensorSequence):
        return context.builder.constant(np.array(len(sequence.elements), np.int64))
    return context.builder.constants.known("int64", np.array(_count(sequence), object))


@lowers("SequenceAt")
def lower_sequence_at(context: Context) -> Value:
    """The element at `position`."""
    sequence, position = _sequence(context), scalar(context, 1, "position")
    if position is None:
        raise context.invalid("input 'position' is missing")
    builder = context.builder
    if isinstance(sequence, TensorSequence):
        count = len(sequence.elements)
        if not count:
            raise _missing(context, "the sequence has no elements")
        if _is_open(context, 1):
            sequence = _of_any_length(context, sequence)
        if isinstance(sequence, TensorSequence):
            return sequence.elements[_position(context, 1, -count, count - 1)]
    if _count(sequence) == 0:
        raise _missing(context, "the sequence has no elements")
    if isinstance(sequence, Pieces):
        return pieces.element(context, sequence, position)
    rows = builder.strided(sequence.rows)
    return gather(context, rows, position, 0)


@lowers("ConcatFromSequence")
def lower_concat_from_sequence(context: Context) -> Value:
    """The elements joined along an axis, or stacked along a new one."""
    sequence = _sequence(context)
    axis = context.attributes.int("axis")
    is_new = context.attributes.int("new_axis", 0)
    if is_new not in (0, 1):
        raise context.invalid(f"attribute 'new_axis' is {is_new}, neither 0 nor 1")
    if isinstance(sequence, (Stack, Pieces)):
        return _joined_rows(context, sequence, axis, bool(is_new))
    values: Sequence[Value] = sequence.elements
    if not values:
        raise _missing(context, "the sequence has no elements")
    if is_new:
        axis = axis_of(context, axis, len(values[0].shape) + 1)
        ranks = [len(value.shape) for value in values]
        if len({*ranks}) > 1:
            raise context.invalid(f"elements to stack have {ranks} axes, expected as many of each")
        values = [insert_ones(value, (axis,)) for value in values]
    return concatenated(context, values, axis)


def _joined_rows(context: Context, sequence: Stack | Pieces, place: int, is_new: bool) -> Value:
    """The elements of a sequence of any length along an axis, or as a new axis."""
    count = _count_of_some(context, sequence)
    rank = len(sequence.rows.shape) - isinstance(sequence, Stack)
    axis = axis_of(context, place, rank + is_new)
    if isinstance(sequence, Pieces):
        if axis == sequence.axis and not is_new:
            return put_back(sequence.rows, axis)
        sequence = pieces.alike(context, sequence)
    rows, shape = context.builder.strided(sequence.rows), sequence.element
    moved = put_back(rows, axis)
    if is_new:
        return moved
    joined = shape[axis] * count
    return context.builder.reshaped(moved, (*shape[:axis], joined, *shape[axis + 1 :]))


@lowers("SplitToSequence")
def lower_split_to_sequence(context: Context) -> TensorSequence | Stack | Pieces:
    """Pieces along an axis: of 1, of one size with a smaller last one, or of given sizes."""
    builder = context.builder
    value = builder.strided(context.input(0))
    axis = axis_of(context, context.attributes.int("axis", 0), len(value.shape))
    keeps = context.attributes.int("keepdims", 1)
    extent = value.shape[axis]
    split = context.optional(1)
    if split is not None and len(split.shape) == 1:
        if split.known is None:
            return _computed_pieces(context, value, axis, split)
        lengths = _given_lengths(context, extent)
    else:
        size = 1 if split is None else known_int(context, 1, "input 'split'")
        if size == 1 and not (isinstance(extent, int) and extent <= _LONGEST):
            order = (axis, *(i for i in range(len(value.shape)) if i != axis))
            rows = transpose(value, order)
            keeps_axis = keeps or split is not None
            return Stack(value.dtype, insert_ones(rows, (axis + 1,)) if keeps_axis else rows)
        lengths = _even_lengths(context, size, extent)
    pieces: list[Value] = []
    start: Size = 0
    for length in lengths:
        piece: Value = slice_axis(value, axis, start, 1, length)
        if split is None and not keeps:
            piece = drop_ones(piece, (axis,)) or piece
        pieces.append(piece)
        start = start + length
    return TensorSequence(value.dtype, tuple(pieces))


def _computed_pieces(context: Context, value: Tensor, axis: int, split: Value) -> Pieces:
    """Pieces of sizes that a run computes: the rows stay where they are."""
    builder, extent = context.builder, value.shape[axis]
    sizes = builder.pointwise(lambda size: cast(size, "int64"), split)
    fits = builder.pointwise(
        lambda size: (size >= 0) & (size <= Extent(extent)),
        sizes,
    )
    require_all(context, fits, "a size of a piece is negative, or more than there is")
    ends = builder.empty("int64", sizes.shape)
    accumulate(builder, sizes, ends, 0, "add", exclusive=False, reverse=False)
    first = builder.compute((1,), lambda _: constant(0, "int64"))
    borders = builder.strided(concatenated(context, [first, ends], 0))
    last = slice_axis(borders, 0, sizes.shape[0], 1, 1)
    whole = builder.pointwise(lambda end: end.equals(Extent(extent)), last)
    require_all(context, whole, f"the pieces do not add up to axis {axis}")
    return Pieces(value.dtype, in_front(value, axis), borders, axis)


def _given_lengths(context: Context, extent: Size) -> list[Size]:
    builder = context.builder
    asked = known_sizes(context, 1, "input 'split'")
    _require_short(context, len(asked))
    lengths = [builder.sizes.defined(size, f"size of piece {i}") for i, size in enumerate(asked)]
    builder.require.equal(sum(lengths, 0), extent, "sum of the pieces and the axis")
    return lengths


def _even_lengths(context: Context, size: int, extent: Size) -> list[Size]:
    if size <= 0:
        raise context.invalid(f"input 'split' is {size}, expected a positive size")
    if not isinstance(extent, int):
        raise context.refuse(
            f"the number of pieces depends on the run-time dimension {extent}, "
            "which has no native form unless it is specialised"
        )
    _require_short(context, -(-extent // size))
    return [min(size, extent - start) for start in range(0, extent, size)]


def _require_short(context: Context, count: int) -> None:
    if count > _LONGEST:
        raise context.refuse(f"sequences of more than {_LONGEST} elements have no native form")


@lowers("Optional")
def lower_optional(context: Context) -> AnyValue:
    """An optional that holds the operand, or an empty one of the given type."""
    value, kind = context.any_input(0), context.attributes.type("type")
    if value is not None:
        return value
    if kind is None:
        raise context.invalid("neither an operand nor attribute 'type' is given")
    return Absent(f"optional({type_text(kind)})")


@lowers("OptionalHasElement")
def lower_optional_has_element(context: Context) -> Value:
    """Whether there is a value, which is known while compiling."""
    value = context.any_input(0)
    is_there = value is not None and not isinstance(value, Absent)
    return context.builder.constant(np.array(is_there))


@lowers("OptionalGetElement")
def lower_optional_get_element(context: Context) -> AnyValue:
    """The value of an optional that has one."""
    value = context.any_input(0)
    if value is None or isinstance(value, Absent):
        raise _missing(context, "the optional has no element")
    return value
