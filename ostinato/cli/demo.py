"""`ostinato demo`: clean a noisy signal frame by frame with the model in the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common

if TYPE_CHECKING:
    from ostinato.demo import DemoResult, Timing


def demo(
    wav: Annotated[
        Path | None,
        typer.Option(
            "--wav", metavar="FILE.wav", help="A 16 kHz recording; default: synthetic speech."
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Folder for the WAV files and the spectrograms."
        ),
    ] = Path("demo-output"),
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Clean a noisy signal frame by frame with a small recurrent model, beside onnxruntime."""
    with common.error_line(debug):
        from ostinato.demo import run_demo

        with common.progress() as bar:
            task = bar.add_task("Compiling the model", total=None)
            result = run_demo(
                wav,
                output,
                progress=lambda done, total: bar.update(
                    task, description="Cleaning frame by frame", completed=done, total=total
                ),
            )
        if json:
            common.print_json(_facts(result))
        else:
            _print(result)


def _facts(result: DemoResult) -> dict[str, Any]:
    return {
        "source": result.source,
        "noise": result.noise,
        "seconds": result.seconds,
        "frames": result.frames,
        "snr_in_db": result.snr_in_db,
        "snr_out_db": result.snr_out_db,
        "gain_db": result.gain_db,
        "timing": _timing(result.timing),
        "onnxruntime": _timing(result.peer_timing) if result.peer_timing else None,
        "max_difference": result.max_difference,
        "files": _files(result),
    }


def _files(result: DemoResult) -> dict[str, str]:
    """The files written, and the model, to try other commands on."""
    from ostinato.demo import MODEL

    return {
        "noisy": str(result.noisy_path),
        "clean": str(result.clean_path),
        "spectrogram": str(result.spectrogram_path),
        "model": str(MODEL),
    }


def _timing(timing: Timing) -> dict[str, float]:
    return {
        "median_us": timing.median_us,
        "p99_us": timing.p99_us,
        "times_real_time": timing.times_real_time,
    }


def _print(result: DemoResult) -> None:
    console = common.console()
    console.print(
        f"{result.seconds:.1f} s of {result.source}, {result.noise} noise added: "
        f"SNR {result.snr_in_db:.1f} dB -> {result.snr_out_db:.1f} dB "
        f"({result.gain_db:+.1f} dB)",
        soft_wrap=True,
    )
    table = common.table("One call per frame", "runtime", "median", "p99", "times real time")
    for name, timing in (("ostinato", result.timing), ("onnxruntime", result.peer_timing)):
        if timing is None:
            table.add_row(name, "not installed", "", "")
        else:
            figures = (common.format_seconds(us * 1e-6) for us in (timing.median_us, timing.p99_us))
            table.add_row(name, *figures, f"{timing.times_real_time:,.0f}x")
    common.show(table)
    if result.peer_timing and result.max_difference is not None:
        ratio = result.peer_timing.median_us / result.timing.median_us
        console.print(
            f"{ratio:.2f} times as fast; outputs differ by {result.max_difference:.1e} at most"
        )
    for what, path in _files(result).items():
        console.print(f"{what}: {path}", soft_wrap=True)
