"""The constants of the two float formats, and building blocks of the functions."""

from __future__ import annotations

from ostinato.program.expr import Expr, Number, Op, literal, op, select
from ostinato.records import dataclass


@dataclass(frozen=True)
class Format:
    """An IEEE 754 binary format: the constants by which algorithms take numbers apart.

    The three parts of `pi / 2` are truncated, not rounded: subtracting none of them keeps a -0.
    """

    dtype: str
    integer: str
    mantissa: int
    bias: int
    ln2: float
    ln2_low: float
    half_pi: tuple[float, ...]

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa

    @property
    def magic(self) -> float:
        """Adding this number rounds to an integer, and leaves that integer in the lowest bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def width(self) -> int:
        """The number of bits."""
        return self.mantissa + self.bias.bit_length() + 2

    @property
    def sign(self) -> int:
        """The bits of -0.0, as a signed integer."""
        return -(1 << (self.width - 1))

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)


_FLOAT32 = Format(
    dtype="float32",
    integer="int32",
    mantissa=23,
    bias=127,
    ln2=float.fromhex("0x1.62e430p-1"),
    ln2_low=float.fromhex("-0x1.05c610p-29"),
    half_pi=(
        float.fromhex("0x1.921fb4p+0"),
        float.fromhex("0x1.4442d0p-24"),
        float.fromhex("0x1.846988p-48"),
    ),
)
_FLOAT64 = Format(
    dtype="float64",
    integer="int64",
    mantissa=52,
    bias=1023,
    ln2=float.fromhex("0x1.62e42fefa39efp-1"),
    ln2_low=float.fromhex("0x1.abc9e3b39803fp-56"),
    half_pi=(
        float.fromhex("0x1.921fb54442d18p+0"),
        float.fromhex("0x1.1a62633145c06p-54"),
        float.fromhex("0x1.c1cd129024e08p-107"),
    ),
)
_FORMATS = {form.dtype: form for form in (_FLOAT32, _FLOAT64)}


def format_of(x: Expr) -> Format:
    """The format of a float."""
    return _FORMATS[x.dtype]


def bits(x: Expr) -> Expr:
    """The representation of a float as a signed integer."""
    return Op("bitcast", (x,), format_of(x).integer)


def as_float(x: Expr) -> Expr:
    """The float that has these bits."""
    return Op("bitcast", (x,), "float32" if x.dtype == "int32" else "float64")


def fma(a: Expr, b: Number, c: Number) -> Expr:
    """`a * b + c`, rounded once."""
    return op("fma", a, literal(b, a), literal(c, a))


def at_most(x: Expr, limit: float) -> Expr:
    """`x` or the limit, whichever is smaller; NaN stays NaN."""
    return select(x > limit, limit, x)


def at_least(x: Expr, limit: float) -> Expr:
    """`x` or the limit, whichever is larger; NaN stays NaN."""
    return select(x < limit, limit, x)


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Horner's rule; coefficients lowest degree first, at least two."""
    *rest, last = coefficients
    total = literal(last, x)
    for coefficient in reversed(rest):
        total = fma(x, total, coefficient)
    return total


def sign_of(x: Expr) -> Expr:
    """The sign bit of a float, in its place."""
    return bits(x) & format_of(x).sign


def with_sign(magnitude: Expr, sign: Expr) -> Expr:
    """A float whose sign bit is clear, with this sign bit."""
    return as_float(bits(magnitude) | sign)
