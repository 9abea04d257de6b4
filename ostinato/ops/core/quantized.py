"""Elements of linear quantisation: integers that stand for `(q - zero point) * scale`."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ostinato.program.expr import Const, Expr, cast, constant, dtype_of, literal, op, select
from ostinato.program.fused import fma
from ostinato.program.rounding import counted

# Scales between these have reciprocals, and residuals of quotients from 1/4 on are not subnormal.
LEAST_SCALE, GREATEST_SCALE = 2.0**-100, 2.0**100
# Integers of one byte have few ties. About each, this many floats are looked at: units in the last
# place of x, which are half as many of the quotient at least, whose error is below one.
_MOST_TIES, _NEAR_TIES = 256, np.arange(-16, 17, dtype=np.int32)


def quantized(quotient: Expr, zero: Expr | None, dtype: str) -> Expr:
    """round(quotient) + zero, to the nearest and ties to even, kept within the integer type.

    NaN becomes the least value, as in onnxruntime; the documents say nothing of it.
    """
    kind, limits = dtype_of(quotient), np.iinfo(dtype)
    if kind != "float32":
        shifted = op("rint", quotient)
        if zero is not None:
            shifted = shifted + cast(zero, kind)
        bounds = (constant(n, kind) for n in (limits.min, limits.max))
        return cast(cast(_within(shifted, *bounds), "int32"), dtype)
    # Bounds are whole numbers, so that rounding may as well come behind them.
    low, high = (_less(limit, zero) for limit in (limits.min, limits.max))
    return counted(_within(quotient, low, high), zero, dtype)


def quantized_by(x: Expr, scale: Expr, zero: Expr | None, dtype: str) -> Expr:
    """round(x / scale) + zero, as `quantized`, of float32.

    Where scale and zero point are known, x is multiplied by the reciprocal of the scale. Two
    corrections make that the quotient, correctly rounded: the first one leaves an error below one
    unit in the last place, and then the second one is exact (P. Markstein, "Computation of
    elementary functions on the IBM RISC System/6000 processor", 1990, theorem 7). Quotients below
    1/4, whose residual may be subnormal, round to 0. The first one is enough where it rounds to the
    same whole number for all x about the ties between two of them.
    """
    if zero is None:
        zero = constant(0, dtype)
    if not (isinstance(scale, Const) and isinstance(zero, Const)):
        return quantized(x / scale, zero, dtype)
    if scale.value == 1:
        return quantized(x, zero, dtype)
    single, limits = np.float32(scale.value), np.iinfo(dtype)
    if not LEAST_SCALE <= single <= GREATEST_SCALE:
        return quantized(x / scale, zero, dtype)
    # Products of bounds and scale are rounded by less than what rounds to another whole number.
    least, most = (int(n) - int(zero.value) for n in (limits.min, limits.max))
    low, high = (literal(float(np.float32(n) * single), x) for n in (least, most))
    x = _within(x, low, high)
    minus, reciprocal = literal(-float(single), x), literal(float(np.float32(1) / single), x)
    quotient = x * reciprocal
    for _ in range(_corrections(float(single), least, most)):
        quotient = op("fma", op("fma", quotient, minus, x), reciprocal, quotient)
    return counted(quotient, zero, dtype)


@lru_cache(maxsize=256)
def _corrections(scale: float, least: int, most: int) -> int:
    """How many corrections give the integers from `least` to `most` that a division gives.

    A quotient off by less than one unit in the last place rounds differently only next to a tie.
    """
    if most - least > _MOST_TIES:
        return 2
    single = np.float32(scale)
    ties = (np.arange(least - 1, most + 1) + 0.5) * scale
    x = (ties.astype(np.float32).view(np.int32)[:, None] + _NEAR_TIES).view(np.float32)
    reciprocal = np.full_like(x, np.float32(1) / single)
    quotient = x * reciprocal
    residual = fma(quotient, np.full_like(x, -single), x)
    corrected = fma(residual, reciprocal, quotient)
    return 1 if np.array_equal(np.rint(corrected), np.rint(x / single)) else 2


def dequantized(x: Expr, zero: Expr | None, scale: Expr) -> Expr:
    """(x - zero) * scale in the type of the scale; the difference is exact."""
    wide = cast(x, "int32")
    if zero is not None:
        wide = wide - cast(zero, "int32")
    return cast(wide, dtype_of(scale)) * scale


def _within(x: Expr, low: Expr, high: Expr) -> Expr:
    """x between bounds; NaN is the low one."""
    above = select(x > low, x, low)
    return select(above < high, above, high)


def _less(limit: int, zero: Expr | None) -> Expr:
    """A limit less the zero point, as float32."""
    if zero is None:
        return constant(limit, "float32")
    return cast(limit - cast(zero, "int32"), "float32")
