from __future__ import annotations

from itertools import product as cartesian

import pytest

from ostinato.sizes.bounds import is_never_negative, unless_negative
from ostinato.sizes.dims import Atom, Size, floordiv, maximum, symbol, terms_of
from ostinato.sizes.substitution import evaluate

N, M = symbol("N"), symbol("M")
HALF, QUARTER = floordiv(N + 1, 2), floordiv(N + 3, 4)


def atom(size: Size) -> Atom:
    ((monomial, _),) = terms_of(size)
    (found,) = monomial
    return found


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, True),
        (-1, False),
        (N - 1, False),
        # What is rounded down, times what it is divided by, and a part of that.
        (N - 3 * floordiv(N, 3), True),
        (N - 3 * floordiv(N, 3) - 1, False),
        (floordiv(N, 2) - 2 * floordiv(N, 4), True),
        (N - 2 * floordiv(N, 4) - 2 * floordiv(N, 8), False),
        (HALF + 1 - 2 * floordiv(N + 3, 4), True),
        (N * M - 4 * M * floordiv(N, 4), True),
        (maximum(N, 2 * M) - 4, False),
        # Rounded up: the number that is left of pairs is even.
        (2 * floordiv(N + 1, 2) - N, True),
        (2 * floordiv(N + 1, 2) - N - 1, False),
        (2 * floordiv(N, 2) - N + 1, True),
        (2 * floordiv(N, 2) - N, False),
        (2 * M * floordiv(N + 1, 2) - M * N, True),
        (2 * QUARTER - HALF, True),
        (12 * floordiv(N + 11, 12) - N, True),
        # Not known: what a size that may be negative does, and squares.
        (symbol("v", signed=True) - 2, False),
        (N - floordiv(N, 2) * floordiv(N, 2), False),
    ],
)
def test_rounded_sizes_are_compared(size: Size, expected: bool) -> None:
    assert is_never_negative(size) == expected
    if expected:
        pairs = cartesian(range(30), range(3))
        assert all(evaluate(size, {"N": n, "M": m}) >= 0 for n, m in pairs)


def test_atoms_are_at_least_what_is_known_of_them() -> None:
    rows = 8 * symbol("R")
    lows = {atom(N): 4 * rows - 3, atom(M): 2 * rows}
    assert is_never_negative(N - 4 * rows + 3, lows) and not is_never_negative(N - 4 * rows, lows)
    # And so is what is rounded down of them, and larger.
    assert is_never_negative(HALF - 2 * rows + 1, lows)
    assert not is_never_negative(HALF - 2 * rows, lows)
    assert not is_never_negative(2 * rows - HALF, lows)
    assert is_never_negative(N * M - 8 * rows * rows, {**lows, atom(N): 4 * rows})
    assert not is_never_negative(floordiv(N + M, 2) - rows, lows)


def test_sizes_that_are_never_negative_stay_what_they_are() -> None:
    assert unless_negative(2 * QUARTER - HALF) == 2 * QUARTER - HALF
    assert unless_negative(2 * QUARTER - N) == maximum(2 * QUARTER - N, 0)
    assert (unless_negative(3), unless_negative(-3)) == (3, 0)
