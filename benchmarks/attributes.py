"""Which attributes and features of recurrences each runtime gets right.

    python -m benchmarks.attributes [--cases 'LSTM*'] [--peers A,B] [--write docs/recurrence.md]

Every model runs in every runtime in a process of its own, which may refuse it, end or hang. Results
are held against the operator documents: `attribute_cases`, `attribute_scans`, `attribute_loops`.
`--write` replaces the table between the markers in a file.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.progress import Progress

from benchmarks import attribute_cases, attribute_loops, attribute_scans, peers
from benchmarks.attribute_cases import Case

PEERS = ("ostinato", "onnxruntime", "openvino", "tract", "mnn")
TITLES = {"ostinato": "Ostinato", "openvino": "OpenVINO", "mnn": "MNN"}
BAD = ("ignored", "wrong", "crashed", "hangs")
SECONDS = 60
ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- attributes: begin -->", "<!-- attributes: end -->"
console = Console(highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Answer:
    """What a runtime made of a case.

    kind: "right", "native" and "fallback" (both right, for Ostinato), "other reading", "ignored"
    (the results are those of the node without the feature), "wrong", "refused", "crashed" (Ostinato
    also: an exception that is none of its own), "hangs" or "not asked".
    detail: the message, the error or the signal behind it.
    """

    kind: str
    detail: str = ""


def cases() -> list[Case]:
    """All of them, in the order of the table."""
    return [
        *attribute_cases.cells(),
        *attribute_scans.scans(),
        *attribute_loops.loops(),
        *attribute_loops.ifs(),
    ]


def error(outputs: Sequence[Any], expected: Sequence[np.ndarray]) -> float:
    """The largest |got - expected|, relative to the largest element of the output it is in.

    Infinite for another number of outputs, other shapes, and NaN.
    """
    if [np.shape(a) for a in outputs] != [np.shape(b) for b in expected]:
        return float("inf")
    largest = 0.0
    for got, want in zip(outputs, expected, strict=True):
        exact = np.asarray(want, np.float64)
        difference = np.abs(np.asarray(got).astype(np.float64) - exact).max(initial=0.0)
        relative = float(difference / (np.abs(exact).max(initial=0.0) or 1.0))
        if np.isnan(relative):
            return float("inf")
        largest = max(largest, relative)
    return largest


def judge(case: Case, outputs: Sequence[Any], is_native: bool | None = None) -> Answer:
    """The answer behind `outputs`; is_native: of Ostinato, whether no fallback kernel ran."""
    found = error(outputs, case.expected)
    if found <= case.tolerance:
        names = {None: "right", True: "native", False: "fallback"}
        return Answer(names[is_native])
    if case.other is not None and error(outputs, case.other) <= case.tolerance:
        return Answer("other reading", case.reading)
    if case.ignored is not None and error(outputs, case.ignored) <= case.tolerance:
        return Answer("ignored", f"error {found:.2g} of the largest element")
    if found == float("inf"):
        got, want = ([list(np.shape(a)) for a in each] for each in (outputs, case.expected))
        return Answer("wrong", "NaN" if got == want else f"shapes {got}, not {want}")
    return Answer("wrong", f"error {found:.2g} of the largest element")


def run(peer: str, folder: Path) -> None:
    """In a process of its own: run the model in `folder`, write what came out beside it."""
    feeds = pickle.loads((folder / "feeds").read_bytes())
    path, result = folder / "model.onnx", dict[str, Any]()
    try:
        if peer == "ostinato":
            import ostinato

            session = ostinato.InferenceSession(path, cache_dir=None)
            result["outputs"] = session.run(None, feeds)
            result["is_native"] = not session.report().interpreted
        elif peer == "onnxruntime":
            from ostinato.cli.witness import onnxruntime_session

            result["outputs"] = onnxruntime_session(path).run(None, feeds)
        else:
            result["outputs"] = peers.load(peer, path, feeds).run(feeds)
    # A model that a runtime refuses is a result.
    except Exception as refusal:
        text = f"{type(refusal).__name__}: {' '.join(str(refusal).split())}"
        result = {"answer": (_kind(peer, refusal), text)}
    (folder / "result").write_bytes(pickle.dumps(result))


def _kind(peer: str, refusal: Exception) -> str:
    """The kind of answer that an exception is."""
    if peer == "ostinato":
        from ostinato.errors import OstinatoError

        return "refused" if isinstance(refusal, OstinatoError) else "crashed"
    # What MNN returns is given the declared shape; where that is impossible, its size is wrong.
    return "wrong" if peer == "mnn" and "cannot reshape" in str(refusal) else "refused"


def _with_shapes(case: Case) -> onnx.ModelProto:
    """The model with the sizes of its outputs declared, which `peers` reads them from for MNN."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value, array in zip(model.graph.output, case.expected, strict=True):
        shape = value.type.tensor_type.shape
        shape.ClearField("dim")
        for size in array.shape:
            shape.dim.add(dim_value=size)
    return model


def ask(case: Case, peer: str, seconds: float = SECONDS) -> Answer:
    """What `peer` makes of `case`, in a fresh process that has `seconds`."""
    if peer == "mnn" and any(array.dtype == np.float64 for array in case.feeds.values()):
        return Answer("not asked", "no float64 in its Python interface")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = _with_shapes(case) if peer == "mnn" else case.model
        onnx.save(model, str(folder / "model.onnx"))
        (folder / "feeds").write_bytes(pickle.dumps(case.feeds))
        command = [sys.executable, "-m", "benchmarks.attributes", "--run", peer, str(folder)]
        # A file, not a pipe: what a runtime started may outlive it and hold the pipe open.
        with (folder / "printed").open("wb") as out:
            try:
                process = subprocess.run(command, stdout=out, stderr=out, timeout=seconds, cwd=ROOT)
            except subprocess.TimeoutExpired:
                return Answer("hangs", f"no answer in {seconds:g} seconds")
        if not (folder / "result").exists():
            printed = (folder / "printed").read_text(errors="replace").strip().splitlines()
            return Answer("crashed", " ".join([f"code {process.returncode}", *printed[-1:]]))
        result = pickle.loads((folder / "result").read_bytes())
    if "answer" in result:
        return Answer(*result["answer"])
    return judge(case, result["outputs"], result.get("is_native"))


Answers = dict[tuple[str, str], Answer]


def ask_all(wanted: Sequence[Case], runtimes: Sequence[str]) -> Answers:
    """The answers by (name of the case, runtime)."""
    pairs = [(case, peer) for case in wanted for peer in runtimes]
    bar_console = Console(stderr=True)
    with (
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
        Progress(console=bar_console, transient=True, disable=not bar_console.is_terminal) as bar,
    ):
        answers = bar.track(
            pool.map(lambda pair: ask(*pair), pairs), total=len(pairs), description="Asking"
        )
        return {(case.name, peer): a for (case, peer), a in zip(pairs, answers, strict=True)}


def _cell(answers: Iterable[tuple[str, Answer]]) -> str:
    """One word, or each word with the operators it holds for."""
    groups: dict[str, list[str]] = {}
    for group, answer in answers:
        groups.setdefault(answer.kind, []).append(group)
    texts = {kind: _emphasis(kind) for kind in groups}
    if len(groups) == 1:
        return next(iter(texts.values()))
    return ", ".join(f"{' '.join(names)} {texts[kind]}" for kind, names in groups.items())


def _emphasis(kind: str) -> str:
    return f"**{kind}**" if kind in BAD else kind


def table(wanted: Sequence[Case], answers: Answers, runtimes: Sequence[str]) -> str:
    """Markdown: a table for the cells and one for each of Scan, Loop and If."""
    parts = []
    cells = attribute_cases.CELLS
    for title, groups in (
        ("RNN, GRU, LSTM", cells),
        *((name, (name,)) for name in ("Scan", "Loop", "If")),
    ):
        rows: dict[str, list[Case]] = {}
        for case in wanted:
            if case.group in groups:
                rows.setdefault(case.feature, []).append(case)
        if not rows:
            continue
        lines = [
            f"| {title} | {' | '.join(TITLES.get(peer, peer) for peer in runtimes)} |",
            "|---" * (len(runtimes) + 1) + "|",
        ]
        for feature, members in rows.items():
            only = {case.group for case in members} != set(groups)
            names = f" ({', '.join(case.group for case in members)})" if only else ""
            found = [_cell((c.group, answers[c.name, peer]) for c in members) for peer in runtimes]
            lines.append(f"| {feature}{names} | {' | '.join(found)} |")
        parts.append("\n".join(lines))
    parts += [_summary(wanted, answers, runtimes), _readings(wanted)]
    return "\n\n".join(part for part in parts if part)


def _summary(wanted: Sequence[Case], answers: Answers, runtimes: Sequence[str]) -> str:
    kinds = ("right", "other reading", *BAD, "refused", "not asked")
    header = f"| of {len(wanted)} cases | {' | '.join(kinds)} |"
    lines = [header, "|---" + "|---:" * len(kinds) + "|"]
    for peer in runtimes:
        found = [answers[case.name, peer].kind for case in wanted]
        found = ["right" if kind in ("native", "fallback") else kind for kind in found]
        version = f"{TITLES.get(peer, peer)} {peers.version(peer)}"
        lines.append(f"| {version} | {' | '.join(str(found.count(kind)) for kind in kinds)} |")
    return "\n".join(lines)


def _readings(wanted: Sequence[Case]) -> str:
    """What "other reading" stands for, each point once."""
    points = {case.feature: case.reading for case in wanted if case.reading}
    return "\n".join(f"* Other reading of *{name}*: {text}." for name, text in points.items())


def replace_section(path: Path, text: str) -> None:
    """Put `text` between the markers in `path`. Raises SystemExit where they are missing."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{path}: no lines {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description="attributes of recurrences over runtimes")
    parser.add_argument("--cases", default="*", help="pattern of names, such as 'LSTM: clip*'")
    parser.add_argument(
        "--peers",
        type=lambda text: text.split(","),
        default=list(PEERS),
        help=f"comma-separated, out of {','.join(PEERS)}",
    )
    parser.add_argument("--write", type=Path, help="replace the table in this Markdown file")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.run[0], Path(arguments.run[1]))
        return
    unknown = sorted(set(arguments.peers) - set(PEERS))
    if unknown:
        raise SystemExit(f"unknown peers {', '.join(unknown)}: there are {', '.join(PEERS)}")
    wanted = [case for case in cases() if fnmatch.fnmatch(case.name, arguments.cases)]
    runtimes = [peer for peer in arguments.peers if peers.version(peer)]
    answers = ask_all(wanted, runtimes)
    for (name, peer), answer in answers.items():
        if answer.detail:
            console.print(f"{name}: {peer} {answer.kind}: {answer.detail[:300]}")
    text = table(wanted, answers, runtimes)
    console.print(text)
    if arguments.write:
        replace_section(arguments.write, text)


if __name__ == "__main__":
    main()
