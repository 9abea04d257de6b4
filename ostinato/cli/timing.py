"""Side-by-side timing: A B C A B C ..., so that drift of a shared machine hits every call alike."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

# Shorter calls are timed in batches of this many seconds: 1,000 times what reading the clock takes.
_CLOCK_FLOOR = 20e-6


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, over `samples` samples.

    A sample is one call, or for calls faster than 20 us the mean of `batch` calls in a row, so
    that reading the clock costs nothing that shows.
    """

    median: float
    minimum: float
    p99: float
    samples: int
    batch: int

    @classmethod
    def of(cls, samples: list[float], batch: int) -> Timing:
        ordered = sorted(samples)
        p99 = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
        return cls(median(ordered), ordered[0], p99, len(ordered), batch)


@dataclass
class _Series:
    call: Callable[[], object]
    batch: int
    per_slice: int
    samples: list[float]
    clock: Callable[[], float]

    def slice(self) -> None:
        """One turn: a tenth of it unmeasured, to bring this call's data back into the caches."""
        call, batch = self.call, range(self.batch)
        for _ in range(max(1, self.batch * self.per_slice // 10)):
            call()
        for _ in range(self.per_slice):
            start = self.clock()
            for _ in batch:
                call()
            self.samples.append((self.clock() - start) / self.batch)


def _series(
    call: Callable[[], object], slice_seconds: float, clock: Callable[[], float]
) -> _Series:
    duration = math.inf
    for _ in range(5):
        start = perf_counter()
        call()
        duration = min(duration, perf_counter() - start)
    duration = max(duration, 20e-9)
    batch = max(1, math.ceil(_CLOCK_FLOOR / duration))
    return _Series(call, batch, max(1, int(slice_seconds / (duration * batch))), [], clock)


def interleave(
    calls: Mapping[str, Callable[[], object]],
    seconds: float = 1.0,
    slice_seconds: float = 0.01,
    on_round: Callable[[float], None] = lambda share: None,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, Timing]:
    """Time `calls` in turns of `slice_seconds` until each had about `seconds`, at least 5 turns.

    `on_round` is told the share done, 0 to 1; `time.thread_time` as `clock` leaves out what others
    do on the machine meanwhile, if calls take one thread. The garbage collector is off meanwhile.
    """
    series = {name: _series(call, slice_seconds, clock) for name, call in calls.items()}
    rounds = max(5, round(seconds / slice_seconds))
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = perf_counter()
        for done in range(1, rounds + 1):
            for each in series.values():
                each.slice()
            on_round(done / rounds)
            # A call slower than a slice would stretch the whole: five turns are enough for it.
            if done >= 5 and perf_counter() - start > seconds * len(series) * 1.5:
                break
    finally:
        if collecting:
            gc.enable()
    on_round(1.0)
    return {name: Timing.of(each.samples, each.batch) for name, each in series.items()}
