"""A live meter: how much of the time until the next frame a step of a stream takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table


class Meter:
    """Shows, in a terminal, the latency of steps beside the real-time budget while they run.

    budget: seconds from one frame to the next. A step that takes longer is late.

        with Meter(0.008) as meter:
            for frame in frames:
                with meter.step():
                    stream.step({"x": frame})
        print(meter.summary())
    """

    def __init__(self, budget: float, console: Console | None = None) -> None:
        self.budget = budget
        self._seconds: list[float] = []
        # Other output appears above the line, which is removed when the meter ends.
        self._live = Live(
            console=console or Console(stderr=True),
            refresh_per_second=8,
            transient=True,
            get_renderable=self._line,
        )

    def __enter__(self) -> Meter:
        if self._live.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Times what runs inside as one step."""
        start = perf_counter()
        yield
        self._seconds.append(perf_counter() - start)

    @property
    def late(self) -> int:
        """The number of steps that took longer than the budget."""
        return sum(seconds > self.budget for seconds in self._seconds)

    def percentile(self, share: float) -> float:
        """Seconds that this share of the steps, 0 to 1, did not exceed; 0 before the first."""
        return float(np.quantile(self._seconds, share)) if self._seconds else 0.0

    def summary(self) -> str:
        """Steps, median, 99th percentile, maximum and share of the budget, in a line."""
        median, p99, most = (self.percentile(share) for share in (0.5, 0.99, 1.0))
        return (
            f"{len(self._seconds):,} steps, median {median * 1e6:.0f} us, "
            f"p99 {p99 * 1e6:.0f} us, max {most * 1e6:.0f} us: "
            f"{median / self.budget:.2%} of {self.budget * 1e3:g} ms, {self.late} late"
        )

    def _line(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        grid.add_column()
        grid.add_column(no_wrap=True)
        used = min(self.percentile(0.5), self.budget)
        style = "red" if self.late else "green"
        bar = ProgressBar(total=self.budget, completed=used, width=30, complete_style=style)
        grid.add_row(bar, self.summary())
        return grid
