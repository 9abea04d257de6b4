"""Round float32 numbers to integers by adding a large number, whose lowest bits then count them."""

from __future__ import annotations

from ostinato.program.expr import Cast, Const, Expr, Op, cast, constant, op

# 1.5 * 2^23, beside which floats lie 1 apart, and its bits. Adding it rounds a number up to 2^22 to
# an integer, ties to even, which the lowest bits of the sum hold.
_WHOLE, _WHOLE_BITS = constant(12582912.0, "float32"), constant(0x4B400000, "int32")


def counted(number: Expr, zero: Expr | None, dtype: str) -> Expr:
    """round(number) + zero, for float32 numbers where that is within the integer type."""
    base: Expr = _WHOLE_BITS
    if zero is not None:
        base = base - cast(zero, "int32")
    bits = op("bitcast", number + _WHOLE, dtype="int32")
    return cast(bits - base, dtype)


def uncounted(difference: Expr) -> Expr | None:
    """float32 of the result of `counted` less its zero point, without going through integers.

    difference: int32. None for others. A number that rounds to 0 gives +0 either way.
    """
    integer, zero = difference, None
    if isinstance(integer, Op) and integer.name == "sub":
        integer, zero = integer.args
    if not isinstance(integer, Cast) or not isinstance(integer.value, Cast):
        return None
    found = integer.value.value
    if not isinstance(found, Op) or found.name != "sub":
        return None
    bits, base = found.args
    own = None
    if isinstance(base, Op) and base.name == "sub":
        base, own = base.args
    if base is not _WHOLE_BITS or _known(own) != _known(zero):
        return None
    if not isinstance(bits, Op) or bits.name != "bitcast":
        return None
    (total,) = bits.args
    is_counted = isinstance(total, Op) and total.name == "add" and total.args[1] is _WHOLE
    return total - _WHOLE if is_counted else None


def _known(zero: Expr | None) -> Expr | float | None:
    """A key by which zero points are compared; that of none is 0."""
    inner = zero.value if isinstance(zero, Cast) else zero
    if inner is None or (isinstance(inner, Const) and inner.value == 0):
        return None
    return zero
