import gc
import itertools
import time

import pytest

from ostinato.cli.timing import Timing, interleave


def test_order_statistics() -> None:
    timing = Timing.of([float(n) for n in range(100, 0, -1)], 3)
    assert timing == Timing(median=50.5, minimum=1.0, p99=99.0, samples=100, batch=3)
    assert Timing.of([7.0], 1).p99 == 7.0


def test_calls_take_turns() -> None:
    calls: list[str] = []

    def slow(name: str) -> None:
        calls.append(name)
        time.sleep(0.001)

    timings = interleave(
        {"a": lambda: slow("a"), "b": lambda: slow("b")}, seconds=0.02, slice_seconds=0.002
    )
    switches = sum(x != y for x, y in itertools.pairwise(calls))
    # Once between the two estimates of the duration, then at every turn.
    assert switches >= 1 + 2 * 5
    for timing in timings.values():
        assert timing.batch == 1
        assert timing.samples >= 5
        assert 0.001 <= timing.minimum <= timing.median <= timing.p99


def test_fast_calls_are_timed_in_batches() -> None:
    timing = interleave({"nothing": lambda: None}, seconds=0.01, slice_seconds=0.001)["nothing"]
    assert timing.batch > 10
    assert timing.median < 5e-6


def test_progress_ends_at_one_and_the_collector_comes_back() -> None:
    shares: list[float] = []
    interleave({"a": lambda: None}, seconds=0.005, slice_seconds=0.001, on_round=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert gc.isenabled()


def test_the_collector_comes_back_after_an_error() -> None:
    count = 0

    def fails_later() -> None:
        nonlocal count
        count += 1
        if count > 20:
            raise ValueError("late")
        time.sleep(0.0001)

    with pytest.raises(ValueError, match="late"):
        interleave({"a": fails_later}, seconds=1.0)
    assert gc.isenabled()
