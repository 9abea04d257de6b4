"""Which elements a resampled one is a sum of, and their weights, as expressions of its place.

They depend on the place along one axis only. Coordinates are float32, as everybody computes them,
float64 for float64 values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ostinato.ops.core.literals import polynomial
from ostinato.program.expr import Expr, Extent, cast, constant, dtype_of, literal, op, select, sized
from ostinato.records import dataclass
from ostinato.sizes.dims import Dim, Size, exact_quotient, floordiv

CROP = "tf_crop_and_resize"


@dataclass(frozen=True)
class Resampling:
    """Interpolation between elements: the attributes of Resize.

    mode: "nearest", "linear" or "cubic". rounding: None as before opset 11, up where a scale is
    below 1 and else down. coefficient: that of the cubic kernel. fill: what lies outside of the
    region of interest.
    """

    mode: str
    transform: str = "asymmetric"
    rounding: str | None = "floor"
    coefficient: float = -0.75
    antialias: bool = False
    excludes_outside: bool = False
    fill: float = 0.0


@dataclass(frozen=True)
class Ratio:
    """A scale that may be known at run time only: this many outputs for this many elements.

    is_given: whether the model computes it, in float32.
    """

    outputs: Size
    extent: Size
    is_given: bool = False

    @property
    def known(self) -> float | None:
        """The quotient, if it is known while compiling."""
        if self.is_given:
            return None
        quotient = exact_quotient(self.outputs, self.extent)
        if isinstance(quotient, int):
            return float(quotient)
        if isinstance(self.outputs, int) and isinstance(self.extent, int) and self.extent:
            return self.outputs / self.extent
        return None

    def quotient(self, dtype: str) -> Expr:
        """The quotient as an expression of type `dtype`."""
        kind = "float32" if self.is_given else dtype
        return cast(_number(self.outputs, kind) / _number(self.extent, kind), dtype)

    def nearest(self, extent: Size) -> Size:
        """This scale times an extent, rounded to the nearest integer, from a half on upward."""
        return floordiv(2 * self.outputs * extent + self.extent, 2 * self.extent)


@dataclass(frozen=True)
class Stretch:
    """Resampling along one axis: `extent` elements become `outputs`.

    scale: outputs for each element, where it is given; else the quotient of both.
    start, end: the region of interest, as fractions of the axis.
    """

    extent: Size
    outputs: Size
    scale: float | Ratio | None = None
    start: float = 0.0
    end: float = 1.0

    @property
    def keeps(self) -> bool:
        """Whether every output is the element at its place."""
        unchanged = self.extent - self.outputs == 0 and self.known_scale == 1
        return unchanged and (self.start, self.end) == (0, 1)

    @property
    def known_scale(self) -> float | None:
        """The scale, if it is known while compiling."""
        if isinstance(self.scale, float):
            return self.scale
        return (self.scale or Ratio(self.outputs, self.extent)).known


@dataclass(frozen=True)
class Tap:
    """One element that an output uses: its position and its weight."""

    position: Expr
    weight: Expr | None


def taps_of(stretch: Stretch, how: Resampling, place: Expr) -> list[Tap]:
    """The elements that the output at `place` uses."""
    x = _coordinate(stretch, how.transform, place)
    last = sized(stretch.extent - 1)
    if how.mode == "nearest":
        rounded = _rounded(x, rounding_along(stretch, how), stretch)
        pairs: list[tuple[Expr, Expr | None]] = [(cast(rounded, "int64"), None)]
    else:
        base = op("floor", x)
        first = cast(base, "int64")
        offsets, weights = _weights(how, x - base, stretch.known_scale)
        positions = [first + offset for offset in offsets]
        if how.excludes_outside:
            inside = [_between(position, last) for position in positions]
            zero = literal(0, x)
            weights = [select(i, w, zero) for i, w in zip(inside, weights, strict=True)]
            weights = _normalised(weights)
        pairs = list(zip(positions, weights, strict=True))
    return [
        Tap(op("max", op("min", position, last), constant(0, "int64")), weight)
        for position, weight in pairs
    ]


def inside_of(stretch: Stretch, how: Resampling, place: Expr) -> Expr:
    """Whether the output at `place` lies on the axis or between its elements."""
    x = _coordinate(stretch, how.transform, place)
    return _between(x, cast(sized(stretch.extent - 1), dtype_of(x)))


def _between(value: Expr, last: Expr) -> Expr:
    return (value >= 0) & (value <= last)


def _number(value: Size | float, dtype: str) -> Expr:
    return cast(Extent(value), dtype) if isinstance(value, Dim) else constant(value, dtype)


def _coordinate(stretch: Stretch, transform: str, i: Expr) -> Expr:
    """Compute the position of output `i` between the elements."""

    def number(value: Size | float) -> Expr:
        return _number(value, dtype_of(i))

    extent, outputs = number(stretch.extent), number(stretch.outputs)
    given = stretch.scale
    if given is None:
        scale, width = outputs / extent, outputs
    elif isinstance(given, Ratio):
        scale = given.quotient(dtype_of(i))
        width = scale * extent
    else:
        scale = number(given)
        width = scale * extent
    half, one, zero = literal(0.5, i), literal(1, i), literal(0, i)
    if transform == "asymmetric":
        return i / scale
    if transform == "align_corners":
        moved = i * number(stretch.extent - 1)
        return select(width.equals(one), zero, moved / (width - one))
    if transform == CROP:
        start, end, reach = stretch.start, stretch.end, number(stretch.extent - 1)
        region = (end - start) * reach
        moved = i * region / number(stretch.outputs - 1)
        moved = moved + start * reach
        middle = 0.5 * (start + end) * reach
        return select(outputs > one, moved, middle)
    centre = (i + half) / scale
    if transform == "tf_half_pixel_for_nn":
        return centre
    x = centre - half
    if transform == "pytorch_half_pixel":
        return select(outputs > one, x, zero)
    if transform == "half_pixel_symmetric":
        shift = one - outputs / width
        x = extent * half * shift + x
    return x


def rounding_along(stretch: Stretch, how: Resampling) -> str | None:
    """How places along an axis are rounded; None where its scale decides, which a run tells."""
    scale = stretch.known_scale
    if how.rounding is not None or scale is None:
        return how.rounding
    return "ceil" if scale < 1 else "floor"


def _rounded(x: Expr, rounding: str | None, stretch: Stretch) -> Expr:
    """The whole number that nearest-neighbour modes take."""
    half = literal(0.5, x)
    if rounding is None:
        assert isinstance(stretch.scale, Ratio)
        is_below = stretch.scale.quotient(dtype_of(x)) < 1
        return select(is_below, op("ceil", x), op("floor", x))
    if rounding == "round_prefer_floor":
        return op("ceil", x - half)
    if rounding == "round_prefer_ceil":
        return op("floor", x + half)
    return op(rounding, x)


def _weights(how: Resampling, ratio: Expr, scale: float | None) -> tuple[list[int], list[Expr]]:
    """Offsets of taps from the element before a place, and their weights `ratio` behind it."""
    reach = 1 if how.mode == "linear" else 2
    stretched = scale is not None and how.antialias and scale < 1
    first = 1 - reach if scale is None or not stretched else math.floor(-reach / scale) + 1
    offsets = list(range(first, 2 - first))
    weights = []
    for offset in offsets:
        distance = offset - ratio
        if stretched:
            distance = distance * (scale or 1)
        weights.append(_kernel(how, abs(distance)))
    return offsets, _normalised(weights) if stretched else weights


def _kernel(how: Resampling, d: Expr) -> Expr:
    """The weight of an element at distance `d`. Cubic: Keys 1981, equation 4."""
    one, zero = literal(1, d), literal(0, d)
    if how.mode == "linear":
        return op("max", one - d, zero)

    a = how.coefficient
    near, far = polynomial(d, a + 2, -(a + 3), 0, 1), polynomial(d, a, -5 * a, 8 * a, -4 * a)
    outer = select(d < 2, far, zero)
    return select(d <= one, near, outer)


def _normalised(weights: Sequence[Expr]) -> list[Expr]:
    """The weights divided by their sum."""
    total = weights[0]
    for weight in weights[1:]:
        total = total + weight
    return [weight / total for weight in weights]
