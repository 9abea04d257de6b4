"""Quotients by known scales round as divisions do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.ops.core.quantized import GREATEST_SCALE, LEAST_SCALE, quantized_by
from ostinato.program.evaluate import evaluate
from ostinato.program.expr import Access, Expr, Load, Op, constant, walk

X = Load(Access("x", 0, ()), "float32")
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, -3e38], np.float32)


def near_ties(scale: np.float32, dtype: str, zero: int) -> np.ndarray:
    """Floats around those whose quotient lies half-way between two whole numbers."""
    limits = np.iinfo(dtype)
    whole = np.unique(np.linspace(limits.min - zero - 1, limits.max - zero + 1, 600).round())
    with np.errstate(over="ignore"):
        x = ((whole + 0.5) * np.float64(scale)).astype(np.float32)
    found = [SPECIAL, x]
    for towards in (-np.inf, np.inf):
        near = x
        for _ in range(3):
            near = np.nextafter(near, np.float32(towards))
            found.append(near)
    return np.concatenate(found)


def by_division(x: np.ndarray, scale: np.float32, dtype: str, zero: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        whole = np.rint(x / scale) + np.float32(zero)
        whole = np.where(np.isnan(whole), np.float32(limits.min), whole)
    return np.clip(whole, limits.min, limits.max).astype(dtype)


def agree(scale: np.float32, dtype: str, zero: int) -> None:
    x = near_ties(scale, dtype, zero)
    expected = by_division(x, scale, dtype, zero)
    given = constant(scale, "float32"), constant(zero, dtype)
    is_nan = np.isnan(x)
    for point in (given[1], Load(Access("zero", 0, ()), dtype)):

        def leaf(node: Expr) -> np.ndarray:
            return x if node is X else np.array(zero, dtype)

        got = evaluate(quantized_by(X, given[0], point, dtype), leaf)
        np.testing.assert_array_equal(got[~is_nan], expected[~is_nan])
        assert (got[is_nan] == np.iinfo(dtype).min).all()


@pytest.mark.parametrize(("dtype", "products"), [("uint8", 2), ("int8", 2), ("int16", 4)])
def test_quotients_of_bytes_are_corrected_once(dtype, products):
    """Integers of 16 bits have too many ties to look at."""
    found = quantized_by(X, constant(0.0317, "float32"), constant(3, dtype), dtype)
    assert sum(isinstance(e, Op) and e.name == "fma" for e in walk(found)) == products


@pytest.mark.parametrize("scale", [LEAST_SCALE, GREATEST_SCALE, 1e-45, 1e-38, 3e38, 1.0, 1 / 3])
def test_scales_at_the_bounds(scale):
    agree(np.float32(scale), "uint8", 117)


@settings(max_examples=20)
@given(
    st.floats(2.0**-20, 2.0**10, width=32),
    st.sampled_from(["uint8", "int8", "uint16", "int16"]),
    st.data(),
)
def test_scales_of_any_value(scale, dtype, data):
    limits = np.iinfo(dtype)
    agree(np.float32(scale), dtype, data.draw(st.integers(int(limits.min), int(limits.max))))
