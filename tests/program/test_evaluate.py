"""Primitives against independent exact arithmetic: Python integers and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ostinato.errors import OstinatoError
from ostinato.program.evaluate import OPERATIONS, evaluate
from ostinato.program.expr import FLOATS, INTEGERS, PRIMITIVES, Axis, Cast, Index, Op, constant, op

INF, NAN = math.inf, math.nan
EDGES = {name: (np.iinfo(name).min, np.iinfo(name).max) for name in INTEGERS}


def leaf(number: int, dtype: str) -> Index:
    return Index(Axis(f"argument{number}", 1), dtype)


def apply(name: str, *args: np.ndarray, dtype: str | None = None) -> np.ndarray:
    leaves = [leaf(i, arg.dtype.name) for i, arg in enumerate(args)]
    return evaluate(op(name, *leaves, dtype=dtype), lambda node: args[leaves.index(node)])


def cast(value: np.ndarray, dtype: str) -> np.ndarray:
    return evaluate(Cast(leaf(0, value.dtype.name), dtype), lambda _: value)


def same(got: np.ndarray, expected) -> None:
    """Equal bits, except that all NaNs are alike."""
    expected = np.asarray(expected, got.dtype)
    np.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f":
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


def test_every_primitive_has_a_meaning():
    assert set(OPERATIONS) | {"bitcast"} == PRIMITIVES


def test_unknown_operation_is_refused():
    with pytest.raises(OstinatoError, match="unknown operation 'frobnicate'"):
        apply("frobnicate", np.ones(1, np.float32))


def wrap(value: int, dtype: str) -> int:
    low, high = EDGES[dtype]
    return (value - low) % (high - low + 1) + low


def _truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _truncated,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "larger": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_OPERATIONS)
def test_integers_wrap(name, dtype):
    low, high = EDGES[dtype]
    values = sorted({low, low + 1, high, high - 1, wrap(-7, dtype), wrap(-1, dtype), 0, 1, 2, 7})
    pairs = [(a, b) for a in values for b in values]
    expected = [wrap(INTEGER_OPERATIONS[name](a, b), dtype) for a, b in pairs]
    a, b = np.array(pairs, dtype).T
    same(apply(name, a, b), np.array(expected, dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_are_logical_and_drop_everything_beyond_the_width(dtype):
    bits = 8 * np.dtype(dtype).itemsize
    low, high = EDGES[dtype]
    pairs = [(v, c) for v in (low, high, 1, 5) for c in (0, 1, bits - 1, bits, bits + 1, high)]
    a, count = np.array(pairs, dtype).T
    left = [wrap(v << c, dtype) if c < bits else 0 for v, c in pairs]
    right = [wrap((v % 2**bits) >> c, dtype) if c < bits else 0 for v, c in pairs]
    same(apply("shl", a, count), left)
    same(apply("shr", a, count), right)


def test_negative_shift_counts_are_beyond_the_width():
    same(apply("shl", np.int32([1]), np.int32([-1])), [0])
    same(apply("shr", np.int32([-1]), np.int32([-31])), [0])


@pytest.mark.parametrize(
    ("name", "left", "right"), [("dot", "4u1", "4i1"), ("dot_pairs", "2i2", "2i2")]
)
def test_dots_multiply_the_parts_of_words(name, left, right):
    words = [0, 1, -1, 0x7F80FF01, -0x7F7F7F80, 0x7FFF8000, 0x12345678, -(2**31), 2**31 - 1]
    a, b, total = np.array([(a, b, c) for a in words for b in words for c in words[:4]], np.int32).T
    products = [
        sum(int(x) * int(y) for x, y in zip(p.view(left), q.view(right), strict=True))
        for p, q in zip(a, b, strict=True)
    ]
    expected = [wrap(int(c) + n, "int32") for c, n in zip(total, products, strict=True)]
    same(apply(name, a, b, total), expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_signed_negation_wraps(dtype):
    low, high = EDGES[dtype]
    x = np.array([low, -1, 0, high], dtype)
    same(apply("neg", x), [low, 1, 0, -high])
    same(apply("abs", x), [low, 1, 0, high])
    same(apply("not", x), [high, 0, -1, low])


def test_not_of_bool_is_logical():
    same(apply("not", np.array([True, False])), [False, True])


@pytest.mark.parametrize("dtype", FLOATS)
def test_minimum_and_maximum_of_zeros_and_nans(dtype):
    pairs = [(0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0), (NAN, 1), (1, NAN), (INF, -INF), (2, 3)]
    a, b = np.array(pairs, dtype).T
    same(apply("min", a, b), [-0.0, -0.0, -0.0, NAN, NAN, -INF, 2])
    same(apply("max", a, b), [0.0, 0.0, -0.0, NAN, NAN, INF, 3])
    same(apply("larger", a, b), [0.0, -0.0, -0.0, NAN, 1, INF, 3])


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_to_integers(dtype):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.7, -2.7, -0.0, INF, NAN], dtype)
    same(apply("rint", x), [0, 2, 2, -0.0, -2, 3, -3, -0.0, INF, NAN])
    same(apply("floor", x), [0, 1, 2, -1, -2, 2, -3, -0.0, INF, NAN])
    same(apply("ceil", x), [1, 2, 3, -0.0, -1, 3, -2, -0.0, INF, NAN])
    same(apply("trunc", x), [0, 1, 2, -0.0, -1, 2, -2, -0.0, INF, NAN])


@pytest.mark.parametrize("dtype", FLOATS)
def test_comparisons_with_nan(dtype):
    a, b = np.array([NAN, 1], dtype), np.array([NAN, 1], dtype)
    expected = {"eq": 1, "ne": 0, "lt": 0, "le": 1, "gt": 0, "ge": 1}
    for name, equal in expected.items():
        same(apply(name, a, b), [name == "ne", equal])


def test_bitcast():
    same(apply("bitcast", np.float32([1, -0.0]), dtype="int32"), [0x3F800000, -(2**31)])
    same(apply("bitcast", np.int64([0x3FF0000000000000]), dtype="float64"), [1.0])


def test_select_does_not_promote():
    got = apply("select", np.array([True, False]), np.float32([1, 2]), np.float32([3, 4]))
    assert got.dtype == np.float32
    same(got, [1, 4])


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_float_to_integer_saturates(source, target):
    low, high = EDGES[target]
    inside = [0.0, -0.0, 1.9, 100.5]
    inside += [] if low == 0 else [-1.9, -100.5]
    x = np.array([*inside, NAN, INF, -INF, 1e30, -1e30, float(high), float(low)], source)
    expected = [int(v) for v in inside] + [0, high, low, high, low]
    expected += [min(int(x[-2]), high), low]
    same(cast(x, target), np.array(expected, target))


def test_float_to_integer_at_the_limit():
    below = np.nextafter(np.float32(2**31), np.float32(0))
    same(cast(np.float32([2**31, below, -(2**31)]), "int32"), [2**31 - 1, int(below), -(2**31)])
    same(cast(np.float64([2**31 - 0.5, -(2**31) - 0.5]), "int32"), [2**31 - 1, -(2**31)])
    same(cast(np.float32([-0.9]), "uint8"), [0])


def test_integer_to_float_rounds_once_to_nearest_even():
    values = np.int64([2**24 + 1, 2**24 + 3, 2**62 + 1, -(2**63)])
    same(cast(values, "float32"), [2**24, 2**24 + 4, 2**62, -(2**63)])
    # Rounding to float64 first would give a tie, and then the even neighbour below.
    same(cast(np.int64([2**60 + 2**36 + 1]), "float32"), [2**60 + 2**37])


def test_other_conversions():
    same(cast(np.int32([300, -1]), "uint8"), [44, 255])
    same(cast(np.float32([0, -0.0, NAN, 0.1]), "bool"), [False, False, True, True])
    same(cast(np.array([True, False]), "float32"), [1, 0])
    same(cast(np.float64([1e300, 1 + 2**-24]), "float32"), [INF, 1])
    same(cast(np.int32([0, 256]), "bool"), [False, True])


def exact_fma(a: float, b: float, c: float, dtype: str) -> float:
    """Rational arithmetic, rounded once by comparing with both neighbours."""
    if not all(map(math.isfinite, (a, b, c))) or a == 0 or b == 0:
        with np.errstate(all="ignore"):
            product = np.float64(a) * np.float64(b)
            return float(
                c if math.isfinite(a) and math.isfinite(b) and not math.isfinite(c) else product + c
            )
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        return 0.0
    form = np.finfo(dtype)
    exponent = max(math.floor(_log2(abs(total))), int(form.minexp))
    unit = Fraction(2) ** (exponent - form.nmant)
    rounded = round(total / unit) * unit
    if abs(rounded) > Fraction(float(form.max)):
        return math.copysign(INF, 1 if total > 0 else -1)
    return float(rounded) if rounded else math.copysign(0.0, 1 if total > 0 else -1)


def _log2(value: Fraction) -> int:
    """The exponent of the largest power of two that is not above."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def _check_fma(a, b, c):
    dtype = a.dtype.name
    expected = [exact_fma(*map(float, v), dtype) for v in zip(a, b, c, strict=True)]
    same(apply("fma", a, b, c), np.array(expected, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_is_exactly_rounded(dtype):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 4000)).astype(dtype)
    c = rng.standard_normal(4000).astype(dtype) * np.exp2(rng.integers(-60, 60, 4000)).astype(dtype)
    c[:1000] = -(a * b)[:1000]
    c[1000:2000] = (a * b)[1000:2000] * np.array(2.0**25 if dtype == "float32" else 2.0**54, dtype)
    _check_fma(a, b, c)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_rounds_ties_by_what_is_far_below(dtype):
    # a * b is half a unit of c, a trifle more or a trifle less: two roundings would not see which.
    digits = np.finfo(dtype).nmant
    trifle = 2.0 ** -((digits + 7) // 2)
    a = np.array([1 + trifle, -1 - trifle, 1, 1 + 32 * trifle, 1 - 32 * trifle, 1], dtype)
    b = np.full(6, 2.0 ** -(digits + 1), dtype)
    b[:2] *= np.array(1 - trifle, dtype)
    odd = 1 + 2.0**-digits
    for c in ([odd, odd, 1, 1, 1, odd], [1, 1, odd, odd, odd, 1]):
        _check_fma(a, b, np.array(c, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_rounds_ties_below_the_smallest_normal_number(dtype):
    form = np.finfo(dtype)
    half = int(form.minexp) - form.nmant - 1
    a = np.array([1 + form.eps, -1 - form.eps, 1, -1], dtype) * np.array(2.0 ** (half // 2), dtype)
    b = np.array([1 - form.eps, 1 - form.eps, 1, 1], dtype) * np.array(2.0 ** -(-half // 2), dtype)
    for number in (2**form.nmant - 1, 2**form.nmant - 2, 5, 4):
        c = np.full(4, number, dtype) * form.smallest_subnormal
        _check_fma(a, b, c)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_of_extreme_exponents(dtype):
    form = np.finfo(dtype)
    rng = np.random.default_rng(4)
    low, high = int(form.minexp) - form.nmant, int(form.maxexp)
    a, b, c = np.exp2(rng.uniform(low, high, (3, 3000))).astype(dtype)
    b[:1500] = (np.exp2(rng.uniform(low - 2, low + 60, 1500)) / a[:1500]).astype(dtype)
    c[:1500] = np.exp2(rng.uniform(low, low + 60, 1500)).astype(dtype)
    signs = rng.choice(np.array([-1, 1], dtype), (3, 3000))
    _check_fma(a * signs[0], b * signs[1], c * signs[2])


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_of_special_values(dtype):
    largest, smallest = float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal)
    values = [0.0, -0.0, 1, -1, INF, -INF, NAN, largest, -largest, smallest, -smallest]
    a, b, c = (g.ravel() for g in np.meshgrid(*3 * [np.array(values, dtype)]))
    _check_fma(a, b, c)


def test_numbers_are_not_promoted():
    x = leaf(0, "float32")
    root = op("mul", op("add", x, constant(0.5, "float32")), constant(3.0, "float32"))
    assert evaluate(root, lambda _: np.ones((2, 3), np.float32)).dtype == np.float32


def test_arguments_broadcast_and_are_evaluated_once():
    calls = []
    x, y = leaf(0, "int64"), leaf(1, "int64")

    def value(node):
        calls.append(node)
        return np.arange(3).reshape(3, 1) if node is x else np.arange(2).reshape(1, 2)

    total = op("add", op("mul", x, y), op("sub", x, y))
    np.testing.assert_array_equal(evaluate(total, value), [[0, -1], [1, 1], [2, 3]])
    assert sorted(calls, key=str) == sorted([x, y], key=str)


def test_functions_are_expanded():
    x = leaf(0, "float32")
    assert evaluate(Op("sigmoid", (x,), "float32"), lambda _: np.float32([0]))[0] == 0.5
