"""`ostinato profile`: where the time of a call goes, kernel by kernel."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common
from ostinato.cli.feeds import open_fed
from ostinato.garbage import uncollected

if TYPE_CHECKING:
    from ostinato.profiling import KernelTime, Profile


def profile(
    model: common.ModelPath,
    input: common.InputFile = None,
    dim: common.Dim = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=0.01, help="Time to measure for.")
    ] = 1.0,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page with everything, for a browser."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write one call as a trace for Perfetto."),
    ] = None,
    rows: Annotated[
        int,
        typer.Option("--rows", metavar="N", min=1, help="Kernels in the table, the longest first."),
    ] = 20,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", metavar="N", min=1, help="Most threads of a call; their times apart."
        ),
    ] = 1,
    disable: common.Disable = None,
    set: common.Set = None,
    no_fallback: common.NoFallback = False,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Measure where the time of a call goes, kernel by kernel, beside what the machine can do."""
    with common.error_line(debug):
        common.require_writable(html, trace)
        options = dataclasses.replace(
            common.make_options(disable, no_fallback, no_cache=True, fields=set), threads=threads
        )
        _, feeds = open_fed(model, options, input, dim)
        with common.status(f"Measuring {model.name}"), uncollected():
            from ostinato.profiling import measure, page, roofline, trace_events

            limits = roofline.quick()
            found = measure(model, feeds, options, limits, seconds, model.name)
        if html is not None:
            html.write_text(page.page(found), encoding="utf-8")
        if trace is not None:
            trace.write_text(trace_events.text(found), encoding="utf-8")
        if json:
            common.print_json(page.record(found))
        else:
            _show(found, rows)
            for path in (html, trace):
                if path is not None:
                    print(f"wrote {path}")


def _show(found: Profile, rows: int) -> None:
    console = common.console()
    shapes = ", ".join(f"{name}{common.format_shape(s)}" for name, s in found.inputs.items())
    count = len(found.waiting)
    columns = ["kernel", "node", "time", "share", "runs"]
    if count > 1:
        columns += [*(f"thread {number}" for number in range(1, count)), "imbalance"]
    columns += ["bytes", "flop", "flop/s", "of roofline"]
    table = common.table(f"{found.model}: {shapes}", *columns, left=2)

    def rest(what: str, *seconds: float) -> None:
        texts = [common.format_seconds(each) for each in seconds]
        share = f"{seconds[0] / found.call:.1%}"
        table.add_row("", what, texts[0], share, "", *texts[1:])

    ranked = sorted(found.kernels, key=lambda kernel: -kernel.seconds)
    for kernel in ranked[:rows]:
        table.add_row(kernel.name, common.kernel_title(kernel.nodes), *_figures(kernel, found))
    if len(ranked) > rows:
        others = [kernel.threads for kernel in ranked[rows:]]
        rest(f"{len(others)} more", *map(sum, zip(*others, strict=True)))
    if count > 1:
        rest("waiting for threads", *found.waiting)
    rest("outside of kernels", found.outside)
    common.show(table)
    console.print(
        f"a call: {common.format_seconds(found.call)}, mean of {found.calls}; "
        f"working memory: {common.format_bytes(found.arena)}; "
        f"this machine: {found.roofline.peak / 1e9:.0f} Gflop/s a core"
    )
    console.print(f"outside of kernels: {found.overhead}")
    if count > 1:
        console.print(
            f"{found.shared:.0%} of the calls ran on several threads: short ones, and those for "
            "which other threads come too late, run on one"
        )
    if found.fallback:
        console.print(f"not native: {', '.join(found.fallback)}")


def _threads(kernel: KernelTime) -> list[str]:
    """The seconds of the threads beside the caller's, and how unequal they are."""
    if len(kernel.threads) == 1:
        return []
    return [*map(common.format_seconds, kernel.threads[1:]), f"{kernel.imbalance:.2f}"]


def _figures(kernel: KernelTime, found: Profile) -> list[Any]:
    rate = kernel.flops * kernel.runs / kernel.seconds if kernel.seconds else 0.0
    return [
        common.format_seconds(kernel.seconds),
        f"{kernel.seconds / found.call:.1%}",
        f"{kernel.runs:g}",
        *_threads(kernel),
        common.format_bytes(kernel.bytes),
        common.format_count(kernel.flops),
        common.format_count(rate),
        f"{kernel.of_roofline:.0%}",
    ]
