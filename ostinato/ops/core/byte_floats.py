"""Floats of 8 bits: bytes in memory, which integer arithmetic turns into float32 and back.

The formats are those of the ONNX documents ("Float stored in 8 bits"): a sign, an exponent and a
mantissa, of which only e5m2 has infinities, and those with "uz" have no negative zero, whose bits
are their NaN. E8M0 is an exponent alone, a power of two.
"""

from __future__ import annotations

from ostinato.program.expr import Expr, cast, constant, dtype_of, op, select
from ostinato.records import dataclass


@dataclass(frozen=True)
class _Format:
    """Bits of the mantissa, the bias of the exponent, and the codes without sign.

    largest: the largest number. beyond: what larger ones become that do not saturate. nan: NaN.
    unsigned_zero: whether there is one zero only.
    """

    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    unsigned_zero: bool = False


_FORMATS = {
    "float8_e4m3fn": _Format(3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": _Format(3, 8, 0x7F, 0x80, 0x80, True),
    "float8_e5m2": _Format(2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": _Format(2, 16, 0x7F, 0x80, 0x80, True),
}
_POWERS = "float8_e8m0fnu"
ROUND_MODES = ("up", "down", "nearest")


def bits(x: Expr) -> Expr:
    """The byte of an 8-bit float as uint32."""
    return cast(op("bitcast", x, dtype="uint8"), "uint32")


def _number(value: int) -> Expr:
    return constant(value, "uint32")


def widened_bytes(x: Expr) -> Expr:
    """An 8-bit float as float32, exactly."""
    byte = bits(x)
    nan = constant(float("nan"), "float32")
    if dtype_of(x) == _POWERS:
        # The least one is no normal number of float32.
        pattern = select(byte.equals(0), 1 << 22, byte << 23)
        power = op("bitcast", pattern, dtype="float32")
        return select(byte.equals(255), nan, power)
    form = _FORMATS[dtype_of(x)]
    code = byte & 0x7F
    shifted = code << (23 - form.mantissa)
    normal = op("bitcast", shifted + ((127 - form.bias) << 23), dtype="float32")
    small = cast(cast(code, "int32"), "float32")
    scale = constant(2.0 ** (1 - form.bias - form.mantissa), "float32")
    is_small = code < (1 << form.mantissa)
    size = select(is_small, small * scale, normal)
    if form.nan == 0x80:
        is_nan = byte.equals(0x80)
    else:
        if form.beyond != form.nan:
            infinite = constant(float("inf"), "float32")
            size = select(code.equals(form.beyond), infinite, size)
        is_nan = code > max(form.beyond, form.largest)
        if form.beyond == form.nan:
            is_nan = code.equals(form.nan)
    signed = select(byte >= 0x80, -size, size)
    return select(is_nan, nan, signed)


def narrowed_to_bytes(x: Expr, dtype: str, saturate: bool, round_mode: str = "up") -> Expr:
    """A float32 as an 8-bit float: rounded to the nearest, ties to even, or a power of two.

    saturate: numbers that are too large, and infinities, become the largest number.
    round_mode: to which power of two: "up", "down" or "nearest", halves up.
    """
    pattern = op("bitcast", x, dtype="uint32")
    if dtype == _POWERS:
        return _as(_power(pattern, saturate, round_mode), dtype)
    form = _FORMATS[dtype]
    sign = op("shr", pattern, _number(31)) << 7
    code = _rounded(pattern & 0x7FFFFFFF, form)
    above = _number(form.largest if saturate else form.beyond)
    code = select(code > form.largest, above, code)
    signed = code | sign
    if form.unsigned_zero:
        signed = select(code.equals(0), code, signed)
        if not saturate:
            signed = select(code.equals(above), code, signed)
    nan = _number(form.nan)
    return _as(select(x.differs(x), nan, signed), dtype)


def _as(byte: Expr, dtype: str) -> Expr:
    return op("bitcast", cast(byte, "uint8"), dtype=dtype)


def _rounded(pattern: Expr, form: _Format) -> Expr:
    """The code that is nearest to a number that is not negative, as if there were larger ones."""
    cut = 23 - form.mantissa
    odd = op("shr", pattern, _number(cut)) & 1
    half = odd + ((1 << (cut - 1)) - 1)
    code = op("shr", pattern + half, _number(cut))
    normal = code - ((127 - form.bias) << form.mantissa)
    least = _number((128 - form.bias) << 23)
    size = op("bitcast", pattern, dtype="float32")
    scaled = size * 2.0 ** (form.bias - 1 + form.mantissa)
    is_small = pattern < least
    # Numbers that are not small might not fit into an integer.
    small = select(is_small, scaled, 0.0)
    return select(is_small, cast(cast(op("rint", small), "int32"), "uint32"), normal)


def _power(pattern: Expr, saturate: bool, round_mode: str) -> Expr:
    """The exponent of a power of two; the sign is dropped, and there is no infinity."""
    exponent = op("shr", pattern, _number(23)) & 255
    fraction = pattern & 0x7FFFFF
    goes_up: Expr = constant(False, "bool")
    if round_mode == "up":
        goes_up = fraction > 0
    elif round_mode == "nearest":
        # A half goes to zero where there is nothing less than the least power.
        half = _number(1 << 22)
        is_tie = fraction.equals(half) & (exponent > 0)
        goes_up = (fraction > half) | is_tie
    goes_up = goes_up & (exponent < (254 if saturate else 255))
    return exponent + cast(goes_up, "uint32")
