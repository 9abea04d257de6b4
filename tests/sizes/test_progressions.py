from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ostinato.sizes.dims import Size, ceildiv, maximum, symbol
from ostinato.sizes.progressions import Progression, progression, repeated, unrounded
from ostinato.sizes.substitution import evaluate

N = symbol("N")


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        (np.arange(3, 9, 2), Progression(3, (2,))),
        (np.array(7), Progression(7, ())),
        (np.array([[5], [5]]), Progression(5, (0, 0))),
        (np.add.outer(10 * np.arange(3), np.arange(2)), Progression(0, (10, 1))),
        (np.zeros((0, 4), np.int64), Progression(0, (0, 0))),
        (np.array([N, 2 * N, 3 * N]), Progression(N, (N,))),
        (np.array([0, 1, 3]), None),
        (np.array([[0, 1], [1, 3]]), None),
        (np.array([0, 2**50]), None),
    ],
)
def test_arrays(elements: np.ndarray, expected: Progression | None):
    assert progression(elements) == expected


def test_broadcast_progressions_stand_still_where_they_are_repeated():
    assert repeated(Progression(2, (3, 5)), (4, 1), (6, 4, 7)) == Progression(2, (0, 3, 0))
    # A run may repeat what is expected not to be.
    line = repeated(Progression(0, (1,)), (N,), (4,))
    assert [evaluate(line.given, {"N": n}) for n in (1, 4)] == [0, 1]


def test_the_limit_of_a_range_of_sizes():
    for start, limit, step in product((0, 1, N, -N), (N, 2 * N + 1, -1, 4), (-3, -2, -1, 1, 2, 3)):
        distance: Size = limit - start if step > 0 else start - limit
        count = maximum(ceildiv(distance, abs(step)), 0)
        for n in range(7):
            numbers = [evaluate(size, {"N": n}) for size in (start, limit, count)]
            expected = range(numbers[0], numbers[1], step)
            assert numbers[2] == len(expected)
            if expected:
                stop = numbers[0] + evaluate(unrounded(step, count), {"N": n})
                assert range(numbers[0], stop, step) == expected
