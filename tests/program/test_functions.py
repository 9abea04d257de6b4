"""Accuracy of the scalar functions, in units of the last place of the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ostinato.errors import OstinatoError
from ostinato.program.evaluate import evaluate
from ostinato.program.expr import PRIMITIVES, Axis, Index, Op, op, walk
from ostinato.program.functions import ARITY, NAMES, UNARY, define, expand

mpmath = pytest.importorskip("mpmath", reason="references need mpmath")
mp = mpmath.mp.clone()
mp.prec = 240

INF, NAN = math.inf, math.nan


def _sigmoid64(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


@dataclass(frozen=True)
class Record:
    """One function: references in float64 and for mpmath, errors allowed, where it is defined.

    ulp: error allowed in float32 and in float64.
    domain: ends of the interval on which accuracy is promised (in float32, in float64).
    specials: arguments and their exact results, in both dtypes.
    """

    name: str
    float64: Callable
    exact: Callable
    ulp: tuple[float, float]
    domain: tuple[tuple[float, float], tuple[float, float]] = ((-INF, INF), (-INF, INF))
    specials: tuple[tuple[float, float], ...] = ()


def _everywhere(low: float, high: float):
    return ((low, high), (low, high))


PERIODIC = ((-1e5, 1e5), (-1e9, 1e9))
ODD = ((0.0, 0.0), (-0.0, -0.0))
RECORDS = (
    Record(
        "exp",
        np.exp,
        mp.exp,
        (1, 1),
        specials=((0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (1e4, INF)),
    ),
    Record(
        "exp_nonpositive",
        np.exp,
        mp.exp,
        (1, 1),
        _everywhere(-INF, 0),
        ((0, 1), (-0.0, 1), (-INF, 0), (-1e4, 0)),
    ),
    Record(
        "expm1", np.expm1, mp.expm1, (2, 2), specials=(*ODD, (INF, INF), (-INF, -1), (-1e4, -1))
    ),
    Record(
        "sigmoid",
        _sigmoid64,
        lambda x: 1 / (1 + mp.exp(-x)),
        (2.5, 2),
        specials=((0, 0.5), (INF, 1), (-INF, 0), (1e4, 1), (-1e4, 0)),
    ),
    Record("tanh", np.tanh, mp.tanh, (2.5, 2.5), specials=(*ODD, (INF, 1), (-INF, -1), (50, 1))),
    Record(
        "erf",
        np.vectorize(math.erf, otypes="d"),
        mp.erf,
        (1.5, 1.5),
        specials=(*ODD, (INF, 1), (-INF, -1), (30, 1)),
    ),
    Record(
        "softplus",
        lambda x: np.logaddexp(0, x),
        lambda x: mp.log1p(mp.exp(x)),
        (2.5, 2),
        specials=((INF, INF), (-INF, 0), (1e4, 1e4), (-1e4, 0)),
    ),
    Record("sinh", np.sinh, mp.sinh, (2, 2), specials=(*ODD, (INF, INF), (-INF, -INF), (1e4, INF))),
    Record(
        "cosh",
        np.cosh,
        mp.cosh,
        (1.5, 1.5),
        specials=((0, 1), (INF, INF), (-INF, INF), (-1e4, INF)),
    ),
    Record(
        "log",
        np.log,
        mp.log,
        (1.5, 1),
        _everywhere(0, INF),
        ((0, -INF), (-0.0, -INF), (1, 0), (-1, NAN), (INF, INF), (-INF, NAN)),
    ),
    Record(
        "log1p",
        np.log1p,
        mp.log1p,
        (2, 1.5),
        _everywhere(-1, INF),
        (*ODD, (-1, -INF), (-1.5, NAN), (INF, INF), (-INF, NAN)),
    ),
    Record("asinh", np.arcsinh, mp.asinh, (2.5, 2.5), specials=(*ODD, (INF, INF), (-INF, -INF))),
    Record(
        "acosh",
        np.arccosh,
        mp.acosh,
        (2.5, 2.5),
        _everywhere(1, INF),
        ((1, 0), (0.5, NAN), (-2, NAN), (INF, INF), (-INF, NAN)),
    ),
    Record(
        "atanh",
        np.arctanh,
        mp.atanh,
        (2.5, 2.5),
        _everywhere(-1, 1),
        (*ODD, (1, INF), (-1, -INF), (1.5, NAN), (-2, NAN), (INF, NAN), (-INF, NAN)),
    ),
    Record("sin", np.sin, mp.sin, (2, 2), PERIODIC, (*ODD, (INF, NAN), (-INF, NAN))),
    Record("cos", np.cos, mp.cos, (2, 2), PERIODIC, ((0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN))),
    Record("tan", np.tan, mp.tan, (3.5, 3), PERIODIC, (*ODD, (INF, NAN), (-INF, NAN))),
    Record(
        "asin",
        np.arcsin,
        mp.asin,
        (2.5, 2.5),
        _everywhere(-1, 1),
        (*ODD, (1.5, NAN), (-2, NAN), (INF, NAN), (-INF, NAN)),
    ),
    Record(
        "acos",
        np.arccos,
        mp.acos,
        (1.5, 1.5),
        _everywhere(-1, 1),
        ((1, 0), (1.5, NAN), (-2, NAN), (INF, NAN), (-INF, NAN)),
    ),
    Record("atan", np.arctan, mp.atan, (2, 2), specials=ODD),
)


def call(name: str, *args: np.ndarray) -> np.ndarray:
    leaves = [Index(Axis(f"argument{i}", 1), arg.dtype.name) for i, arg in enumerate(args)]
    return evaluate(op(name, *leaves), lambda leaf: args[leaves.index(leaf)])


def ulps(got: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """|got - correct| in units of the last place of `correct`, which has float64 precision."""
    form = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.clip(np.abs(correct), float(form.tiny), float(form.max))))
        error = np.abs(got - correct) / np.exp2(exponent - form.nmant)
        # A correct result that rounds to infinity.
        overflow = np.isinf(got) & (np.abs(correct) > float(form.max)) & (got * correct > 0)
    same = (got == correct) | overflow | (np.isnan(got) & np.isnan(correct))
    return np.where(same, 0, np.where(np.isnan(error), INF, error))


def sweep32(low: float, high: float) -> np.ndarray:
    """All exponents and mantissas of both signs in strides, and the usual range more densely."""
    positive = np.arange(0, 0x7F800000, 9973, dtype=np.uint32).view(np.float32)
    dense = np.linspace(-110, 110, 40001, dtype=np.float32)
    near = np.linspace(-1.6, 1.6, 20001, dtype=np.float32)
    x = np.concatenate([positive, -positive, dense, near])
    return x[(x >= low) & (x <= high)]


def sample64(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(7)
    powers = np.exp2(rng.uniform(-1074, 1023, 400)) * rng.choice([-1, 1], 400)
    parts = [rng.uniform(-r, r, 500) for r in (1.2, 10, 750, 1e9)]
    x = np.concatenate([powers, *parts, rng.uniform(0.5, 2, 200), np.pi / 2 * np.arange(1, 200)])
    return x[(x >= low) & (x <= high)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_error_in_float32(record):
    x = sweep32(*record.domain[0])
    with np.errstate(all="ignore"):
        correct = record.float64(x.astype(np.float64))
    got = call(record.name, x)
    error = ulps(got, correct)
    worst = error.argmax()
    assert error[worst] <= record.ulp[0], f"{record.name}({x[worst]!r}) is {got[worst]!r}"
    visible = np.abs(correct) > np.finfo(np.float32).tiny
    assert (np.signbit(got) == np.signbit(correct))[visible].all()


def _error64(got: float, exact) -> float:
    if not math.isfinite(got):
        return 0 if abs(exact) >= mp.mpf(np.finfo(np.float64).max) and got * exact > 0 else INF
    _, exponent = mp.frexp(exact)
    return float(abs(mp.mpf(got) - exact) / mp.ldexp(1, max(exponent - 53, -1074)))


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_error_in_float64(record):
    x = sample64(*record.domain[1])
    if record.name == "erf":
        x = x[np.abs(x) < 100]
    assert len(x) > 400
    got = call(record.name, x)
    errors = [
        _error64(float(g), record.exact(mp.mpf(float(v)))) for v, g in zip(x, got, strict=True)
    ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= record.ulp[1], f"{record.name}({x[worst]!r}) is {got[worst]!r}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_special_values(record, dtype):
    x, expected = np.array([*record.specials, (NAN, NAN)], dtype).T
    got = call(record.name, x)
    np.testing.assert_array_equal(got, expected)
    zero = expected == 0
    assert (np.signbit(got) == np.signbit(expected))[zero].all()


def test_every_function_has_a_record():
    assert {record.name for record in RECORDS} == set(UNARY)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_of_huge_arguments_is_bounded(name):
    x = np.float32([1e6, 1e9, 1e20, 3e38, -1e9, -3e38])
    assert (np.abs(call(name, x)) <= 1).all()
    assert (np.abs(call(name, x.astype(np.float64))) <= 1).all()


def test_exp_underflows_gradually():
    x = np.linspace(-103.9, -87.4, 1001, dtype=np.float32)
    got = call("exp", x)
    assert (got > 0).all() and (got < np.finfo(np.float32).tiny).mean() > 0.9
    assert call("exp", np.float64([-745.13]))[0] == 5e-324


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exp_nonpositive_has_the_bits_of_exp(dtype):
    x = np.concatenate([-np.geomspace(1e-9, 1e9, 100_001), np.linspace(-760, 0, 100_001)])
    x = np.append(x, [-INF, -0.0, 0]).astype(dtype)
    np.testing.assert_array_equal(call("exp_nonpositive", x), call("exp", x))


def test_sigmoid_of_very_negative_arguments_is_subnormal():
    assert ulps(call("sigmoid", np.float32([-103.0])), np.exp(np.float64([-103.0])))[0] <= 0.5


SPECIAL = [0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, INF, -INF, NAN,
           1e-45, -1e-45, 3e38, -3e38, 16777215, 16777216, -16777215]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pow_special_values_are_those_of_c99(dtype):
    x, y = (grid.ravel() for grid in np.meshgrid(*2 * [np.array(SPECIAL, dtype)]))
    with np.errstate(all="ignore"):
        correct = np.power(x.astype(np.float64), y.astype(np.float64))
        rounded = correct.astype(dtype)
    got = call("pow", x, y)
    extreme = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(got[extreme], rounded[extreme])
    assert (np.signbit(got) == np.signbit(rounded))[~np.isnan(rounded)].all()
    assert ulps(got, correct).max() <= 2


def test_pow_error_in_float32():
    rng = np.random.default_rng(1)
    x = np.exp2(rng.uniform(-149, 128, 200_000)).astype(np.float32)
    x[:50_000] = rng.uniform(0.5, 2, 50_000)
    limit = 150 / np.maximum(np.abs(np.log2(x.astype(np.float64))), 0.05)
    y = (rng.uniform(-1, 1, x.size) * limit).astype(np.float32)
    with np.errstate(all="ignore"):
        correct = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps(call("pow", x, y), correct).max() <= 1.5


def test_pow_error_in_float64():
    rng = np.random.default_rng(1)
    x = np.concatenate([np.exp2(rng.uniform(-1074, 1023, 1000)), rng.uniform(0.5, 2, 1000)])
    y = rng.uniform(-1, 1, x.size) * 1080 / np.maximum(np.abs(np.log2(x)), 0.01)
    got = call("pow", x, y)
    errors = [
        _error64(float(g), mp.power(mp.mpf(float(a)), mp.mpf(float(b))))
        for g, a, b in zip(got, x, y, strict=True)
    ]
    assert max(errors) <= 1.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_integer_powers_are_exact(dtype):
    x, y = (g.ravel().astype(dtype) for g in np.meshgrid(np.arange(1, 300), np.arange(8)))
    exact = [int(a) ** int(b) for a, b in zip(x, y, strict=True)]
    fits = np.array([value < 2 ** (np.finfo(dtype).nmant + 1) for value in exact])
    expected = np.array([float(value) for value in exact])[fits]
    np.testing.assert_array_equal(call("pow", x, y)[fits], expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "reference"), [("fmod", np.fmod), ("floor_mod", np.mod)])
def test_remainders_have_the_bits_of_the_c_library(name, reference, dtype):
    rng, form = np.random.default_rng(1), np.finfo(dtype)
    edges = [form.tiny, form.max, -form.max, form.smallest_subnormal, 3 * form.smallest_subnormal]
    special = np.array([*SPECIAL, *edges], dtype)
    grid = [side.ravel() for side in np.meshgrid(special, special)]
    # Floats of all exponents: half of the quotients have hundreds of bits, or thousands.
    integer = np.dtype(f"uint{form.bits}")
    bits = rng.integers(0, np.iinfo(integer).max, (2, 5000), integer, endpoint=True).view(dtype)
    near = (rng.standard_normal((2, 5000)) * [[100], [1]]).astype(dtype)
    whole = near[1] * rng.integers(-999, 999, 5000).astype(dtype)
    x = np.concatenate([grid[0], bits[0], near[0], whole])
    y = np.concatenate([grid[1], bits[1], near[1], near[1]])
    with np.errstate(all="ignore"):
        expected = reference(x, y)
    got = call(name, x, y)
    np.testing.assert_array_equal(got, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[is_number], np.signbit(expected)[is_number])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(NAMES))
def test_definitions_are_made_of_primitives(name, dtype):
    args = tuple(Index(Axis(f"a{i}", 1), dtype) for i in range(ARITY[name]))
    used = {node.name for node in walk(define(name, args, dtype)) if isinstance(node, Op)}
    assert used <= PRIMITIVES
    assert "fma" in used


def test_each_argument_is_computed_once():
    x = Index(Axis("x", 1), "float32")
    inner = op("exp", x)
    tree = expand(op("tanh", inner))
    assert sum(node is expand(inner) for node in walk(tree)) == 1


@pytest.mark.parametrize(
    ("name", "most"), [("exp", 21), ("exp_nonpositive", 14), ("sigmoid", 18), ("tanh", 22)]
)
def test_activations_stay_short_and_divide_at_most_once(name, most):
    x = Index(Axis("x", 1), "float32")
    nodes = [n.name for n in walk(define(name, (x,), "float32")) if isinstance(n, Op)]
    assert nodes.count("div") <= 1
    assert len([n for n in nodes if n != "bitcast"]) <= most


def test_refusals():
    x = Index(Axis("x", 1), "int32")
    with pytest.raises(OstinatoError, match="'exp' takes float32 or float64, not int32"):
        define("exp", (x,), "int32")
    with pytest.raises(OstinatoError, match="no function 'exq' of 1 arguments"):
        define("exq", (Index(Axis("x", 1), "float32"),), "float32")
