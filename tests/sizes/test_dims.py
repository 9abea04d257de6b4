from __future__ import annotations

from itertools import product as cartesian

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sizes.conditions import choose, is_different, is_equal
from ostinato.sizes.dims import (
    Size,
    computed,
    exact_quotient,
    floordiv,
    is_at_most,
    is_nonnegative,
    is_signed,
    least,
    maximum,
    minimum,
    primitive,
    symbol,
    symbols,
    wrap,
)
from ostinato.sizes.substitution import evaluate, substitute, upper

N, V, W = symbol("N"), symbol("v", signed=True), symbol("w", signed=True)
NUMBERS = (-7, -1, 0, 1, 2, 9)


def test_signed_symbols_may_be_negative() -> None:
    assert is_nonnegative(N) and not is_nonnegative(V) and not is_nonnegative(N * V)
    assert is_nonnegative(maximum(V, 0)) and is_nonnegative(is_equal(V, W))
    assert is_nonnegative(is_different(V, W)) and not is_nonnegative(minimum(V, N))


def test_is_at_most_says_what_the_difference_says() -> None:
    sizes = [0, 1, -3, N, V, N + 1, 2 * N, N * V, maximum(V, 2), N // 2, N * N + 4]
    sizes += [floordiv(N - 1, 2), (floordiv(N - 1, 2) + 3) * (N + 2), N * floordiv(N - 1, 2)]
    for left, right in cartesian(sizes, sizes):
        assert is_at_most(left, right) is is_nonnegative(right - left), (left, right)
    assert is_signed(N + maximum(V, 0)) and not is_signed(N * N + 1)


@pytest.mark.parametrize(
    ("size", "low"),
    [
        (floordiv(N - 2, 2) + 1, 0),
        (floordiv(floordiv(N - 2, 2) - 1, 2) + 2, 1),
        (3 * floordiv(N - 5, 2), -9),
        (floordiv(N - 7, N + 1), -7),
        (maximum(N - 3, V), -3),
        (minimum(N + 1, floordiv(N - 4, 3)), -2),
        (floordiv(N, 2) * floordiv(N, 3) + 2, 2),
        (floordiv(N - 2, 2) * N, None),
        ((floordiv(N - 1, 2) + 3) * (floordiv(N - 2, 2) + 4), 6),
        ((floordiv(N - 1, 2) + 1) * N - N, None),
        ((floordiv(N - 1, 2) + 2) * N - N + 3, 3),
        ((floordiv(N - 1, 2) + 3) * V, None),
        (floordiv(N, V), None),
        (minimum(N, V), None),
        (2 - N, None),
    ],
    ids=str,
)
def test_sizes_are_never_below_their_least(size: Size, low: int | None) -> None:
    assert least(size) == low
    for n, v in cartesian(range(20), NUMBERS):
        assert low is None or evaluate(size, {"N": n, "v": v}) >= low


def test_substitution_keeps_the_sign() -> None:
    assert substitute(V + N, {"N": W}) == V + W
    assert is_signed(substitute(V, {}))


COUNT, OTHER = symbol("count", computed=True), symbol("other", computed=True)
BOUNDS = {"count": N, "other": 4}


@pytest.mark.parametrize(
    "size",
    [
        COUNT,
        COUNT * OTHER + 3,
        N - COUNT,
        COUNT * N - OTHER * 2,
        floordiv(COUNT + 2, 3),
        minimum(COUNT, V),
        maximum(N - COUNT, OTHER - COUNT),
        choose(is_equal(COUNT, 1), OTHER, COUNT),
        is_different(COUNT, 1) * OTHER,
        COUNT * V,
        COUNT * OTHER * V - COUNT * floordiv(N - 2, 2) + COUNT,
    ],
)
def test_bounds_hold_for_all_computed_sizes(size: Size) -> None:
    bound = upper(size, BOUNDS)
    assert bound is not None and not computed(bound)
    for n, v in cartesian((0, 1, 5), (-3, 2)):
        most = evaluate(bound, {"N": n, "v": v})
        for count, other in cartesian(range(n + 1), range(5)):
            values = {"N": n, "v": v, "count": count, "other": other}
            assert evaluate(size, values) <= most, values


def test_what_has_no_bound_says_so() -> None:
    assert upper(COUNT * V, BOUNDS) == maximum(V, 0) * N
    assert upper(floordiv(COUNT, V), BOUNDS) is None
    assert upper(maximum(floordiv(COUNT, V), COUNT), BOUNDS) is None
    assert upper(COUNT, BOUNDS) == N and upper(V - N, BOUNDS) == V - N


def test_sizes_as_deep_as_a_model_take_linear_time() -> None:
    size = N
    for _ in range(3000):
        size = floordiv(size - 3, 2) + floordiv(size, 3)
    assert is_nonnegative(size) is False and not is_signed(size)
    assert len(str(size)) < 2000 and set(symbols(size)) == {"N"}
    expected = value = 10**9
    for _ in range(3000):
        expected = (expected - 3) // 2 + expected // 3
    assert evaluate(size, {"N": value}) == expected
    assert substitute(size, {"N": N}) is size


def test_quotients_of_sizes_with_several_terms():
    batch, rows = symbol("B"), floordiv(symbol("T") - 10, 5) + 1
    assert exact_quotient(batch * rows * 512, rows) == batch * 512
    assert exact_quotient((batch + 3) * rows, rows) == batch + 3
    assert exact_quotient(batch * rows * 512 + 1, rows) is None
    assert exact_quotient(rows * 3, rows * 2) is None


def test_integers_of_few_bits_wrap() -> None:
    for number in (-129, -128, 127, 128, 300, 2**40 + 5):
        assert wrap(number, 256) == int(np.array(number).astype(np.int8))
        assert evaluate(wrap(N + V, 256), {"N": 7, "v": number - 7}) == wrap(number, 256)
    once = wrap(N + V, 256)
    assert wrap(once, 256) == once
    assert wrap(3 * once - N, 256) == wrap(2 * N + 3 * V, 256)
    assert wrap(once - N - V + 300, 256) == 44
    assert substitute(once, {"N": 100, "v": 100}) == -56


def test_sizes_lose_common_factors() -> None:
    assert primitive(64 * N - 64) == N - 1 == primitive(N - 1)
    assert primitive(-4 * N * V + 6) == 3 - 2 * N * V
    assert (primitive(12), primitive(0)) == (1, 0)


def test_a_divisor_of_zero_counts_as_one() -> None:
    quotient = floordiv(symbol("N") + 5, 0)
    assert least(quotient) == 5
    assert evaluate(quotient, {"N": 2}) == 7


def test_rounding_down_again_and_again_is_rounding_down_once() -> None:
    size: Size = N
    for power in range(1, 6):
        size = floordiv(size - 1, 2) + 1
        assert size == floordiv(N + 2**power - 1, 2**power)
    assert floordiv(floordiv(N - 2, 2) - 1, 2) == floordiv(N, 4) - 1
    assert floordiv(4 * N + 2 * V + 7, 4) == N + 1 + floordiv(V + 1, 2)
    assert floordiv(2 * floordiv(N, 2), 8) == floordiv(N, 8)
    # One size is no part of another one.
    assert str(floordiv(2 * floordiv(N, 3) + 1, 3)) == "((2*(N // 3) + 1) // 3)"
    assert str(floordiv(floordiv(N, 3) + V, 3)) == "(((N // 3) + v) // 3)"
    assert str(floordiv(floordiv(N, V), 3)) == "(((N // v)) // 3)"


@given(
    st.integers(-60, 60),
    st.lists(st.tuples(st.integers(-3, 4), st.integers(-9, 9), st.integers(1, 6)), max_size=5),
)
def test_what_is_left_of_sizes_is_that_of_numbers(
    v: int, steps: list[tuple[int, int, int]]
) -> None:
    size, number = V, v
    for times, more, divisor in steps:
        size = floordiv(times * size + more, divisor)
        number = (times * number + more) // divisor
    assert evaluate(size, {"v": v}) == number
