"""Executes models on every target: one table of digests of their outputs, one of sizes.

python -m tools.targets --models DIR              print both; exit code 1 where bits differ
python -m tools.targets --write docs/targets.md   put them into the document, too

DIR has the DTLN models and silero; without it they are left out. Each cell is a C program that
calls the library which `ostinato build` writes, executed by this CPU, qemu, wine or wasmtime.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import ostinato
from tests.digests import digest
from tools.programs import MACHINES, Built, Unavailable
from tools.target_models import Calls, denoiser, gru_decoder, integers

STEPS = 50
_PLACE = re.compile(r"(<!-- tools\.targets -->\n).*?(<!-- end -->\n)", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """A model and its calls: steps of a stream where it has states."""

    title: str
    model: Any
    states: dict[str, str] | None
    calls: Calls
    initial: dict[str, Any] | None = None


def _dtln(path: Path, size: int, names: Sequence[str]) -> Row:
    rng = np.random.default_rng(3)
    frame, state, following = names
    frames = [{frame: rng.random((1, 1, size), np.float32)} for _ in range(STEPS)]
    return Row(path.stem.replace("_", " "), path, {state: following}, frames)


def _silero(path: Path) -> Row:
    rng = np.random.default_rng(4)
    frames = [
        {"input": rng.standard_normal((1, 576)).astype(np.float32), "sr": np.array(16000)}
        for _ in range(STEPS)
    ]
    state = {"state": np.zeros((2, 1, 128), np.float32)}
    return Row("silero vad", path, {"state": "stateN"}, frames, state)


def rows(models: Path | None) -> list[Row]:
    """What is executed; `models`: the folder of those that are no part of this repository."""
    found = [Row("demo denoiser", *denoiser())]
    if models is not None:
        one, two = models / "dtln_model_1.onnx", models / "dtln_model_2.onnx"
        found.append(_dtln(one, 257, ("input_2", "input_3", "tf_op_layer_stack_2")))
        found.append(_dtln(two, 512, ("input_4", "input_5", "tf_op_layer_stack_5")))
        found.append(_silero(models / "silero_vad.onnx"))
    decoder, prompts = gru_decoder()
    layers, batches = integers()
    found.append(Row("GRU decoder, a Loop", decoder, None, prompts))
    found.append(Row("quantised layers", layers, None, batches))
    return found


def expected(row: Row) -> list[dict[str, Any]]:
    """The outputs of each call of a session on this machine."""
    session = ostinato.InferenceSession(row.model)
    states = row.states or {}
    names = [o.name for o in session.get_outputs() if o.name not in states.values()]
    call: Callable[[Any], list[Any]] = lambda feeds: session.run(None, feeds)  # noqa: E731
    if states:
        call = session.stream(states, initial=row.initial).step
    return [dict(zip(names, call(feeds), strict=True)) for feeds in row.calls]


def _digest(calls: Sequence[dict[str, Any]]) -> str:
    return digest([list(outputs.values()) for outputs in calls])[:8]


def tables(models: Path | None) -> tuple[str, bool, list[str]]:
    """The text, whether all bits are the same, and what could not be executed."""
    titles = [machine.title for machine in MACHINES]
    digests = [["model", "calls", "session", *titles]]
    sizes = [["bytes of", "weights", *titles]]
    same, failures = True, []
    work = rows(models)
    for row in track(work, "Executing", disable=not sys.stderr.isatty()):
        wanted = expected(row)
        shapes = {name: [np.shape(made[name]) for made in wanted] for name in wanted[0]}
        cells, code, weights = [], [], []
        for machine in MACHINES:
            built = Built.of(row.model, machine.target, row.states, row.calls, row.initial)
            code.append(f"{built.library.code_bytes:,}")
            weights.append(built.library.interface.constant_bytes)
            try:
                cells.append(_digest(built.results(shapes, machine)))
            except Unavailable as error:
                failures.append(f"{row.title}, {machine.title}: {error}")
                cells.append("-")
        own = _digest(wanted)
        same = same and set(cells) <= {own, "-"}
        digests.append([row.title, str(len(row.calls)), own, *cells])
        sizes.append([row.title, _range(weights), *code])
    return f"{_table(digests)}\n{_table(sizes)}", same, failures


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    rule = ["---", *["---:" for _ in head[1:]]]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, write; 1 where bits differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, help="folder of DTLN and silero")
    parser.add_argument("--write", type=Path, help="document that has a place for the tables")
    options = parser.parse_args(arguments)
    text, same, failures = tables(options.models)
    print(text)
    for failure in failures:
        print(f"not executed: {failure}")
    print("the same bits everywhere" if same else "bits differ")
    if options.write:
        document = options.write.read_text()
        options.write.write_text(_PLACE.sub(lambda m: f"{m[1]}\n{text}\n{m[2]}", document))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
