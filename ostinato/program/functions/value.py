"""Expressions written with Python operators, and the constants of the two float formats."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ostinato.program.expr import FLOATS, Expr, Op, constant, dtype_of, op
from ostinato.records import dataclass


@dataclass(frozen=True)
class Format:
    """An IEEE 754 binary format: what the algorithms need to take numbers apart.

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

Number: TypeAlias = "Value | float"


@dataclass(frozen=True, eq=False)
class Value:
    """An expression that can be written with operators; numbers become constants of its dtype."""

    expr: Expr

    @property
    def dtype(self) -> str:
        return dtype_of(self.expr)

    @property
    def form(self) -> Format:
        """The format of a float value."""
        return _FORMATS[self.dtype]

    def lift(self, other: Number) -> Expr:
        """A number as a constant of this dtype, rounded to nearest."""
        if isinstance(other, Value):
            return other.expr
        exact = float(np.dtype(self.dtype).type(other)) if self.dtype in FLOATS else other
        return constant(exact, self.dtype)

    def number(self, value: float) -> Value:
        """A number as a value of this dtype."""
        return Value(self.lift(value))

    def _op(self, name: str, *others: Number) -> Value:
        return Value(op(name, self.expr, *map(self.lift, others)))

    def __add__(self, other: Number) -> Value:
        return self._op("add", other)

    def __radd__(self, other: float) -> Value:
        return self.number(other)._op("add", self)

    def __sub__(self, other: Number) -> Value:
        return self._op("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self.number(other)._op("sub", self)

    def __mul__(self, other: Number) -> Value:
        return self._op("mul", other)

    def __rmul__(self, other: float) -> Value:
        return self.number(other)._op("mul", self)

    def __truediv__(self, other: Number) -> Value:
        return self._op("div", other)

    def __rtruediv__(self, other: float) -> Value:
        return self.number(other)._op("div", self)

    def __neg__(self) -> Value:
        return self._op("neg")

    def __abs__(self) -> Value:
        return self._op("abs")

    def __lt__(self, other: Number) -> Value:
        return self._op("lt", other)

    def __le__(self, other: Number) -> Value:
        return self._op("le", other)

    def __gt__(self, other: Number) -> Value:
        return self._op("gt", other)

    def __ge__(self, other: Number) -> Value:
        return self._op("ge", other)

    def equals(self, other: Number) -> Value:
        """`self == other`; false where either is NaN."""
        return self._op("eq", other)

    def differs(self, other: Number) -> Value:
        """`self != other`; true where either is NaN."""
        return self._op("ne", other)

    def __and__(self, other: Number) -> Value:
        return self._op("and", other)

    def __or__(self, other: Number) -> Value:
        return self._op("or", other)

    def __xor__(self, other: Number) -> Value:
        return self._op("xor", other)

    def __invert__(self) -> Value:
        return self._op("not")

    def __lshift__(self, count: int) -> Value:
        return self._op("shl", count)

    def sqrt(self) -> Value:
        """The square root, correctly rounded."""
        return self._op("sqrt")

    def floor(self) -> Value:
        """The largest integer not above."""
        return self._op("floor")

    def bits(self) -> Value:
        """The representation of a float as a signed integer."""
        return Value(Op("bitcast", (self.expr,), self.form.integer))

    def as_float(self) -> Value:
        """The float that has these bits."""
        dtype = "float32" if self.dtype == "int32" else "float64"
        return Value(Op("bitcast", (self.expr,), dtype))


def fma(a: Value, b: Number, c: Number) -> Value:
    """`a * b + c`, rounded once."""
    return Value(op("fma", a.expr, a.lift(b), a.lift(c)))


def select(condition: Value, yes: Number, no: Number) -> Value:
    """`yes` where the condition holds, else `no`; at least one of them is a `Value`."""
    kind = yes if isinstance(yes, Value) else no
    assert isinstance(kind, Value)
    return Value(op("select", condition.expr, kind.lift(yes), kind.lift(no)))


def at_most(x: Value, limit: float) -> Value:
    """`x` or the limit, whichever is smaller; NaN stays NaN."""
    return select(x > limit, limit, x)


def at_least(x: Value, limit: float) -> Value:
    """`x` or the limit, whichever is larger; NaN stays NaN."""
    return select(x < limit, limit, x)


def polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    """Horner's rule; coefficients lowest degree first, at least two."""
    *rest, last = coefficients
    total = x.number(last)
    for coefficient in reversed(rest):
        total = fma(x, total, coefficient)
    return total


def sign_of(x: Value) -> Value:
    """The sign bit of a float, in its place."""
    return x.bits() & x.form.sign


def with_sign(magnitude: Value, sign: Value) -> Value:
    """A float whose sign bit is clear, with this sign bit."""
    return (magnitude.bits() | sign).as_float()
