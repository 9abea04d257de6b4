"""Trip counts that follow from a counter in the condition."""

from __future__ import annotations

import pytest

from ostinato.passes.loops.bounded_loop import bounded_loop
from tests.golden import check


def counted(trips: str, condition: str, steps: str = "", start: int = 0) -> str:
    """A loop that goes on while `k < 3` and `more`, whose state `k` counts from `start`."""
    return f"""
        g (float h, bool more) => (int64 kn, float hn)
        <int64 start = {{{start}}}, int64 one = {{1}}, int64 three = {{3}}, int64 n = {{9}},
         bool yes = {{1}}{steps}> {{
            kn, hn = Loop <body = b (int64 i, bool p, int64 k, float s)
                => (bool q, int64 m, float t) {{
                m = Add(k, one)
                t = Tanh(s)
                {condition}
            }}> ({trips}, yes, start, h)
        }}
    """


WHILE = "less = Less(m, three)  q = And(less, more)"


@pytest.mark.parametrize("trips", ["n", '""'])
def test_a_counter_bounds_the_steps(trips: str) -> None:
    after = counted("kn_trips", WHILE, ", int64 kn_trips = {3}")
    check(bounded_loop, counted(trips, WHILE), after, count=1, evaluate="reference")


@pytest.mark.parametrize("trips", ["n", '""'])
@pytest.mark.parametrize("condition", ["Less(m, three)", "Greater(three, m)"])
def test_the_only_condition_is_not_asked_any_more(trips: str, condition: str) -> None:
    after = counted("kn_trips", f"q = {condition}  stays = Identity(p)", ", int64 kn_trips = {3}")
    after = after.replace("(bool q", "(bool stays")
    check(bounded_loop, counted(trips, f"q = {condition}"), after, count=1, evaluate="reference")


def test_the_first_step_is_not_asked() -> None:
    before = counted("n", WHILE, start=5)
    after = counted("kn_trips", WHILE, ", int64 kn_trips = {1}", start=5)
    check(bounded_loop, before, after, count=1, evaluate="reference")


@pytest.mark.parametrize(
    ("trips", "condition"),
    [
        ("three", WHILE),
        ("n", "q = Identity(more)"),
        ("n", "less = Less(m, three)  q = Or(less, more)"),
        ("n", "q = Less(k, three)"),
        ("n", "q = Less(three, m)"),
    ],
)
def test_what_bounds_nothing(trips: str, condition: str) -> None:
    text = counted(trips, condition)
    check(bounded_loop, text, text, count=0, evaluate="nobody")
