"""Damage small models and load and run each in a guarded process.

Loads go on in a child that is forked from a warm parent, some hundred in each. A child that dies or
takes too long tells which file did it, and another goes on behind it. What fails is tried again
with ever fewer edits, each alone in a child, and kept with its edits in a folder.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

import ostinato
import ostinato.compiler
from ostinato.codegen.target import Target
from ostinato.demo import MODEL
from tests.cases.table import CASES
from tools.fuzz import guarded
from tools.fuzz.damage import Edit, apply, draw
from tools.fuzz.guarded import Outcome

# Loads in one child.
_BATCH = 300
# A child that says nothing for so long is stuck where no CPU time passes.
_SILENCE = 6 * guarded.SECONDS
# Larger files are left out: most of their bytes are weights.
_LARGEST_FILE = 300_000
_ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Attempt:
    """A model and the edits made to it, all from a seed and a number."""

    model: int
    edits: tuple[Edit, ...]
    chance: int


@cache
def models() -> tuple[tuple[str, bytes], ...]:
    """The models to damage: name and bytes, files first, then the cases of the tests."""
    files = [*sorted((_ROOT / "tests/models").glob("*.onnx")), MODEL]
    found = [(path.name, path.read_bytes()) for path in files]
    kept = [(name, data) for name, data in found if len(data) <= _LARGEST_FILE]
    return (*kept, *((case.name, case.model.SerializeToString()) for case in CASES))


def plan(seed: int, number: int) -> Attempt:
    """What the load with this number does."""
    chance = random.Random(f"{seed} {number}")
    files = len(models()) - len(CASES)
    model = (
        chance.randrange(files) if chance.random() < 0.05 else files + chance.randrange(len(CASES))
    )
    return Attempt(model, tuple(draw(chance)), chance.getrandbits(32))


@cache
def _quick_machine(target: Target) -> Any:
    machine = llvm.Target.from_triple(target.triple).create_target_machine
    return machine(cpu=target.cpu, features=target.features, opt=0, reloc="pic", codemodel="small")


def _quick_object(text: str, target: Target, _: object = None) -> bytes:
    """Machine code without LLVM's optimizations, made in a third of the time."""
    return bytes(_quick_machine(target).emit_object(llvm.parse_assembly(text)))


class _Child:
    """A process that attempts one after the other and tells what became of each."""

    def __init__(self, attempts: Iterator[tuple[int, Attempt]], folder: Path) -> None:
        self.trace = folder / "trace"
        self._reader, writer = os.pipe()
        self._rest = b""
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        code = 1
        try:
            os.close(self._reader)
            _serve(attempts, folder, self.trace, writer)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def records(self) -> Iterator[dict[str, Any]]:
        """What it says, until it ends; a child that says nothing for long is ended."""
        while True:
            *lines, self._rest = self._rest.split(b"\n")
            yield from map(json.loads, lines)
            if not select.select([self._reader], [], [], _SILENCE)[0]:
                os.kill(self.pid, signal.SIGPROF)
            data = os.read(self._reader, 1 << 16)
            if not data:
                return
            self._rest += data

    def end(self) -> int:
        """Wait for it; returns the signal that ended it, or 0."""
        os.close(self._reader)
        status = os.waitpid(self.pid, 0)[1]
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _serve(attempts: Iterator[tuple[int, Attempt]], folder: Path, trace: Path, writer: int) -> None:
    log = trace.open("a")
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    guarded.limit(log)
    optimized = ostinato.compiler.emit_object
    path = folder / "model.onnx"
    for number, one in attempts:
        os.write(writer, json.dumps({"number": number}).encode() + b"\n")
        log.truncate(0)
        ostinato.compiler.emit_object = optimized if number % 8 == 0 else _quick_object
        try:
            data = apply(models()[one.model][1], one.edits)
        except Exception as error:
            data, outcome = b"", Outcome("no file", type(error).__name__)
        else:
            path.write_bytes(data)
            outcome = guarded.attempt(path, random.Random(one.chance))
        record = {"number": number, "outcome": asdict(outcome)}
        os.write(writer, json.dumps(record).encode() + b"\n")


def outcomes(
    attempts: Sequence[tuple[int, Attempt]], folder: Path
) -> Iterator[tuple[int, Outcome]]:
    """What becomes of each attempt; children end, the caller does not."""
    left = dict(attempts)
    while left:
        child = _Child(iter(list(left.items())), folder)
        current = next(iter(left))
        try:
            for record in child.records():
                current = record["number"]
                if "outcome" in record:
                    del left[current]
                    yield current, Outcome(**record["outcome"])
        except GeneratorExit:
            os.kill(child.pid, signal.SIGKILL)
            raise
        finally:
            code = child.end()
        if current in left:
            del left[current]
            text = child.trace.read_text(errors="replace")
            where = guarded.place_of_trace(text)
            kind = "hang" if code == signal.SIGPROF else "crash"
            name = signal.Signals(code).name if code in set(signal.Signals) else str(code)
            yield current, Outcome(kind, name, where, text[-2000:])


def minimal(attempt: Attempt, outcome: Outcome, number: int, folder: Path) -> Attempt:
    """The attempt with as few of its edits as fail for the same reason."""

    def fails(edits: Sequence[Edit]) -> bool:
        one = Attempt(attempt.model, tuple(edits), attempt.chance)
        ((_, got),) = outcomes([(number, one)], folder)
        return got.signature == outcome.signature

    edits = list(attempt.edits)
    for edit in attempt.edits:
        fewer = [other for other in edits if other is not edit]
        if fails(fewer):
            edits = fewer
    return Attempt(attempt.model, tuple(edits), attempt.chance)


def _show(counts: Counter[str], done: int, seconds: float) -> None:
    by_outcome = ", ".join(f"{kind} {n}" for kind, n in counts.most_common())
    print(f"{seconds:6.0f} s {done:7,} loads: {by_outcome}", flush=True)


def _keep(attempt: Attempt, outcome: Outcome, number: int, folder: Path) -> Path:
    """Write the damaged model and what it is about; returns the folder."""
    name = "-".join(part for part in (outcome.kind, outcome.what, outcome.where) if part)
    kept = folder / re.sub(r"[^\w.-]+", "_", name)[:120]
    kept.mkdir(parents=True, exist_ok=True)
    source, data = models()[attempt.model]
    (kept / "model.onnx").write_bytes(apply(data, attempt.edits))
    about = {"model": source, "number": number, **asdict(attempt), "outcome": asdict(outcome)}
    (kept / "about.json").write_text(json.dumps(about, indent=1))
    return kept


def run(seconds: float, seed: int, count: int | None, folder: Path) -> int:
    """Load damaged models until the time or the count is over; returns the number that failed.

    Prints counts by outcome as it goes. `folder` gets one reproducer for each way to fail.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    ostinato.InferenceSession(MODEL, cache_dir=None)
    counts: Counter[str] = Counter()
    kept: dict[tuple[str, str, str], Path] = {}
    start = time.monotonic()
    done = 0
    with tempfile.TemporaryDirectory() as scratch:
        while time.monotonic() - start < seconds and (count is None or done < count):
            size = _BATCH if count is None else min(_BATCH, count - done)
            batch = {number: plan(seed, number) for number in range(done, done + size)}
            for number, outcome in outcomes(list(batch.items()), Path(scratch)):
                counts[" ".join(filter(None, (outcome.kind, outcome.what)))] += 1
                done += 1
                if outcome.is_failure and outcome.signature not in kept:
                    small = minimal(batch[number], outcome, number, Path(scratch))
                    kept[outcome.signature] = _keep(small, outcome, number, folder)
                    print(
                        f"\n{outcome.kind} {outcome.what} {outcome.where}: "
                        f"{outcome.message[-1200:]}\n  {kept[outcome.signature]}",
                        flush=True,
                    )
                if time.monotonic() - start > seconds:
                    break
            _show(counts, done, time.monotonic() - start)
    failures = sum(n for kind, n in counts.items() if kind.split()[0] in guarded.FAILURES)
    print(f"{done:,} loads, {failures} failures in {len(kept)} ways")
    return failures
