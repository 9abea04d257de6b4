"""Discrete Fourier transforms by plan: a short list of kernels over scratch memory.

A length n = r1 r2 .. takes one kernel for each radix, a stage of Stockham's algorithm (van Loan,
Computational Frameworks for the Fast Fourier Transform, section 1.7). With s the product of the
radices before, m the product of those behind, and W_k = exp(-2 pi i / k):

    y[q + s (r p + j)] = W_rm^(p j) sum over k of x[q + s (p + m k)] W_r^(j k)      p < m, q < s

The sum is a codelet of scalar expressions, so lanes run along p in the first stage and along q in
later ones, or along the other axes of the signal. Other transforms reduce to this one:

    inverse       real and imaginary parts swapped, before and after
    real, even n  one transform of length n / 2 of x[2 i] + i x[2 i + 1], and a kernel to untangle
    other n       Bluestein's algorithm: a convolution whose length has small factors
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.codelets import PRIMES, Complex, codelet, roots
from ostinato.ops.core.tensor import Tensor, advance, slice_axis
from ostinato.program.expr import Expr, constant
from ostinato.program.kernel import Store
from ostinato.records import dataclass
from ostinato.sizes.strides import Shape

# The largest codelet.
_LARGEST_RADIX = 16
# Elements between rows of scratch memory. Without them rows of 2^k elements and frames that move by
# as many have equal last 12 bits of their addresses, and loads wait for stores they do not need.
_GAP = 16


@dataclass(frozen=True)
class Signal:
    """Complex values along the last axis: a view of each part, None where that part is zero."""

    re: Tensor | None
    im: Tensor | None

    @property
    def some(self) -> Tensor:
        """A part that is there."""
        part = self.im if self.re is None else self.re
        assert part is not None
        return part

    @property
    def length(self) -> int:
        """The extent of the last axis."""
        extent = self.some.shape[-1]
        assert isinstance(extent, int)
        return extent

    def swapped(self) -> Signal:
        """The imaginary part as real part and the other way round."""
        return Signal(self.im, self.re)

    def every(self, start: int, step: int, count: int) -> Signal:
        """Elements `start, start + step, ..`."""
        last = len(self.some.shape) - 1
        return self._each(lambda part: slice_axis(part, last, start, step, count))

    def divided(self, start: int, step: int, m: int, s: int) -> Signal:
        """The last axis as two: element (p, q) is number `start + step * p + q`."""
        return self._each(lambda part: _divided(part, start, step, m, s))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Signal:
        return Signal(self.re and change(self.re), self.im and change(self.im))


def _divided(part: Tensor, start: int, step: int, m: int, s: int) -> Tensor:
    last = part.strides[-1]
    return Tensor(
        part.dtype,
        (*part.shape[:-1], m, s),
        advance(part, start * last),
        (*part.strides[:-1], step * last, last),
    )


# Reads an element of a signal at the point of the kernel being built.
Reader: TypeAlias = "Callable[[Signal], Complex]"
Results: TypeAlias = "list[tuple[Signal, Complex]]"


def _is_smooth(n: int) -> bool:
    """Whether codelets alone make up a transform of this length."""
    for prime in PRIMES:
        while n % prime == 0:
            n //= prime
    return n == 1


@lru_cache
def radices(n: int) -> tuple[int, ...]:
    """The radices of the stages for a length with small factors, in order."""
    return _plan(n, 1)[1]


@lru_cache(maxsize=4096)
def _plan(rest: int, before: int) -> tuple[float, tuple[int, ...]]:
    if rest <= _LARGEST_RADIX and before == 1:
        return 0, (rest,)
    if rest == 1:
        return 0, ()
    best: tuple[float, tuple[int, ...]] = (float("inf"), ())
    for radix in range(2, _LARGEST_RADIX + 1):
        if rest % radix == 0:
            cost, behind = _plan(rest // radix, before * radix)
            cost += _stage_cost(radix, before, rest // radix)
            best = min(best, (cost, (radix, *behind)))
    return best


def _stage_cost(radix: int, before: int, behind: int) -> float:
    """Estimated time of a stage for each element: loads and stores, sums, spills, idle lanes.

    Fitted to measured times. It must not ask for the machine: the plan decides the bits.
    """
    lanes = behind if before == 1 else before
    idle = -(-lanes // 16) * 16 / lanes
    work = 4 + math.log2(radix) + 0.4 * max(0, radix - 8)
    return work * math.pow(min(idle, 4), 0.4)


def transform(
    builder: Builder, source: Signal, target: Signal, window: Signal | None = None, scale: float = 1
) -> None:
    """Write the transform of `source` along its last axis, times `scale`, to `target`.

    window: factors of shape (n,) for both parts, applied to the source first.
    A target shorter than the source takes the first values.
    """
    n, kept = source.length, target.length
    # Tables of a few numbers for each point, of a length up to twice the next power of two.
    builder.limits.table(16 * n, f"a transform of {n} points")
    if not _is_smooth(n):
        _bluestein(builder, source, target, window, scale)
        return
    plan = radices(n)
    if kept < n and len(plan) > 1:
        full = scratch(builder, target.some.dtype, (*source.some.shape[:-1], n))
        transform(builder, source, full, window, scale)
        copy(builder, full.every(0, 1, kept), target)
        return
    before = 1
    for number, radix in enumerate(plan):
        last = number == len(plan) - 1
        result = target if last else scratch(builder, source.some.dtype, source.some.shape)
        _stage(builder, source, result, radix, before, window, scale if last else 1)
        source, window, before = result, None, before * radix


def scratch(builder: Builder, dtype: str, shape: Shape) -> Signal:
    """Memory for complex values, the parts apart."""
    length = shape[-1]
    assert isinstance(length, int)
    longer = (*shape[:-1], length + _GAP)
    return Signal(builder.empty(dtype, longer), builder.empty(dtype, longer)).every(0, 1, length)


def write(builder: Builder, shape: Shape, values: Callable[[Reader], Results]) -> None:
    """One kernel over `shape` that stores the values to their targets."""
    axes = builder.axes(shape)

    def load(part: Tensor | None) -> Expr | None:
        return None if part is None else builder.load(part, axes)

    stores = []
    for target, value in values(lambda signal: Complex(load(signal.re), load(signal.im))):
        for part, expr in ((target.re, value.re), (target.im, value.im)):
            if part is not None:
                stores.append(Store(builder.access(part, axes), expr or constant(0, part.dtype)))
    builder.emit.kernel(axes, stores)


def copy(builder: Builder, source: Signal, target: Signal) -> None:
    """Write the values to the target, which has the same shape."""
    write(builder, target.some.shape, lambda read: [(target, read(source))])


def _stage(
    builder: Builder,
    source: Signal,
    target: Signal,
    radix: int,
    before: int,
    window: Signal | None,
    scale: float,
) -> None:
    behind = source.length // (radix * before)
    shape = (*source.some.shape[:-1], behind, before)
    dtype = source.some.dtype
    table = _table(builder, radix, behind, dtype)

    def values(read: Reader) -> Results:
        x = []
        for k in range(radix):
            start = k * behind * before
            value = read(source.divided(start, before, behind, before))
            if window is not None:
                value = value.weighted(read(window.divided(start, before, behind, before)))
            x.append(value)
        results = []
        for j, value in enumerate(codelet(x, dtype)[: target.length]):
            if j > 0 and behind > 1:
                value = value * read(table.divided(j * behind, 1, behind, 1))
            if scale != 1:
                value = value.scaled(scale)
            results.append((target.divided(j * before, radix * before, behind, before), value))
        return results

    write(builder, shape, values)


def _table(builder: Builder, radix: int, behind: int, dtype: str) -> Signal:
    """Twiddle factors of a stage: element `j * behind + p` belongs to result j."""
    return constants(builder, *_twiddles(radix, behind, dtype))


@lru_cache
def _twiddles(radix: int, behind: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    turns = np.multiply.outer(np.arange(radix), np.arange(behind))
    return rounded(roots(turns.ravel(), radix * behind), dtype)


def rounded(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The parts of complex numbers in another precision."""
    return values.real.astype(dtype), values.imag.astype(dtype)


def constants(builder: Builder, re: np.ndarray, im: np.ndarray) -> Signal:
    """Complex numbers known now."""
    return Signal(
        builder.constants.placed(builder.constant(re)),
        builder.constants.placed(builder.constant(im)),
    )


# Real signals


def real_transform(
    builder: Builder, source: Tensor, target: Signal, window: Tensor | None = None
) -> None:
    """Write the transform of a real signal of n values to a target of n or n // 2 + 1 values."""
    signal = Signal(source, None)
    weights = None if window is None else Signal(window, window)
    n = signal.length
    if n % 2 or n <= _LARGEST_RADIX:
        transform(builder, signal, target, weights)
        return
    packed = scratch(builder, source.dtype, (*source.shape[:-1], n // 2))
    transform(builder, _pairs(signal), packed, None if weights is None else _pairs(weights))
    _untangle(builder, packed, target)


def _pairs(signal: Signal) -> Signal:
    """Real values two by two as complex ones."""
    half = signal.length // 2
    return Signal(signal.every(0, 2, half).re, signal.every(1, 2, half).re)


def _untangle(builder: Builder, packed: Signal, target: Signal) -> None:
    """The transform of a real signal from Z, that of its values two by two, where h = n / 2.

    X[k] = (Z[k] + conj Z[h - k]) / 2 - i W_n^k (Z[k] - conj Z[h - k]) / 2
    """
    half = packed.length
    n, outer = 2 * half, packed.some.shape[:-1]
    whole = target.length == n

    def both(k: int, step: int, count: int, value: Complex) -> Results:
        """X[k] and X[n - k], its conjugate."""
        mirrored = [(target.every(n - k, -step, count), value.conjugate())] if whole else []
        return [(target.every(k, step, count), value), *mirrored]

    def ends(read: Reader) -> Results:
        first = read(packed.every(0, 1, 1))
        results = [(target.every(0, 1, 1), (first + first.turned()).real())]
        results.append((target.every(half, 1, 1), (first - first.turned()).real()))
        if half % 2 == 0:
            middle = read(packed.every(half // 2, 1, 1))
            results += both(half // 2, 1, 1, middle.conjugate())
        return results

    count = (half - 1) // 2
    table = _halves(builder, half, packed.some.dtype)

    def pairs(read: Reader) -> Results:
        low, high = read(packed.every(1, 1, count)), read(packed.every(half - 1, -1, count))
        even = (low + high.conjugate()).scaled(0.5)
        odd = (low - high.conjugate()) * read(table)
        return both(1, 1, count, even + odd) + both(half - 1, -1, count, (even - odd).conjugate())

    write(builder, (*outer, 1), ends)
    write(builder, (*outer, count), pairs)


def _halves(builder: Builder, half: int, dtype: str) -> Signal:
    return constants(builder, *_half_turns(half, dtype))


@lru_cache
def _half_turns(half: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """-i W_2h^k / 2 for k = 1 .. (h - 1) // 2."""
    return rounded(-0.5j * roots(np.arange(1, (half + 1) // 2), 2 * half), dtype)


def real_inverse(builder: Builder, source: Signal, target: Tensor) -> None:
    """Write the real signal of n values whose transform starts with the n // 2 + 1 of `source`.

    The imaginary parts of the first value, and for even n of the last one, count as 0.
    """
    result = Signal(target, None)
    n, outer = result.length, source.some.shape[:-1]
    if n % 2 or n <= _LARGEST_RADIX:
        spectrum = scratch(builder, target.dtype, (*outer, n))
        _mirror(builder, source, spectrum)
        transform(builder, spectrum.swapped(), result.swapped(), scale=1 / n)
        return
    packed = scratch(builder, target.dtype, (*outer, n // 2))
    _entangle(builder, source, packed)
    transform(builder, packed.swapped(), _pairs(result).swapped(), scale=2 / n)


def _mirror(builder: Builder, source: Signal, spectrum: Signal) -> None:
    """All n values of the transform of a real signal."""
    n = spectrum.length
    outer, count = source.some.shape[:-1], (n - 1) // 2

    def ends(read: Reader) -> Results:
        places = [0] if n % 2 else sorted({0, n // 2})
        return [(spectrum.every(k, 1, 1), read(source.every(k, 1, 1)).real()) for k in places]

    def pairs(read: Reader) -> Results:
        value = read(source.every(1, 1, count))
        return [
            (spectrum.every(1, 1, count), value),
            (spectrum.every(n - 1, -1, count), value.conjugate()),
        ]

    write(builder, (*outer, 1), ends)
    write(builder, (*outer, count), pairs)


def _entangle(builder: Builder, source: Signal, packed: Signal) -> None:
    """The mirror image of `_untangle`.

    Z[k] = (X[k] + conj X[h - k]) / 2 + i W_n^-k (X[k] - conj X[h - k]) / 2
    """
    half = packed.length
    outer, count = source.some.shape[:-1], (half - 1) // 2
    table = _halves(builder, half, packed.some.dtype)

    def ends(read: Reader) -> Results:
        first = read(source.every(0, 1, 1)).real().scaled(0.5)
        last = read(source.every(half, 1, 1)).real().scaled(0.5)
        value = Complex((first + last).re, (first - last).re)
        results = [(packed.every(0, 1, 1), value)]
        if half % 2 == 0:
            middle = read(source.every(half // 2, 1, 1))
            results.append((packed.every(half // 2, 1, 1), middle.conjugate()))
        return results

    def pairs(read: Reader) -> Results:
        low, high = read(source.every(1, 1, count)), read(source.every(half - 1, -1, count))
        even = (low + high.conjugate()).scaled(0.5)
        odd = (low - high.conjugate()) * read(table).conjugate()
        return [
            (packed.every(1, 1, count), even + odd),
            (packed.every(half - 1, -1, count), (even - odd).conjugate()),
        ]

    write(builder, (*outer, 1), ends)
    write(builder, (*outer, count), pairs)


# Lengths with large prime factors


def _bluestein(
    builder: Builder, source: Signal, target: Signal, window: Signal | None, scale: float
) -> None:
    """The transform as a convolution (Bluestein 1970), since j k = (j^2 + k^2 - (k - j)^2) / 2.

    With c[k] = exp(-pi i k^2 / n), X[k] = c[k] sum over j of (x[j] c[j]) conj c[k - j].
    """
    n, kept = source.length, target.length
    outer, dtype = source.some.shape[:-1], source.some.dtype
    size = _smooth_above(2 * n - 2)
    chirp = constants(builder, *_chirp(n, dtype))
    padded, spectrum = (scratch(builder, dtype, (*outer, size)) for _ in range(2))

    def chirped(read: Reader) -> Results:
        value = read(source)
        if window is not None:
            value = value.weighted(read(window))
        return [(padded.every(0, 1, n), value * read(chirp))]

    write(builder, (*outer, n), chirped)
    zeros = padded.every(n, 1, size - n)
    write(builder, (*outer, size - n), lambda _: [(zeros, Complex(None, None))])
    transform(builder, padded, spectrum)
    filtered, convolved = (scratch(builder, dtype, (*outer, size)) for _ in range(2))
    response = constants(builder, *_response(n, size, dtype))
    write(builder, (*outer, size), lambda read: [(filtered, read(spectrum) * read(response))])
    transform(builder, filtered.swapped(), convolved.swapped())
    ending = constants(builder, *_chirp(n, dtype)).every(0, 1, kept)

    def result(read: Reader) -> Results:
        value = read(convolved.every(0, 1, kept)) * read(ending)
        return [(target, value if scale == 1 else value.scaled(scale))]

    write(builder, (*outer, kept), result)


def _smooth_above(n: int) -> int:
    """The smallest multiple of 16 above n that codelets make up."""
    size = 16 * (n // 16 + 1)
    while not _is_smooth(size):
        size += 16
    return size


@lru_cache
def _chirp(n: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    return rounded(roots(np.arange(n) ** 2 % (2 * n), 2 * n), dtype)


@lru_cache
def _response(n: int, size: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The transform of conj c[k] for k = 1 - n .. n - 1, modulo `size`, over `size`."""
    chirp = roots(np.arange(n) ** 2 % (2 * n), 2 * n).conj()
    filter_ = np.zeros(size, np.complex128)
    filter_[:n] = chirp
    filter_[size - n + 1 :] = chirp[:0:-1]
    return rounded(np.fft.fft(filter_) / size, dtype)
