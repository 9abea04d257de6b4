"""Checks that every case of the tests and every model of theirs computes the bits it did before.

python -m tools.digests                    compare with tests/digests.json
python -m tools.digests -k "GRU|Conv"      cases and models whose name the pattern finds
python -m tools.digests --write            record, where bits change by intent
python -m tools.digests --target TARGET    compare what code for another machine computes: one of
                                           x86-64 that this one runs, or of AArch64, emulated
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
from rich.progress import track

import ostinato
from ostinato.codegen.target import find_target
from ostinato.machine.targets import HOST
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.digests import FILE, RECORDED, digest

MODELS = FILE.parent / "models"


def of_case(case: Case, target: str = HOST) -> str | None:
    """The digest of a case; None where a part of it runs on reference kernels."""
    session = ostinato.InferenceSession(case.model, target=target)
    if session.report().interpreted:
        return None
    return digest([session.run(None, case.feeds(sizes)) for sizes in case.sizes])


def of_model(path: Path, target: str = HOST) -> str | None:
    """The digest of an exported model on the inputs recorded beside it."""
    session = ostinato.InferenceSession(path, target=target)
    runs: dict[str, dict[str, np.ndarray]] = {}
    with np.load(MODELS / f"{path.stem.partition('.')[0]}.npz") as file:
        for key in file.files:
            call, side, name = key.split("/")
            if side == "in":
                runs.setdefault(call, {})[name] = file[key]
    return digest([session.run(None, feeds) for feeds in runs.values()])


def compute(pattern: str, target: str = HOST) -> dict[str, str]:
    """Digests by name of what the pattern finds."""
    jobs: dict[str, Callable[[], str | None]]
    jobs = {case.name: lambda case=case: of_case(case, target) for case in CASES}
    jobs |= {p.name: lambda p=p: of_model(p, target) for p in sorted(MODELS.glob("*.onnx"))}
    chosen = {name: job for name, job in jobs.items() if re.search(pattern, name)}
    found = {
        name: job()
        for name, job in track(chosen.items(), "Running", disable=not sys.stderr.isatty())
    }
    return {name: value for name, value in found.items() if value is not None}


def _emulator() -> AbstractContextManager[None]:
    # An emulator is no part of what an AArch64 machine needs to check itself.
    from tests.targets.aarch64 import emulated

    return emulated()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or write; 1 if a digest changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", dest="pattern", default="", help="regular expression for names")
    parser.add_argument("--write", action="store_true", help="record what is computed now")
    parser.add_argument("--target", default=HOST, help="compile for it (docs/targets.md)")
    options = parser.parse_args(arguments)
    is_arm = options.target != HOST and find_target(options.target).architecture == "aarch64"
    with _emulator() if is_arm else nullcontext():
        found = compute(options.pattern, options.target)
    changed = sorted(name for name in found if found[name] != RECORDED.get(name))
    if options.write:
        kept = RECORDED if options.pattern else {}
        FILE.write_text(json.dumps(dict(sorted({**kept, **found}.items())), indent=0) + "\n")
    for name in changed:
        print(f"{name}: {RECORDED.get(name, 'not recorded')}, now {found[name]}")
    print(f"{len(found)} digests, {len(changed)} of them differ from tests/digests.json")
    return 1 if changed and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
