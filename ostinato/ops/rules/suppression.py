"""NonMaxSuppression: the best boxes that do not overlap each other too much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.ordered_kernels import sort_key
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.singles import scalar
from ostinato.ops.core.tensor import Tensor, Value, at, slice_axis
from ostinato.ops.rules.compaction import chosen_positions, count_chosen, taken_from_each
from ostinato.ops.rules.gather import require_all
from ostinato.program.expr import (
    Access,
    Axis,
    Expr,
    Extent,
    Index,
    Load,
    cast,
    constant,
    op,
    select,
)
from ostinato.program.kernel import Store
from ostinato.program.nodes import Branch
from ostinato.records import dataclass
from ostinato.sizes.dims import Size

# Keys of scores are larger than this: it is that of boxes which are out of the question.
_OUT = constant(0, "uint32")
_ZERO = constant(0.0, "float32")
# In the place of a box's number: none.
_NOBODY = constant(2**63 - 1, "int64")
LIMITS = {2: "max_output_boxes_per_class", 3: "iou_threshold", 4: "score_threshold"}


@dataclass(frozen=True)
class _Boxes:
    """Vectors: the least and the largest coordinate along both axes, and the area."""

    low: tuple[Tensor, Tensor]
    high: tuple[Tensor, Tensor]
    area: Tensor

    def vectors(self) -> tuple[Tensor, ...]:
        """All of them, in the order of fields."""
        return *self.low, *self.high, self.area


@dataclass(frozen=True)
class _Coordinates:
    """What `_Boxes` has, of a single box."""

    low: tuple[Expr, Expr]
    high: tuple[Expr, Expr]
    area: Expr

    @staticmethod
    def of(boxes: _Boxes, load: Callable[[Tensor], Expr]) -> _Coordinates:
        """The elements that `load` takes of the vectors."""
        a, b, c, d, area = map(load, boxes.vectors())
        return _Coordinates((a, b), (c, d), area)

    def vectors(self) -> tuple[Expr, ...]:
        """All of them, in the order of fields."""
        return *self.low, *self.high, self.area


@dataclass(frozen=True)
class _Limits:
    """Single elements.

    most: how many boxes of a class are wanted, of which `bound` is what memory is laid out for.
    overlap: beyond this share one of two goes. score:
    what that of a box must exceed.
    """

    most: Tensor
    bound: Size
    overlap: Tensor
    score: Tensor | None


@dataclass(frozen=True)
class _Selected:
    """int64[most, 3] of which the first `total`, a single int64, rows are written."""

    rows: Tensor
    total: Tensor


@dataclass(frozen=True)
class _Taken:
    """Boxes of a class that are selected: the first `count`, a single int64, of vectors."""

    boxes: _Boxes
    count: Tensor


@lowers("NonMaxSuppression")
def lower_non_max_suppression(context: Context) -> Value:
    """int64[count, 3]: batch, class and box of what is selected, in this order, best boxes first.

    Of equal scores the first box is better. Without a threshold NaN is the best score.
    """
    builder = context.builder
    boxes, scores = (builder.strided(context.input(i)) for i in (0, 1))
    form = context.attributes.int("center_point_box", 0)
    if form not in (0, 1):
        raise context.invalid(f"attribute 'center_point_box' is {form}, neither 0 nor 1")
    if len(boxes.shape) != 3 or len(scores.shape) != 3:
        raise context.invalid(f"boxes of shape {boxes.shape} and scores of shape {scores.shape}")
    batches, classes, extent = scores.shape
    builder.require.equal(boxes.shape[0], batches, "batches of boxes and scores")
    builder.require.equal(boxes.shape[1], extent, "boxes and their scores")
    builder.require.equal(boxes.shape[2], 4, "coordinates of a box")
    most, overlap, score = (_limit(context, i, name) for i, name in LIMITS.items())
    if overlap is None:
        overlap = builder.constants.placed(builder.constant(np.zeros((), np.float32)))
    _require_share(context, overlap)
    of_class = _most_of_class(extent, most)
    bound = batches * classes * of_class
    if most is None or bound == 0:
        return builder.constant(np.zeros((0, 3), np.int64))
    total = builder.stored((), (), constant(0, "int64"))
    selected = _Selected(builder.empty("int64", (bound, 3)), total)
    with builder.emit.loop(batches) as batch:
        corners = _corners(builder, at(boxes, 0, batch.axis, 0, 1), form)
        with builder.emit.loop(classes) as kind:
            row = at(at(scores, 0, batch.axis, 0, 1), 0, kind.axis, 0, 1)
            limits = _Limits(most, of_class, overlap, score)
            _select(builder, corners, row, limits, selected, (batch.axis, kind.axis))
    count = builder.sizes.computed(builder.load(total, ()), bound, "boxes selected")
    return slice_axis(selected.rows, 0, 0, 1, count)


def _limit(context: Context, position: int, name: str) -> Tensor | None:
    """An operand of one element without axes; None where it is left out."""
    value, builder = scalar(context, position, name), context.builder
    return None if value is None else builder.constants.placed(builder.strided(value))


def _most_of_class(extent: Size, most: Tensor | None) -> Size:
    """A bound of the boxes that are selected of a class."""
    known = None if most is None or most.known is None else most.known.reshape(-1)[0]
    if isinstance(known, (int, np.integer)):
        return min(extent, max(int(known), 0)) if isinstance(extent, int) else extent
    return extent


def _require_share(context: Context, overlap: Tensor) -> None:
    def is_share(x: Expr) -> Expr:
        return (x >= 0) & (x <= 1)

    within = context.builder.pointwise(is_share, overlap)
    require_all(context, within, "input 'iou_threshold' must lie between 0 and 1")


def _corners(builder: Builder, boxes: Tensor, form: int) -> _Boxes:
    """The boxes, of shape [count, 4]: two opposite corners (form 0), or center and extents."""
    count = boxes.shape[0]

    def column(i: int) -> Tensor:
        return Tensor("float32", (count,), slice_axis(boxes, 1, i, 1, 1).base, boxes.strides[:1])

    a, b, c, d = (column(i) for i in range(4))
    pairs = ((a, c), (b, d))
    functions: tuple[Callable[[Expr, Expr], Expr], Callable[[Expr, Expr], Expr]]
    if form == 0:
        functions = (lambda x, y: op("min", x, y), lambda x, y: op("max", x, y))
    else:

        def half(x: Expr) -> Expr:
            return x / 2

        functions = (lambda x, y: x - half(y), lambda x, y: x + half(y))
    low, high = (
        (builder.pointwise(f, *pairs[0]), builder.pointwise(f, *pairs[1])) for f in functions
    )

    def area(*corners: Expr) -> Expr:
        return _area(corners[:2], corners[2:])

    return _Boxes(low, high, builder.pointwise(area, *low, *high))


def _area(low: tuple[Expr, ...], high: tuple[Expr, ...]) -> Expr:
    sides = [most - least for least, most in zip(low, high, strict=True)]
    return op("mul", *sides)


def _select(
    builder: Builder,
    boxes: _Boxes,
    scores: Tensor,
    limits: _Limits,
    selected: _Selected,
    place: tuple[Axis, Axis],
) -> None:
    """Add what is selected of a class: each step takes the best box of those that are left.

    Where a box that was taken before overlaps it too much, all others go which that one overlaps;
    so boxes that overlap nothing are compared with few others, and none of them drops boxes twice.
    place: the axes of batches and classes.
    """
    count, numbers = scores.shape[0], None
    if limits.score is not None:
        chosen = builder.pointwise(lambda s, least: s > least, scores, limits.score)
        count = count_chosen(builder, chosen, "boxes of enough score")
        numbers = chosen_positions(builder, chosen, count)
        scores, a, b, c, d, area = taken_from_each(builder, (scores, *boxes.vectors()), numbers)
        boxes = _Boxes((a, b), (c, d), area)
    shapes = (("uint32", (count,)), ("uint32", ()), ("bool", ()))
    keys, best, going = states = [builder.empty(*spec) for spec in shapes]
    successors = [builder.empty(*spec) for spec in shapes]
    taken = _none_taken(builder, limits.bound)
    builder.copy(builder.pointwise(lambda s: sort_key(s, descending=False), scores), keys)
    builder.copy(_largest(builder, keys), best)
    builder.copy(builder.pointwise(_goes_on, best, taken.count, limits.most), going)
    with builder.emit.loop(count) as step:
        first = _first(builder, keys, best)
        number = builder.load(first, ())
        if numbers is not None:
            number = Load(_start(builder, numbers), "int64", index=((number, 1),))
        before = _overlapping(builder, taken, boxes, first, limits.overlap)
        is_new = builder.pointwise(lambda i: i.equals(_NOBODY), before)
        with builder.emit.block([]) as new:
            builder.copy(keys, successors[0])
            drop = Store(
                _start(builder, successors[0]), _OUT, None, ((builder.load(first, ()), 1),)
            )
            builder.emit.kernel((), [drop])
            _take(builder, taken, boxes, first)
            _add(builder, selected, (Index(place[0]), Index(place[1]), number))
        with builder.emit.block([]) as old:
            _drop(builder, boxes, taken, before, limits.overlap, (keys, successors[0]))
        builder.emit.append(Branch(is_new.buffer, tuple(new), tuple(old)))
        builder.copy(_largest(builder, successors[0]), successors[1])
        builder.copy(
            builder.pointwise(_goes_on, successors[1], taken.count, limits.most), successors[2]
        )
        for old_state, successor in zip(states, successors, strict=True):
            step.carry(old_state, successor)
        step.condition = step.carries[2].state


def _goes_on(best: Expr, taken: Expr, most: Expr) -> Expr:
    """Whether there is a box left, and more are wanted."""
    return best.differs(_OUT) & (taken < cast(most, "int64"))


def _largest(builder: Builder, keys: Tensor) -> Tensor:
    axis = builder.axis(keys.shape[0], "r")
    return builder.fold((), (), [axis], "max", builder.load(keys, [axis]), ROW_CHAINS)


def _first(builder: Builder, keys: Tensor, best: Tensor) -> Tensor:
    """The first position with the best key."""
    axis = builder.axis(keys.shape[0], "r")
    found = builder.load(keys, [axis]).equals(builder.load(best, ()))
    position = select(found, Index(axis), Extent(keys.shape[0]))
    return builder.fold((), (), [axis], "min", position, ROW_CHAINS)


def _start(builder: Builder, vector: Tensor) -> Access:
    return builder.access(slice_axis(vector, 0, 0, 1, 1), [None])


def _add(builder: Builder, selected: _Selected, row: tuple[Expr, ...]) -> None:
    """Write the next row."""
    base = selected.rows.base
    assert base is not None and selected.total.base is not None
    total = builder.load(selected.total, ())
    stores = [
        Store(Access(base.buffer, i, ()), value, None, ((total, len(row)),))
        for i, value in enumerate(row)
    ]
    following = total + 1
    builder.emit.kernel((), [*stores, Store(selected.total.base, following)])


def _none_taken(builder: Builder, bound: Size) -> _Taken:
    """Memory for this many boxes."""
    # One element more, so that there is one to write now: memory is kept from then on.
    memory = builder.empty("float32", (5, bound + 1))
    a, b, c, d, area = (
        builder.reshaped(slice_axis(memory, 0, i, 1, 1), (bound + 1,)) for i in range(5)
    )
    builder.emit.kernel((), [Store(_start(builder, a), _ZERO)])
    return _Taken(_Boxes((a, b), (c, d), area), builder.stored((), (), constant(0, "int64")))


def _take(builder: Builder, taken: _Taken, boxes: _Boxes, number: Tensor) -> None:
    """Add the box of that number to those taken."""
    count = builder.load(taken.count, ())
    stores = [
        Store(_start(builder, vector), value, None, ((count, vector.strides[0]),))
        for vector, value in zip(
            taken.boxes.vectors(), _one_of(builder, boxes, number).vectors(), strict=True
        )
    ]
    following = count + 1
    builder.emit.kernel((), [*stores, Store(taken.count.address, following)])


def _overlapping(
    builder: Builder, taken: _Taken, boxes: _Boxes, number: Tensor, overlap: Tensor
) -> Tensor:
    """The first box taken that the box of that number overlaps too much; `_NOBODY` if none does."""
    bound = taken.boxes.area.shape[0]
    count = builder.sizes.computed(builder.load(taken.count, ()), bound, "boxes of a class")
    axis = builder.axis(count, "r")
    each = _Coordinates.of(taken.boxes, lambda vector: builder.load(vector, [axis]))
    much = _overlaps(each, _one_of(builder, boxes, number), builder.load(overlap, ()))
    position = select(much, Index(axis), _NOBODY)
    return builder.fold((), (), [axis], "min", position, ROW_CHAINS)


def _drop(
    builder: Builder,
    boxes: _Boxes,
    taken: _Taken,
    number: Tensor,
    overlap: Tensor,
    keys: tuple[Tensor, Tensor],
) -> None:
    """Write the keys without those of boxes that the taken one of that number overlaps too much."""
    before, after = keys
    axis = builder.axis(before.shape[0])
    each = _Coordinates.of(boxes, lambda vector: builder.load(vector, [axis]))
    much = _overlaps(each, _one_of(builder, taken.boxes, number), builder.load(overlap, ()))
    key = select(much, _OUT, builder.load(before, [axis]))
    builder.emit.kernel([axis], [Store(builder.access(after, [axis]), key)])


def _one_of(builder: Builder, boxes: _Boxes, number: Tensor) -> _Coordinates:
    """The box of a number, a single int64."""
    place = builder.load(number, ())
    return _Coordinates.of(
        boxes,
        lambda v: Load(_start(builder, v), v.dtype, index=((place, v.strides[0]),)),
    )


def _overlaps(box: _Coordinates, other: _Coordinates, share: Expr) -> Expr:
    """Whether the common area is more than that share of both together; the same either way."""
    low = tuple(_choose("lt", *pair) for pair in zip(box.low, other.low, strict=True))
    high = tuple(_choose("gt", *pair) for pair in zip(box.high, other.high, strict=True))
    common = _area(low, high)
    union = box.area + other.area - common
    meet = op("and", *(a < b for a, b in zip(low, high, strict=True)))
    for positive in (common, box.area, other.area, union):
        meet = meet & (positive > _ZERO)
    return meet & (common / union > share)


def _choose(comparison: str, one: Expr, other: Expr) -> Expr:
    """The one inside of both boxes; no minimum, since the area of a box with NaN is NaN anyway."""
    return select(op(comparison, one, other), other, one)
