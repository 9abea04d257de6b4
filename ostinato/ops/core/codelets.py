"""Complex arithmetic on scalar expressions, and discrete Fourier transforms of a few values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.program.expr import Expr, constant, dtype_of, op
from ostinato.records import dataclass

# The primes that codelets are written for.
PRIMES = (2, 3, 5, 7, 11, 13)


@dataclass(frozen=True)
class Complex:
    """A complex number; a part that is None is zero."""

    re: Expr | None
    im: Expr | None

    def __add__(self, other: Complex) -> Complex:
        return Complex(_add(self.re, other.re), _add(self.im, other.im))

    def __sub__(self, other: Complex) -> Complex:
        return Complex(_sub(self.re, other.re), _sub(self.im, other.im))

    def __mul__(self, other: Complex) -> Complex:
        re = _fma(self.re, other.re, _neg(_mul(self.im, other.im)))
        return Complex(re, _fma(self.re, other.im, _mul(self.im, other.re)))

    def conjugate(self) -> Complex:
        """The number mirrored at the real axis."""
        return Complex(self.re, _neg(self.im))

    def turned(self) -> Complex:
        """The number times -i."""
        return Complex(self.im, _neg(self.re))

    def real(self) -> Complex:
        """The real part alone."""
        return Complex(self.re, None)

    def weighted(self, weight: Complex) -> Complex:
        """Each part times the same part of the weight."""
        return Complex(_mul(self.re, weight.re), _mul(self.im, weight.im))

    def scaled(self, factor: float) -> Complex:
        """Both parts times a real number."""
        return Complex(_times(self.re, factor), _times(self.im, factor))


def _add(a: Expr | None, b: Expr | None) -> Expr | None:
    return a + b if a and b else a or b


def _sub(a: Expr | None, b: Expr | None) -> Expr | None:
    return a - b if a and b else a or _neg(b)


def _neg(a: Expr | None) -> Expr | None:
    return a and -a


def _mul(a: Expr | None, b: Expr | None) -> Expr | None:
    return a * b if a and b else None


def _fma(a: Expr | None, b: Expr | None, c: Expr | None) -> Expr | None:
    return op("fma", a, b, c) if a and b and c else _add(_mul(a, b), c)


def _times(a: Expr | None, factor: float) -> Expr | None:
    return a and a * _rounded(factor, dtype_of(a))


def _rounded(value: float, dtype: str) -> Expr:
    return constant(np.dtype(dtype).type(value), dtype)


def roots(numerators: np.ndarray, n: int) -> np.ndarray:
    """exp(-2 pi i k / n), each part correct to the last bit but one, multiples of n / 8 exactly."""
    k = np.asarray(numerators) % n
    # Angles within an eighth turn of 0, so that the symmetries hold exactly.
    quarter, rest = np.divmod(8 * k + n, 2 * n)
    angle = (rest - n) * (np.pi / (4 * n))
    turned = np.array([1, -1j, -1, 1j])[quarter % 4]
    turns: np.ndarray = (np.cos(angle) - 1j * np.sin(angle)) * turned
    return turns


def codelet(x: Sequence[Complex], dtype: str) -> list[Complex]:
    """The transform of a few values, one expression for each part of a result."""
    n = len(x)
    if n == 1:
        return list(x)
    radix = _radix(n, real=all(value.im is None for value in x))
    if radix == n:
        return [x[0] + x[1], x[0] - x[1]] if n == 2 else _prime(x, dtype)
    m = n // radix
    result = [Complex(None, None)] * n
    columns: list[list[Complex]] = [[] for _ in range(radix)]
    for p in range(m):
        inner = codelet(x[p::m], dtype)
        for j, value in enumerate(inner):
            columns[j].append(_rotated(value, p * j, n, dtype))
    for j, column in enumerate(columns):
        result[j::radix] = codelet(column, dtype)
    return result


def _radix(n: int, real: bool) -> int:
    """The radix of a codelet's first stage.

    Odd ones first for real values: what the middle of the transform is made of is then real, and
    the result there as well. Else even ones first, as numpy.fft has it: errors look alike.
    """
    evens = [4, 2] if n != 4 else [2]
    order = [*PRIMES[1:], *evens] if real else [*evens, *PRIMES[1:]]
    return next(radix for radix in order if n % radix == 0)


def _rotated(value: Complex, k: int, n: int, dtype: str) -> Complex:
    """The value times exp(-2 pi i k / n); quarter turns cost nothing."""
    quarter, rest = divmod(4 * (k % n), n)
    for _ in range(quarter):
        value = value.turned()
    if rest == 0:
        return value
    if 2 * rest == n:
        return (value + value.turned()).scaled(float(np.sqrt(0.5)))
    root = complex(roots(np.asarray(rest), 4 * n))
    return value * Complex(_rounded(root.real, dtype), _rounded(root.imag, dtype))


def _prime(x: Sequence[Complex], dtype: str) -> list[Complex]:
    """An odd number of values: cosines multiply the sums, and sines the differences, of pairs."""
    n, half = len(x), len(x) // 2
    sums = [x[j] + x[n - j] for j in range(1, half + 1)]
    differences = [(x[j] - x[n - j]).turned() for j in range(1, half + 1)]
    result = [x[0]] * n
    for total in sums:
        result[0] = result[0] + total
    for k in range(1, half + 1):
        even, odd = x[0], Complex(None, None)
        for j in range(1, half + 1):
            root = complex(roots(np.asarray(j * k), n))
            even = _accumulated(even, sums[j - 1], root.real, dtype)
            odd = _accumulated(odd, differences[j - 1], -root.imag, dtype)
        result[k], result[n - k] = even + odd, even - odd
    return result


def _accumulated(total: Complex, value: Complex, factor: float, dtype: str) -> Complex:
    by = _rounded(factor, dtype)
    return Complex(_fma(value.re, by, total.re), _fma(value.im, by, total.im))
