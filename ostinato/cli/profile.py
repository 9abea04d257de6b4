"""`ostinato profile`: where the time of a call goes, kernel by kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common
from ostinato.errors import OptionError
from ostinato.lazy_sympy import quick_imports

if TYPE_CHECKING:
    from ostinato.profiling import KernelTime, Profile


def profile(
    model: common.ModelPath,
    input: common.InputFile = None,
    dim: common.Dim = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.01, help="Time to measure for.")
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
        int, typer.Option("--rows", min=1, help="Kernels in the table, the longest first.")
    ] = 20,
    disable: common.Disable = None,
    no_fallback: common.NoFallback = False,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Measure where the time of a call goes, kernel by kernel, beside what the machine can do."""
    with common.error_line(debug):
        files = common.parse_pairs("--input", input)
        dims = common.parse_sizes("--dim", dim)
        for path in (html, trace):
            if path is not None and not path.absolute().parent.is_dir():
                raise OptionError(f"{path}: there is no folder {path.parent}")
        options = common.make_options(disable, no_fallback, no_cache=True)
        session = common.open_session(model, options)
        feeds = common.make_feeds(common.feedable(session, files), files, dims)
        with common.status(f"Measuring {model.name}"), quick_imports():
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
    columns = ("kernel", "node", "time", "share", "runs", "bytes", "flop", "flop/s", "of roofline")
    table = common.table(f"{found.model}: {shapes}", *columns, left=2)
    ranked = sorted(found.kernels, key=lambda kernel: -kernel.seconds)
    for kernel in ranked[:rows]:
        table.add_row(kernel.name, kernel.title, *_figures(kernel, found))
    if len(ranked) > rows:
        rest = sum(kernel.seconds for kernel in ranked[rows:])
        share = f"{rest / found.call:.1%}"
        table.add_row(f"{len(ranked) - rows} more", "", common.format_seconds(rest), share)
    other = max(found.call - found.measured, 0.0)
    share = f"{other / found.call:.1%}"
    table.add_row("outside of kernels", "", common.format_seconds(other), share)
    console.print(table)
    console.print(
        f"a call: {common.format_seconds(found.call)}, mean of {found.calls}; "
        f"working memory: {common.format_bytes(found.arena)}; "
        f"this machine: {found.roofline.peak / 1e9:.0f} Gflop/s"
    )
    if found.fallback:
        console.print(f"not native, in 'outside of kernels': {', '.join(found.fallback)}")


def _figures(kernel: KernelTime, found: Profile) -> list[Any]:
    rate = kernel.flops * kernel.runs / kernel.seconds if kernel.seconds else 0.0
    return [
        common.format_seconds(kernel.seconds),
        f"{kernel.seconds / found.call:.1%}",
        f"{kernel.runs:g}",
        common.format_bytes(kernel.bytes),
        f"{kernel.flops:,}",
        f"{rate / 1e9:.2f} G",
        f"{kernel.of_roofline:.0%}",
    ]
