from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ostinato.sizes.conditions import truncdiv
from ostinato.sizes.dims import Size, ceildiv, floordiv, symbol
from ostinato.sizes.quotients import (
    BITS,
    Quotient,
    Ratio,
    added,
    divided,
    multiplied,
    of_float,
    of_size,
)
from ostinato.sizes.substitution import evaluate

N = symbol("N")
NUMBERS = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 8.0, 10.0, 160.0, -1.0]
COMBINE = {
    "add": (np.add, added),
    "subtract": (np.subtract, partial(added, sign=-1)),
    "multiply": (np.multiply, multiplied),
    "divide": (np.divide, divided),
}
ROUND = {"down": (np.floor, floordiv), "up": (np.ceil, ceildiv), "to 0": (np.trunc, truncdiv)}
STEPS = st.tuples(st.sampled_from(sorted(COMBINE)), st.sampled_from(NUMBERS))


def quotient(
    steps: list[tuple[str, float]], dtype: str = "float32", size: Size = N
) -> Quotient | None:
    """What a chain of operations makes of the size N, constants on the right."""
    found: Quotient | None = of_size(size, BITS[dtype])
    for name, number in steps:
        factor = of_float(number, BITS[dtype])
        assert factor is not None
        found = COMBINE[name][1](found, factor) if found else None
    return found


@given(
    steps=st.lists(STEPS, min_size=1, max_size=4),
    rounding=st.sampled_from(sorted(ROUND)),
    size=st.one_of(st.integers(0, 100), st.integers(0, 2**24)),
)
def test_integers_are_those_that_float32_gives(steps, rounding, size):
    found = quotient(steps)
    if found is None:
        return
    whole = found.integer(ROUND[rounding][1])
    if any(evaluate(room, {"N": size}) < 0 for room in whole.conditions()):
        return
    number = np.float32(size)
    for name, constant in steps:
        number = COMBINE[name][0](number, np.float32(constant))
    assert evaluate(whole.numerator, {"N": size}) == int(ROUND[rounding][0](number))


@pytest.mark.parametrize(
    ("steps", "rounding", "expected"),
    [
        ([("multiply", 2.0)], "down", 2 * N),
        ([("multiply", 0.5)], "down", floordiv(N, 2)),
        ([("divide", 5.0), ("add", 1.0)], "up", ceildiv(N, 5) + 1),
        ([("multiply", 2.0), ("divide", 2.0)], "to 0", N),
    ],
)
def test_sizes(steps, rounding, expected):
    whole = quotient(steps)
    assert whole is not None and whole.integer(ROUND[rounding][1]).numerator == expected


def test_numerators_that_floats_hold_are_limited():
    """16 million and more are no float32, 2 ** 53 and more no float64."""
    whole = quotient([("add", 6.0), ("subtract", 3.0)])
    assert whole is not None and whole.integer(ceildiv).conditions() == [2**24 - N - 6]
    wide = quotient([("add", 6.0)], "float64")
    assert wide is not None and wide.integer(ceildiv).conditions() == [2**53 - N - 6]
    # Thirds are rounded, by less than what they are away from an integer.
    third = quotient([("divide", 3.0)])
    assert third is not None and third.integer(floordiv).conditions() == [2**24 - 4 * N]


@pytest.mark.parametrize(
    "steps",
    [
        # A third times three may be less than one, and five roundings more than one step.
        [("divide", 3.0), ("multiply", 3.0)],
        [("divide", 3.0), ("add", 1.0), ("add", 1.0), ("add", 1.0)],
        [("divide", 160.0), ("multiply", 0.5), ("divide", 160.0)],
        [("multiply", 0.25)] * 7,
    ],
)
def test_what_may_be_rounded_to_another_integer_is_left(steps):
    assert quotient(steps) is None


def test_constants_are_quotients_of_small_numbers():
    half = of_float(-0.5, 24)
    assert half is not None and (half.numerator, half.denominator) == (-1, 2)
    assert of_float(1 / 3, 24) is None and of_float(2.0**30, 24) is None
    assert divided(of_size(N, 24), Quotient(24, 0)) is None


def test_a_size_over_another_is_a_ratio_if_both_are_floats_at_once():
    size = of_size(N, 24)
    assert divided(size, of_size(N + 1, 24)) == Ratio(24, N, N + 1)
    one, half = of_float(1.0, 24), of_float(0.5, 24)
    assert one is not None and half is not None
    for left, right in [(added(size, one), size), (size, multiplied(size, half))]:
        assert isinstance(left, Quotient) and isinstance(right, Quotient)
        assert divided(left, right) is None


# The result is a float; the size itself is rounded.
@example(steps=[("divide", 1.5)], size=17668905, dtype="float32")
# A step of the number is rounded, its result is not.
@example(steps=[("add", 0.25), ("add", 0.25)], size=4194304, dtype="float32")
@given(
    steps=st.lists(STEPS, min_size=1, max_size=4),
    size=st.one_of(st.integers(0, 300), st.integers(0, 2**26)),
    dtype=st.sampled_from(sorted(BITS)),
)
def test_sizes_that_are_numbers_give_the_floats(
    steps: list[tuple[str, float]], size: int, dtype: str
) -> None:
    found = quotient(steps, dtype, size)
    exact = found.number() if found is not None else None
    if exact is None:
        return
    kind = np.dtype(dtype).type
    number = kind(size)
    for name, other in steps:
        number = COMBINE[name][0](number, kind(other))
    assert number == kind(exact.numerator) / kind(exact.denominator)
