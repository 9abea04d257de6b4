"""What the benchmarks share: arguments, the header of a report, peers measured side by side."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import peers, roofline
from ostinato.cli.timing import Timing, interleave

WRONG_ABOVE = 1e-4
console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)


def parser(
    description: str, seconds: float = 0.3, known: Sequence[str] = peers.PEERS
) -> argparse.ArgumentParser:
    """The arguments every benchmark has. known: the peers there are."""

    def chosen(text: str) -> list[str]:
        names = text.split(",")
        unknown = sorted(set(names) - set(known))
        if unknown:
            message = f"unknown peers {', '.join(unknown)}: there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(message)
        return names

    result = argparse.ArgumentParser(description=description)
    result.add_argument(
        "--peers",
        type=chosen,
        default=list(known),
        help=f"comma-separated, out of {','.join(known)}",
    )
    result.add_argument("--json", type=Path, help="also write the figures to this file")
    result.add_argument("--seconds", type=float, default=seconds, help="time for each figure")
    return result


def start(arguments: argparse.Namespace) -> list[str]:
    """Print the command line, the machine and versions. Returns the peers that are installed."""
    found = {peer: peers.version(peer) for peer in arguments.peers}
    console.print(f"$ python -m {_module()} {' '.join(sys.argv[1:])}".rstrip(), style="bold")
    console.print(
        f"{llvm.get_host_cpu_name()}, Python {platform.python_version()}, numpy {np.__version__}, "
        + ", ".join(f"{peer} {version}" for peer, version in found.items() if version)
    )
    absent = [peer for peer, version in found.items() if not version]
    if absent:
        console.print(f"not installed, left out: {', '.join(absent)}")
    return [peer for peer, version in found.items() if version]


def _module() -> str:
    """The name this program was started by, as `python -m` wants it."""
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else Path(sys.argv[0]).stem


@dataclass
class Measured:
    """A model in one peer: its timing, or the reason why there is none.

    difference: largest absolute difference to the first peer's outputs; None for the first itself.
    """

    timing: Timing | None = None
    difference: float | None = None
    error: str = ""

    @property
    def microseconds(self) -> float | None:
        """The median of a call."""
        return None if self.timing is None else self.timing.median * 1e6

    @property
    def wrong(self) -> bool:
        """Whether the outputs are not those of the first peer."""
        return self.difference is not None and not self.difference < WRONG_ABOVE


@dataclass
class Figures:
    """One row of a table: a model measured in every peer, and its lower bound in seconds."""

    name: str
    bound: float | None = None
    peers: dict[str, Measured] = field(default_factory=dict)

    def best_ratio(self) -> tuple[str, float] | None:
        """(peer, how many times longer it takes than ours), for the fastest that is not wrong."""
        ours = self.peers.get("ostinato", Measured()).timing
        others = {
            peer: measured.timing.median
            for peer, measured in self.peers.items()
            if peer != "ostinato" and measured.timing and not measured.wrong
        }
        if ours is None or not others:
            return None
        best = min(others, key=others.__getitem__)
        return best, others[best] / ours.median

    def of_bound(self) -> float | None:
        """The lower bound as a share of our time: 1 is as fast as this machine can be."""
        ours = self.peers.get("ostinato", Measured()).timing
        return None if ours is None or self.bound is None else self.bound / ours.median


def measure(
    name: str,
    model: Path,
    feeds: peers.Feeds,
    wanted: Sequence[str],
    seconds: float,
    bound: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Figures:
    """Load `model` in every peer, compare their outputs, and time bare calls side by side.

    Outputs are compared with onnxruntime's where that is among the peers, else with the first's.
    """
    figures, loaded = Figures(name, bound), {}
    reference: list[np.ndarray] | None = None
    order = sorted(wanted, key=lambda peer: peer != "onnxruntime")
    for peer in order:
        entry = figures.peers[peer] = Measured()
        try:
            loaded[peer] = peers.load(peer, model, feeds)
            outputs = loaded[peer].run(feeds)
        # A model that a peer cannot run is a result of the benchmark.
        except Exception as error:
            loaded.pop(peer, None)
            entry.error = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            continue
        if reference is None:
            reference = outputs
        else:
            entry.difference = difference(outputs, reference)
    timings = interleave({peer: each.step for peer, each in loaded.items()}, seconds, clock=clock)
    for peer, timing in timings.items():
        figures.peers[peer].timing = timing
    figures.peers = {peer: figures.peers[peer] for peer in wanted}
    return figures


def difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest |a - b| over all outputs; infinite where shapes differ."""
    if [np.shape(a) for a in outputs] != [np.shape(b) for b in expected]:
        return float("inf")
    pairs = zip(outputs, expected, strict=True)
    largest = [np.max(np.abs(np.subtract(a, b, dtype=np.float64)), initial=0.0) for a, b in pairs]
    return float(max(largest, default=0.0))


def table(title: str, first: str, columns: Sequence[str]) -> Table:
    """An empty table with one column of names, then figures."""
    result = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    result.add_column(first, no_wrap=True)
    for column in columns:
        result.add_column(column, justify="right")
    return result


def peer_table(title: str, rows: Sequence[Figures], wanted: Sequence[str]) -> Table:
    """Microseconds per peer, the best of the others as a ratio, and the share of the bound."""
    result = table(title, "us per call", [*wanted, "best other / ours", "of bound"])
    for row in rows:
        best, share = row.best_ratio(), row.of_bound()
        result.add_row(
            row.name,
            *(_cell(row.peers[peer]) for peer in wanted),
            f"{best[1]:.2f}x {best[0]}" if best else "-",
            f"{share:.0%}" if share is not None else "-",
        )
    return result


def _cell(measured: Measured) -> str:
    if measured.microseconds is None:
        return "-"
    microseconds = measured.microseconds
    text = f"{microseconds:,.0f}" if microseconds >= 1000 else f"{microseconds:.4g}"
    return text + (" WRONG" if measured.wrong else "")


def notes(rows: Sequence[Figures]) -> None:
    """Print why cells of the table are empty, each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for peer, measured in row.peers.items():
            if measured.error:
                reasons.setdefault((peer, measured.error), []).append(row.name)
    for (peer, reason), names in reasons.items():
        console.print(f"{peer} on {', '.join(names)}: {reason}", style="dim")


def each(title: str, names: Sequence[str], work: Callable[[str], Any]) -> list[Any]:
    """`work(name)` for every name, under a progress bar on stderr."""
    results = []
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title, total=len(names))
        for name in names:
            bar.update(task, description=f"{title}: {name}")
            results.append(work(name))
            bar.advance(task)
    return results


def add_limits(target: argparse.ArgumentParser) -> None:
    """The `--limits` argument."""
    target.add_argument(
        "--limits",
        type=Path,
        help="figures of `benchmarks.roofline --json` on this machine; default: measure now",
    )


def limits(path: Path | None) -> roofline.Roofline:
    """The limits of this core, from a file or measured now."""
    if path is not None:
        result = roofline.load(path)
    else:
        with Console(stderr=True).status("Measuring the limits of this core"):
            result = roofline.measure()
    console.print(
        f"FMA peak {result.peak / 1e9:.0f} GFLOP/s; reads "
        + ", ".join(
            f"{size // roofline.KIB} KiB {result.bandwidth(size) / 1e9:.0f} GB/s"
            for size in (32 << 10, 1 << 20, 4 << 20, 64 << 20)
        )
    )
    return result


def save(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write the figures as JSON with the command line, when the user asked for it."""
    if path is not None:
        record = {"command": [_module(), *sys.argv[1:]], "cpu": llvm.get_host_cpu_name(), **figures}
        path.write_text(json.dumps(record, indent=1))


def rows_as_json(rows: Sequence[Figures]) -> list[dict[str, Any]]:
    """Rows of `measure` for `save`."""
    return [asdict(row) for row in rows]
