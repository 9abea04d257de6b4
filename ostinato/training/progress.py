"""A bar for training loops: epochs, the mean of the last losses, steps per second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar

Item = TypeVar("Item")

# The share of the newest loss in the mean that is shown.
_NEWEST = 0.05


class Progress:
    """Shows the steps of each epoch on standard error while they run.

    with Progress(epochs) as progress:
        for batch in progress.each(batches):
            progress.show(trainer.step(*batch))
    """

    def __init__(self, epochs: int, is_shown: bool = True, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._epochs, self._epoch = epochs, 0
        self._mean: float | None = None
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not is_shown or not console.is_terminal,
        )

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items of one more epoch."""
        self._epoch += 1
        total = len(items) if isinstance(items, Sized) else None
        name = f"epoch {self._epoch} of {self._epochs}"
        self._task = self._bar.add_task(name, total=total, loss="-", speed="")
        for item in items:
            yield item
            speed = self._bar.tasks[self._task].speed
            shown = "" if speed is None else f"{speed:.1f} steps/s"
            self._bar.update(self._task, advance=1, speed=shown)

    def show(self, loss: float) -> float:
        """Show a loss, and return it."""
        self._mean = loss if self._mean is None else self._mean + _NEWEST * (loss - self._mean)
        self._bar.update(self._task, loss=f"{self._mean:.4g}")
        return loss
