"""NonMaxSuppression: the best boxes that do not overlap each other too much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.literals import literal
from ostinato.ops.core.ordered_kernels import sort_key
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.singles import scalar
from ostinato.ops.core.tensor import Tensor, Value, at, slice_axis
from ostinato.ops.rules.compaction import chosen_positions, count_chosen, taken
from ostinato.ops.rules.gather import require_all
from ostinato.program.expr import Access, Axis, Expr, Extent, Index, Load, constant, op
from ostinato.program.kernel import Store
from ostinato.program.nodes import Carry
from ostinato.records import dataclass
from ostinato.sizes.dims import Size

# Keys of scores are larger than this: it is that of boxes which are out of the question.
_OUT = constant(0, "uint32")
LIMITS = {2: "max_output_boxes_per_class", 3: "iou_threshold", 4: "score_threshold"}


@dataclass(frozen=True)
class _Boxes:
    """Vectors: the least and the largest coordinate along both axes, and the area."""

    low: tuple[Tensor, Tensor]
    high: tuple[Tensor, Tensor]
    area: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> _Boxes:
        """The boxes with every vector changed."""
        low, high = ((change(a), change(b)) for a, b in (self.low, self.high))
        return _Boxes(low, high, change(self.area))


@dataclass(frozen=True)
class _Limits:
    """Single elements.

    most: how many boxes of a class are wanted. overlap: beyond this share one of two goes. score:
    what that of a box must exceed.
    """

    most: Tensor
    overlap: Tensor
    score: Tensor | None


@dataclass(frozen=True)
class _Selected:
    """int64[most, 3] of which the first `total`, a single int64, rows are written."""

    rows: Tensor
    total: Tensor


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
    bound = batches * classes * _most_of_class(extent, most)
    if most is None or bound == 0:
        return builder.constant(np.zeros((0, 3), np.int64))
    total = builder.stored((), (), constant(0, "int64"))
    selected = _Selected(builder.empty("int64", (bound, 3)), total)
    with builder.emit.loop(batches) as batch:
        corners = _corners(builder, at(boxes, 0, batch.axis, 0, 1), form)
        with builder.emit.loop(classes) as kind:
            row = at(at(scores, 0, batch.axis, 0, 1), 0, kind.axis, 0, 1)
            limits = _Limits(most, overlap, score)
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
        return op("and", op("ge", x, literal(0, x)), op("le", x, literal(1, x)))

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
            return op("div", x, literal(2, x))

        functions = (lambda x, y: op("sub", x, half(y)), lambda x, y: op("add", x, half(y)))
    low, high = (
        (builder.pointwise(f, *pairs[0]), builder.pointwise(f, *pairs[1])) for f in functions
    )

    def area(*corners: Expr) -> Expr:
        return _area(corners[:2], corners[2:])

    return _Boxes(low, high, builder.pointwise(area, *low, *high))


def _area(low: tuple[Expr, ...], high: tuple[Expr, ...]) -> Expr:
    sides = [op("sub", most, least) for least, most in zip(low, high, strict=True)]
    return op("mul", *sides)


def _select(
    builder: Builder,
    boxes: _Boxes,
    scores: Tensor,
    limits: _Limits,
    selected: _Selected,
    place: tuple[Axis, Axis],
) -> None:
    """Add what is selected of a class: in each step the best box, without which others go on.

    place: the axes of batches and classes.
    """
    count, numbers = scores.shape[0], None
    if limits.score is not None:
        chosen = builder.pointwise(lambda s, least: op("gt", s, least), scores, limits.score)
        count = count_chosen(builder, chosen, "boxes of enough score")
        numbers = chosen_positions(builder, chosen, count)
        scores = taken(builder, scores, numbers, 0)
        boxes = boxes.map(lambda vector: taken(builder, vector, numbers, 0))
    shapes = (("uint32", (count,)), ("uint32", ()), ("bool", ()))
    keys, best, going = states = [builder.empty(*spec) for spec in shapes]
    successors = [builder.empty(*spec) for spec in shapes]
    builder.copy(builder.pointwise(lambda s: sort_key(s, descending=False), scores), keys)
    builder.copy(_largest(builder, keys), best)
    builder.copy(builder.pointwise(_goes_on(constant(0, "int64")), best, limits.most), going)
    with builder.emit.loop(count) as step:
        first = _first(builder, keys, best)
        number = builder.load(first, ())
        if numbers is not None:
            number = Load(_start(builder, numbers), "int64", index=((number, 1),))
        _add(builder, selected, (Index(place[0]), Index(place[1]), number))
        _drop(builder, boxes, first, limits.overlap, (keys, successors[0]))
        builder.copy(_largest(builder, successors[0]), successors[1])
        following = op("add", Index(step.axis), constant(1, "int64"))
        more = builder.pointwise(_goes_on(following), successors[1], limits.most)
        builder.copy(more, successors[2])
        for old, new in zip(states, successors, strict=True):
            assert old.base is not None and new.base is not None
            step.carries.append(Carry(old.base.buffer, new.base.buffer))
        step.condition = step.carries[2].state


def _goes_on(steps: Expr) -> Callable[[Expr, Expr], Expr]:
    """Whether there is a box left, and more are wanted, after so many steps."""
    return lambda best, most: op("and", op("ne", best, _OUT), op("lt", steps, most))


def _largest(builder: Builder, keys: Tensor) -> Tensor:
    axis = builder.axis(keys.shape[0], "r")
    return builder.fold((), (), [axis], "max", builder.load(keys, [axis]), ROW_CHAINS)


def _first(builder: Builder, keys: Tensor, best: Tensor) -> Tensor:
    """The first position with the best key."""
    axis = builder.axis(keys.shape[0], "r")
    found = op("eq", builder.load(keys, [axis]), builder.load(best, ()))
    position = op("select", found, Index(axis), Extent(keys.shape[0]))
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
    following = op("add", total, constant(1, "int64"))
    builder.emit.kernel((), [*stores, Store(selected.total.base, following)])


def _drop(
    builder: Builder,
    boxes: _Boxes,
    first: Tensor,
    overlap: Tensor,
    keys: tuple[Tensor, Tensor],
) -> None:
    """Write the keys without those of the first box and of boxes that it overlaps too much."""
    before, after = keys
    axis = builder.axis(before.shape[0])
    place = builder.load(first, ())

    def own(vector: Tensor) -> Expr:
        return builder.load(vector, [axis])

    def of_first(vector: Tensor) -> Expr:
        return Load(_start(builder, vector), vector.dtype, index=((place, vector.strides[0]),))

    zero = constant(0.0, "float32")
    low = tuple(op("max", own(v), of_first(v)) for v in boxes.low)
    high = tuple(op("min", own(v), of_first(v)) for v in boxes.high)
    common = _area(low, high)
    areas = own(boxes.area), of_first(boxes.area)
    union = op("sub", op("add", *areas), common)
    meet = op("and", *(op("lt", a, b) for a, b in zip(low, high, strict=True)))
    for positive in (common, *areas, union):
        meet = op("and", meet, op("gt", positive, zero))
    much = op("gt", op("div", common, union), builder.load(overlap, ()))
    goes = op("or", op("eq", Index(axis), place), op("and", meet, much))
    key = op("select", goes, _OUT, own(before))
    builder.emit.kernel([axis], [Store(builder.access(after, [axis]), key)])
