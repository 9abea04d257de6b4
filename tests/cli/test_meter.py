"""The meter counts steps against their budget, with and without a terminal."""

from __future__ import annotations

import io
from time import sleep

import pytest
from rich.console import Console

from ostinato.cli.meter import Meter


def run(meter: Meter, steps: int, seconds: float = 0.0) -> Meter:
    with meter:
        for _ in range(steps):
            with meter.step():
                sleep(seconds)
    return meter


def test_what_is_slower_than_the_budget_is_late() -> None:
    assert run(Meter(10.0), 3).late == 0
    meter = run(Meter(0.001), 3, 0.002)
    assert meter.late == 3
    assert meter.percentile(0.5) > 0.002
    assert "3 steps, median " in meter.summary()
    assert "of 1 ms, 3 late" in meter.summary()


def test_nothing_is_drawn_without_a_terminal() -> None:
    text = io.StringIO()
    run(Meter(1.0, Console(file=text, force_terminal=False)), 2)
    assert text.getvalue() == ""


def test_a_terminal_shows_the_figures_while_it_runs() -> None:
    text = io.StringIO()
    run(Meter(1.0, Console(file=text, force_terminal=True, width=200)), 2)
    assert "2 steps, median" in text.getvalue()


def test_without_steps_there_is_still_a_summary() -> None:
    assert run(Meter(1.0), 0).summary().startswith("0 steps")


def test_a_step_that_fails_is_no_step() -> None:
    meter = Meter(1.0)
    with pytest.raises(KeyError), meter, meter.step():
        raise KeyError
    assert meter.summary().startswith("0 steps")
