"""MelWeightMatrix: filters whose bands are evenly spaced to the ear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.ops.core.builder import LONGEST_TABLE, Builder
from ostinato.ops.core.known_sizes import known_size
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, slice_axis, static_shape
from ostinato.ops.rules.gather import require_all
from ostinato.program.evaluate import convert, evaluate
from ostinato.program.expr import Axis, Const, Expr, Index, cast, constant, op, select, sized
from ostinato.sizes.dims import Size, floordiv


@lowers("MelWeightMatrix")
def lower_mel_weight_matrix(context: Context) -> Value:
    """Triangles over the bins of a transform, evenly spaced in mel = 2595 log10(1 + hertz / 700).

    Computed in float64; while compiling where all operands are known and the table is not too long.
    """
    builder = context.builder
    bands = builder.sizes.defined(known_size(context, 0, "input 'num_mel_bins'"), "num_mel_bins")
    length = known_size(context, 1, "input 'dft_length'")
    builder.require.nonnegative(length - 1, "dft_length, minus 1")
    bins = builder.sizes.defined(floordiv(length, 2) + 1, "number of bins")
    dtype = context.native_dtype(context.attributes.int("output_datatype", 1))
    given = [
        _number(context, position, name)
        for position, name in ((2, "sample_rate"), (3, "lower_edge_hertz"), (4, "upper_edge_hertz"))
    ]
    rate, low, high = (cast(number, "float64") for number in given)
    what = "the bands do not fit between 0 Hz and the last bin"
    axis = builder.axis(bands + 2)
    corner = _corner(Index(axis), sized(bands), sized(length), rate, (low, high))

    def fits(found: Expr) -> Expr:
        return _fits(Index(axis), found, sized(bands), sized(bins), (rate, low, high))

    static = static_shape((bins, bands))
    is_known = static is not None and all(isinstance(number, Const) for number in given)
    if static is not None and is_known and max(static) * max(static[1], 1) <= LONGEST_TABLE:
        numbers = np.arange(static[1] + 2)
        if not evaluate(fits(corner), lambda _: numbers).all():
            raise context.invalid(what)
        corners = np.broadcast_to(evaluate(corner, lambda _: numbers), numbers.shape)
        return builder.constant(convert(_table(builder, corners, static[0]), dtype))
    made = builder.stored((bands + 2,), (axis,), corner)
    held = fits(builder.load(made, (axis,)))
    require_all(context, builder.stored((bands + 2,), (axis,), held), what)
    return _stored(builder, made, bins, bands, dtype)


def _number(context: Context, position: int, name: str) -> Expr:
    """The only element of an operand."""
    value = context.input(position)
    context.builder.require.equal(value.size, 1, f"number of elements of input {name!r}")
    return context.builder.load(value, (None,) * len(value.shape))


def _corner(band: Expr, bands: Expr, length: Expr, rate: Expr, edges: Sequence[Expr]) -> Expr:
    """int64: the bin where a band begins, the one before it is highest and the one before ends."""
    low, high = (_mel(edge) for edge in edges)
    # The upper edge is that of one more band, as in the operator's reference implementation.
    count = cast(bands + 2, "float64")
    step = (high - low) / count
    mel = low + cast(band, "float64") * step
    power = mel / 2595.0 * _ten()
    hertz = op("expm1", power) * 700.0
    points = cast(length + 1, "float64")
    return cast(op("floor", points * hertz / rate), "int64")


def _mel(hertz: Expr) -> Expr:
    logarithm = op("log1p", hertz / 700.0)
    return logarithm * 2595.0 / _ten()


def _ten() -> Const:
    """The natural logarithm of 10."""
    return constant(float(np.log(10)), "float64")


def _fits(band: Expr, corner: Expr, bands: Expr, bins: Expr, positive: Sequence[Expr]) -> Expr:
    """Whether a corner is a bin, or the end of the last band right behind all bins."""
    zero = constant(0, "int64")
    is_last = cast(band > bands, "int64")
    holds = (corner >= zero) & (corner < bins + is_last)
    rate, *edges = positive
    holds = holds & (rate >= 1.0)
    for edge in edges:
        holds = holds & (edge >= 0.0)
    return holds


def _weight(place: Expr, left: Expr, centre: Expr, right: Expr) -> Expr:
    """The height of a triangle at a bin: 1 at the centre, 0 at the other corners and beyond."""
    one: Expr = constant(1, "int64")

    def share(part: Expr, whole: Expr) -> Expr:
        return cast(part, "float64") / cast(op("max", whole, one), "float64")

    rising = share(place - left, centre - left)
    rising = select(centre.equals(left), 1.0, rising)
    falling = share(right - place, right - centre)
    nothing = constant(0.0, "float64")
    is_left = (left <= place) & (place <= centre)
    is_right = (centre < place) & (place < right)
    return select(is_left, rising, select(is_right, falling, nothing))


def _table(builder: Builder, corners: np.ndarray, bins: int) -> np.ndarray:
    """The weights float64[bins, bands]."""
    places = [Index(builder.axis(1)) for _ in range(4)]
    arrays = (np.arange(bins)[:, None], corners[:-2], corners[1:-1], corners[2:])
    values: dict[Expr, np.ndarray] = dict(zip(places, arrays, strict=True))
    return evaluate(_weight(*places), lambda node: values[node])


def _stored(builder: Builder, corners: Tensor, bins: Size, bands: Size, dtype: str) -> Tensor:
    """The weights [bins, bands] for corners that only a run tells."""
    axes: tuple[Axis | None, ...] = builder.axes((bins, bands))
    place: Expr = constant(0, "int64") if axes[0] is None else Index(axes[0])
    ends = [builder.load(slice_axis(corners, 0, i, 1, bands), axes[1:]) for i in range(3)]
    return builder.stored((bins, bands), axes, cast(_weight(place, *ends), dtype))
