"""`ostinato bench`: how long a call takes, alone or beside onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ostinato.cli import common
from ostinato.cli.feeds import open_fed
from ostinato.cli.timing import Timing, interleave
from ostinato.cli.witness import onnxruntime_bound_call, onnxruntime_session
from ostinato.errors import OstinatoError, RunError

if TYPE_CHECKING:
    import numpy as np


def bench(
    model: common.ModelPath,
    vs: Annotated[
        Literal["onnxruntime"] | None, typer.Option("--vs", help="Measure beside this runtime.")
    ] = None,
    input: common.InputFile = None,
    dim: common.Dim = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="SECONDS", min=0.01, help="Time for each row of the table."
        ),
    ] = 1.0,
    disable: common.Disable = None,
    set: common.Set = None,
    no_fallback: common.NoFallback = False,
    no_cache: common.NoCache = False,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Measure calls of a model: bound ones and `run`, one thread, peers interleaved."""
    with common.error_line(debug):
        options = common.make_options(disable, no_fallback, no_cache, fields=set)
        session, feeds = open_fed(model, options, input, dim)
        calls: dict[str, Callable[[], object]] = {
            "ostinato bound": session.bind(feeds),
            "ostinato run": lambda: session.run(None, feeds),
        }
        if vs:
            calls |= _peer_calls(model, feeds)
        with common.progress() as bar:
            task = bar.add_task(f"Measuring {model.name}", total=1.0)
            timings = interleave(
                calls, seconds, on_round=lambda share: bar.update(task, completed=share)
            )
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        if json:
            common.print_json(
                {
                    "model": str(model),
                    "inputs": shapes,
                    "calls": {name: _microseconds(timing) for name, timing in timings.items()},
                    "ratios": _ratios(timings, vs),
                }
            )
            return
        described = ", ".join(f"{name}{common.format_shape(s)}" for name, s in shapes.items())
        _print(f"{model.name}: {described}", timings, _ratios(timings, vs))
        for text in session.report().advice:
            common.console().print(f"advice: {text}")


def _peer_calls(model: Path, feeds: dict[str, np.ndarray]) -> dict[str, Callable[[], object]]:
    """The calls of onnxruntime, without a bound one where it takes no buffers for the outputs."""
    calls: dict[str, Callable[[], object]] = {}
    try:
        peer = onnxruntime_session(model)
        peer.run(None, feeds)
    except OstinatoError:
        raise
    except Exception as error:
        raise RunError(f"onnxruntime failed on {model}: {error}") from error
    try:
        calls["onnxruntime bound"], _ = onnxruntime_bound_call(peer, feeds)
    except RunError as error:
        common.error_console().print(f"Without a bound call: {error}")
    return calls | {"onnxruntime run": lambda: peer.run(None, feeds)}


def _microseconds(timing: Timing) -> dict[str, float]:
    return {
        "median_us": timing.median * 1e6,
        "p99_us": timing.p99 * 1e6,
        "min_us": timing.minimum * 1e6,
        "samples": timing.samples,
        "calls_per_sample": timing.batch,
    }


def _ratios(timings: dict[str, Timing], vs: str | None) -> dict[str, float]:
    """Ratios of the peer's time to ours, by the kind of call."""
    if not vs:
        return {}
    return {
        kind: timings[f"{vs} {kind}"].median / timings[f"ostinato {kind}"].median
        for kind in ("bound", "run")
        if f"{vs} {kind}" in timings
    }


def _print(title: str, timings: dict[str, Timing], ratios: dict[str, float]) -> None:
    columns = ["call", "median", "p99", "min", *(["times ours"] if ratios else [])]
    table = common.table(title, *columns)
    for name, timing in timings.items():
        runtime, kind = name.rsplit(" ", 1)
        ratio = [f"{ratios[kind]:.2f}x"] if runtime != "ostinato" else []
        figures = (timing.median, timing.p99, timing.minimum)
        table.add_row(name, *map(common.format_seconds, figures), *ratio)
    common.show(table)
