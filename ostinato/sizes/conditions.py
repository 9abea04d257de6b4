"""Conditions on sizes as sizes, 1 where they hold, and divisions that depend on signs."""

from __future__ import annotations

from ostinato.sizes.dims import Size, floordiv, is_nonnegative, maximum, minimum


def is_equal(left: Size, right: Size) -> Size:
    """1 where two sizes are equal, else 0."""
    difference = left - right
    if isinstance(difference, int):
        return int(difference == 0)
    if is_nonnegative(difference - 1) or is_nonnegative(-difference - 1):
        return 0
    return maximum(1 - maximum(difference, -difference), 0)


def is_different(left: Size, right: Size) -> Size:
    """0 where two sizes are equal, else 1."""
    same = is_equal(left, right)
    if isinstance(same, int):
        return 1 - same
    difference = left - right
    return minimum(maximum(maximum(difference, -difference), 0), 1)


def is_less(left: Size, right: Size) -> Size:
    """1 where the left size is smaller, else 0."""
    return minimum(maximum(right - left, 0), 1)


def choose(condition: Size, yes: Size, no: Size) -> Size:
    """`yes` where the condition is 1, `no` where it is 0."""
    return no + condition * (yes - no)


def truncdiv(left: Size, right: Size) -> Size:
    """`left / right` rounded toward zero, as ONNX divides integers; 0 for a divisor of 0."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            return 0
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if isinstance(right, int):
        if right <= 0:
            return -truncdiv(left, -right) if right else 0
        if is_nonnegative(left):
            return floordiv(left, right)
        return floordiv(maximum(left, 0), right) - floordiv(maximum(-left, 0), right)
    if is_nonnegative(left) and is_nonnegative(right):
        return floordiv(left, right) * (1 - is_equal(right, 0))
    size = floordiv(maximum(left, -left), maximum(right, -right))
    sign = (1 - 2 * is_less(left, 0)) * (1 - 2 * is_less(right, 0))
    return size * sign * (1 - is_equal(right, 0))


def modulo(left: Size, right: Size) -> Size:
    """The remainder of a division rounded down, of the divisor's sign; 0 for a divisor of 0."""
    if isinstance(left, int) and isinstance(right, int):
        return left % right if right else 0
    if isinstance(right, int) and right > 0:
        return left - right * floordiv(left, right)
    positive = maximum(right, -right)
    size = left - positive * floordiv(left, positive)
    return (size + right * is_less(right, 0) * is_different(size, 0)) * is_different(right, 0)
