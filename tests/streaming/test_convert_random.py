"""Random networks, causal and not: a conversion is right, or refused with a reason.

`python -m tools.fuzz streams` tries as many as there is time for.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tools.fuzz.streams import Outcome, tried

BLOCK = 15


@pytest.mark.parametrize("first", range(0, 60, BLOCK))
def test_a_conversion_is_right_or_refused(first: int) -> None:
    found = {seed: tried(seed) for seed in range(first, first + BLOCK)}
    assert {seed: o.message for seed, o in found.items() if o.is_failure} == {}
    kinds = Counter(outcome.kind for outcome in found.values())
    assert kinds["converted"] >= 3 and kinds["refused"] >= 3 and kinds["invalid"] <= 1


@pytest.mark.parametrize("seed", [2, 3])
def test_compiled_steps_have_the_bits_of_the_whole(seed: int) -> None:
    assert tried(seed, compiled=True) == Outcome("converted")
