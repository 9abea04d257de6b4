"""Multiply-add with a single rounding, exactly as the hardware does it.

Sums are made exact by TwoSum (D. E. Knuth, TAOCP 2, 4.2.2), products by T. J. Dekker's splitting
(1971). Rounding an intermediate result to odd keeps the final rounding correct (S. Boldo and
G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
odd", 2008).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Magnitudes within which products of float64 can be split without overflow or underflow.
_LARGEST, _SMALLEST = 2.0**480, 2.0**-960
# Of a float64: the bits below a unit in the last place of float32, and half of that unit.
_UNIT_BITS, _HALF_UNIT = (1 << 29) - 1, 1 << 28
# Of float32.
_SMALLEST_NORMAL = 2.0**-126


def fma(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` rounded once, for float32 or float64."""
    return _fma32(a, b, c) if a.dtype == np.float32 else _fma64(a, b, c)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _to_odd(total: Array, error: Array) -> Array:
    """`total + error` rounded to odd, where `total` is that sum rounded to nearest."""
    total = np.asarray(total)
    even = (total.view(np.int64) & 1) == 0
    move = even & (error != 0) & np.isfinite(total)
    return np.where(move, np.nextafter(total, np.copysign(np.inf, error)), total)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    # The product of two float32 is exact in float64.
    product, addend = np.multiply(a, b, dtype=np.float64), c.astype(np.float64)
    total = np.asarray(product + addend)
    # Rounding twice differs from rounding once only where the first result lies halfway between two
    # float32: half a unit in the last place; below the smallest normal number, a larger power of
    # two.
    is_middle = (total.view(np.int64) & _UNIT_BITS) == _HALF_UNIT
    is_middle |= (abs(total) < _SMALLEST_NORMAL) & (total != 0)
    if is_middle.any():
        parts = (np.broadcast_to(part, total.shape)[is_middle] for part in (product, addend))
        total[is_middle] = _to_odd(*_two_sum(*parts))
    return total.astype(np.float32)


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * (2.0**27 + 1)
    high = scaled - (scaled - a)
    return high, a - high


def _fma64(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    result = product + c
    bounded = (abs(a) < _LARGEST) & (abs(b) < _LARGEST) & (abs(c) < _LARGEST)
    simple = bounded & (abs(product) > _SMALLEST)
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    high, low = _two_sum(c, rest)
    total, error = _two_sum(product, high)
    result = np.where(simple, total + _to_odd(*_two_sum(low, error)), result)
    finite = np.isfinite(a) & np.isfinite(b)
    result = np.where(finite & ~np.isfinite(c), c, result)
    hard = finite & np.isfinite(c) & ~simple & (a != 0) & (b != 0)
    if hard.any():
        result[hard] = [_exact(*map(float, v)) for v in zip(a[hard], b[hard], c[hard], strict=True)]
    return np.asarray(result)


def _exact(a: float, b: float, c: float) -> float:
    """Compute `fma` in integers, for extreme exponents; the quotient is rounded once."""
    (a_top, a_bottom), (b_top, b_bottom) = a.as_integer_ratio(), b.as_integer_ratio()
    top, bottom = c.as_integer_ratio()
    total = a_top * b_top * bottom + top * a_bottom * b_bottom
    try:
        return total / (a_bottom * b_bottom * bottom)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
