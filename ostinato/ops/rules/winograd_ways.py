"""Whether convolutions compute several positions together, and how many along each axis.

An estimate in multiply-adds decides, of what the model says alone: bits depend on it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ostinato.graph.dilation import count_of_phases, phases, share_on_data
from ostinato.graph.windows import Window
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Value
from ostinato.ops.core.together import Counts
from ostinato.ops.rules.winograd_forms import FORMS, Form
from ostinato.program.transformed import NONE, TAPS, Taps, Transformed
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, ceildiv, computed, floordiv, symbols

# Fitted to `benchmarks.bench_winograd`, with AVX2 and AVX-512: multiply-adds that take as long as
# to make, store and load an element of the v or of the m; the same where phases are apart, for the
# elements of many tensors that leave a second-level cache in between, and for weights beyond it;
# the rows that a product with a matrix of weights needs to take longer than loading it; and the
# share of the time that may be left.
_OF_AN_ELEMENT, _OF_A_FAR_ELEMENT = 20, 36
_OF_A_FAR_WEIGHT = 7
LEAST_ROWS = 16
_MOST_LEFT = 0.92
# Each phase of a stride is transformed by a kernel of its own: 256 taps that move by 16 elements
# take as long by phases as plain sums, and load in 1.4 of the time.
_MOST_PHASES = 8
# Pixels along a side of an image where only a run tells how many there are. Bits depend on it, so
# it is no matter of schedules.
TYPICAL_SIDE = 64
# Bytes of the v that leave a second-level cache with the m, and of weights that are few enough to
# be read again for each block of lines, which passes through all steps at a time: three layers of
# 64 channels of 224 x 224 pixels take 0.9 of the time so, 32 of 256 x 256 pixels 0.7, 128 of
# 112 x 112 pixels 0.82 (by turns, with and without).
_MANY_BYTES = 1 << 21
_FEW_BYTES = 1 << 22


@dataclass(frozen=True)
class Winograd:
    """A convolution of several positions at a time.

    u: the weights of the products, with how many positions are together and the phases: of the
    elements, or where it is transposed of the results. windows: one per axis; they move over a
    phase by one element. images: the phases that are images of their own, where an axis along which
    there are several is dilated.
    """

    u: Transformed
    windows: tuple[Window[Size], ...]
    images: int = 1

    @property
    def together(self) -> Counts:
        """How many positions along each spatial axis are computed together."""
        return self.u.together

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart the elements of a phase lie along each spatial axis."""
        return (1,) * len(self.windows) if self.u.is_transposed else self.u.phases

    @property
    def spread(self) -> tuple[int, ...]:
        """How far apart the results of a phase lie along each spatial axis."""
        return self.u.phases if self.u.is_transposed else (1,) * len(self.windows)

    @property
    def axes(self) -> tuple[int, ...]:
        """The spatial axes along which several positions are computed together."""
        return tuple(axis for axis, count in enumerate(self.together) if count > 1)

    @property
    def forms(self) -> list[Form]:
        """How that is done, along each of these axes."""
        return [FORMS[self.together[axis]] for axis in self.axes]

    @property
    def places(self) -> list[int]:
        """These axes of tensors with rows and channels."""
        return [2 + axis for axis in self.axes]

    @property
    def counts(self) -> list[Size]:
        """How often this many positions are computed along each of these axes."""
        return [ceildiv(self.windows[axis].outputs, self.together[axis]) for axis in self.axes]

    @property
    def groups(self) -> list[int]:
        """The number of groups of taps along each of these axes."""
        return [self.u.groups(axis) for axis in self.axes]

    @property
    def steps(self) -> list[int]:
        """How far apart the elements lie for which there are v, along each of these axes."""
        along = zip(self.forms, self.groups, strict=True)
        return [form.positions if groups == 1 else 1 for form, groups in along]

    @property
    def starts(self) -> list[Size]:
        """The number of elements for which there are v, along each of these axes."""
        along = zip(self.forms, self.counts, self.groups, self.steps, strict=True)
        return [
            floordiv(form.positions * (count - 1) + TAPS * (groups - 1), step) + 1
            for form, count, groups, step in along
        ]

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of the products of positions that are computed together."""
        return tuple(form.products for form in self.forms)

    @property
    def has_long_lines(self) -> bool:
        """Whether the v and m lie in memory line by line, all products of a line together."""
        (products, item), windows = (math.prod(self.single), self.u.dtype.itemsize), self.inside
        filters, channels = self.u.filters, self.u.channels
        taps = math.prod(window.kernel for window in windows)
        lines, *sizes = (window.outputs for window in windows)
        places = math.prod(size for size in sizes if isinstance(size, int))
        if not isinstance(lines, int) or any(not isinstance(size, int) for size in sizes):
            return False
        is_large = products * channels * lines * places * item >= _MANY_BYTES
        has_few = products * channels * filters * taps * item <= _FEW_BYTES
        return is_large and has_few and places >= LEAST_ROWS

    @property
    def inside(self) -> list[Window[Size]]:
        """What is left to sum over, on elements that are padded and transformed."""
        windows = [replace(window, before=0, after=0, beyond=0) for window in self.windows]
        along = zip(self.axes, self.forms, self.counts, self.groups, self.steps, strict=True)
        for axis, form, count, groups, step in along:
            windows[axis] = replace(
                windows[axis],
                kernel=groups,
                stride=form.positions // step,
                dilation=TAPS // step,
                outputs=count,
            )
        return windows


def winograd(
    context: Context, weights: Value, windows: Sequence[Window[Size]], group: int
) -> Winograd | None:
    """How a convolution computes several positions at a time; None if it does not."""
    counts = decided(context, lambda: fastest(weights, windows, group))
    return way_of(weights.known, windows, counts) if weights.known is not None and counts else None


def decided(context: Context, decide: Callable[[], Counts]) -> Counts:
    """What `decide` tells of the node's result, unless `Together` knows or forbids it."""
    together = context.builder.together
    return () if together is None else together.of(context.node.outputs[0].name or "", decide)


def way_of(known: np.ndarray, windows: Sequence[Window[Size]], together: Counts) -> Winograd:
    """This many positions together, of all phases where one of their axes is dilated."""
    along = list(zip(windows, together, strict=True))
    taps = tuple(_taps(window.kernel, window.stride if count > 1 else 1) for window, count in along)
    over_phases = tuple(
        replace(window, kernel=len(first), stride=1 if count > 1 else window.stride)
        for (window, count), (first, *_) in zip(along, taps, strict=True)
    )
    found = Winograd(Transformed(known, taps, together, is_transposed=False), over_phases)
    if all(windows[axis].dilation == 1 for axis in found.axes):
        return found
    return replace(found, windows=phases(windows), images=count_of_phases(windows))


def _taps(kernel: int, stride: int) -> Taps:
    """Tap `t` of phase `p` is tap `stride * t + p`."""
    count = -(-kernel // stride)
    numbers = [[stride * t + phase for t in range(count)] for phase in range(stride)]
    return tuple(tuple(n if n < kernel else NONE for n in phase) for phase in numbers)


def fastest(weights: Value, windows: Sequence[Window[Size]], group: int) -> Counts:
    """How many positions together take the least time along each axis; () for each one alone.

    The weights and the sizes in the model alone decide it, so that the bits are the same for any
    batch, machine and number of threads. Nobody cuts an image along an axis whose size the model
    gives, nor along its height or width: no bit depends then on which positions are together.
    """
    known = weights.known
    if known is None or not may_transform(known, windows, group):
        return ()
    is_image = _are_height_and_width([window.outputs for window in windows])
    fit = [
        axis
        for axis, window in enumerate(windows)
        if window.kernel >= max(TAPS, window.stride + 1)
        and (window.stride == 1 or (isinstance(window.outputs, int) and window.dilation == 1))
        and (isinstance(window.outputs, int) or (is_image and window.dilation == 1))
    ]
    even = [a for a in fit if windows[a].dilation == 1 and windows[a].stride <= _MOST_PHASES]
    plain = [axis for axis in even if windows[axis].stride == 1]
    strided = {(axis,) for axis in even if windows[axis].stride > 1}
    # Phases of dilated axes take all axes apart, and each place of theirs.
    has_phases = all(w.stride == 1 and isinstance(w.outputs, int) for w in windows)
    choices = strided | {
        tuple(axes[-count:])
        for axes in (plain, even, fit if has_phases else even)
        for count in (1, 2)
        if len(axes) >= count
    }
    counts = (
        itertools.product(*(FORMS if axis in axes else (1,) for axis in range(len(windows))))
        for axes in sorted(choices)
    )
    ways = [way_of(known, windows, together) for one in counts for together in one]
    alone = way_of(known, windows, (1,) * len(windows))
    return cheapest(ways, cost(alone) * _share_on_data(windows))


def may_transform(known: np.ndarray, windows: Sequence[Window[Size]], group: int) -> bool:
    """Whether weights, and images of results, are such as the forms are made for."""
    is_image = len(windows) > 1 and all(window.outputs != 0 for window in windows)
    return known.dtype == np.float32 and group == 1 and is_image


def cheapest(ways: Sequence[Winograd], alone: float) -> Counts:
    """The positions together of the cheapest way; () if it saves little of `alone`, a plain sum."""
    best = min(ways, key=cost, default=None)
    return best.together if best is not None and cost(best) < _MOST_LEFT * alone else ()


def _share_on_data(windows: Sequence[Window[Size]]) -> float:
    """The share of the products that a plain convolution takes, not those of padding."""
    if all(window.dilation == 1 for window in windows):
        return 1.0
    return share_on_data(
        windows, [(w.outputs - 1) * w.stride + w.span - w.before - w.after for w in windows]
    )


def _are_height_and_width(sizes: Sequence[Size]) -> bool:
    """Whether sizes follow from dimensions of the model, each from others."""
    names = [set(symbols(size)) for size in sizes]
    apart = len(set().union(*names)) == sum(map(len, names))
    return apart and all(names) and not computed(*sizes)


def cost(way: Winograd) -> float:
    """Multiply-adds of the convolution, and what else takes as long as this many."""
    results, elements = way.u.filters, way.u.channels
    products, rows, weights = results * elements, 1, results * elements
    for axis, window in enumerate(way.inside):
        together, outputs = way.together[axis], window.outputs
        number = FORMS[together].products if together > 1 else 1
        if not isinstance(outputs, int):
            outputs = TYPICAL_SIDE // together
        products *= number * outputs * window.kernel
        weights *= number * window.kernel
        results *= number * outputs
        elements *= number * outputs * window.stride
        rows *= outputs
    if not way.axes:
        return products
    if rows * way.images < LEAST_ROWS:
        return math.inf
    passed, each, item = results + elements, _OF_AN_ELEMENT, way.u.dtype.itemsize
    if way.images > 1:
        # Phases are copied apart, and together again.
        places = math.prod(w.outputs for w in way.windows if isinstance(w.outputs, int))
        passed += 2 * (way.u.filters + way.u.channels) * places
    loading = 0
    if math.prod(way.u.phases) > 1:
        is_far = len(way.axes) > 1 and elements * item >= 2 * _MANY_BYTES
        each = _OF_A_FAR_ELEMENT if is_far and not way.has_long_lines else each
        loading = max(weights - _MANY_BYTES // item, 0) * _OF_A_FAR_WEIGHT
    return (products + passed * each) * way.images + loading
