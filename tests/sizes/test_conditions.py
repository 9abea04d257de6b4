from __future__ import annotations

from itertools import product as cartesian

import pytest

from ostinato.sizes.conditions import choose, is_different, is_equal, is_less, modulo, truncdiv
from ostinato.sizes.dims import floordiv, symbol
from ostinato.sizes.substitution import evaluate

N, V, W = symbol("N"), symbol("v", signed=True), symbol("w", signed=True)
NUMBERS = (-7, -1, 0, 1, 2, 9)


@pytest.mark.parametrize(("v", "w"), list(cartesian(NUMBERS, NUMBERS)))
def test_conditions_are_0_or_1(v: int, w: int) -> None:
    values = {"v": v, "w": w}
    assert evaluate(is_equal(V, W), values) == (v == w)
    assert evaluate(is_different(V, W), values) == (v != w)
    assert evaluate(is_less(V, W), values) == (v < w)
    assert evaluate(choose(is_less(V, W), V, 5), values) == (v if v < w else 5)
    assert evaluate(floordiv(V, W), values) == v // (w or 1)


def test_conditions_are_decided_where_symbols_allow_it() -> None:
    assert is_equal(N, -1) == 0 == is_equal(N + 2, 1)
    assert is_different(N + 3, N) == 1
    assert choose(is_equal(N, -1), 4, N) == N


def test_truncated_division_has_the_bits_of_onnx():
    for left, right in cartesian((N, N - 3, 3 - N, 7, -7), (N, N - 2, 3, -3, 0)):
        for n in range(6):
            a, b = evaluate(left, {"N": n}), evaluate(right, {"N": n})
            expected = int(a / b) if b else 0
            assert evaluate(truncdiv(left, right), {"N": n}) == expected, (left, right, n)


@pytest.mark.parametrize(("v", "w"), list(cartesian(NUMBERS, NUMBERS)))
def test_remainders_have_the_sign_of_the_divisor(v: int, w: int) -> None:
    expected = v % w if w else 0
    assert modulo(v, w) == expected
    assert evaluate(modulo(V, W), {"v": v, "w": w}) == expected
    assert evaluate(modulo(V, w), {"v": v}) == expected
    assert evaluate(modulo(v, W), {"w": w}) == expected
