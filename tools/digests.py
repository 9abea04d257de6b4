"""Checks that every case of the tests and every model of theirs computes the bits it did before.

python -m tools.digests                    compare with tests/digests.json
python -m tools.digests -k "GRU|Conv"      cases and models whose name the pattern finds
python -m tools.digests --write            record, where bits change by intent
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.progress import track

import ostinato
from tests.cases.case import Case
from tests.cases.table import CASES
from tests.digests import FILE, RECORDED, digest

MODELS = FILE.parent / "models"


def of_case(case: Case) -> str | None:
    """The digest of a case; None where a part of it runs on reference kernels."""
    session = ostinato.InferenceSession(case.model)
    if session.report().interpreted:
        return None
    return digest([session.run(None, case.feeds(sizes)) for sizes in case.sizes])


def of_model(path: Path) -> str | None:
    """The digest of an exported model on the inputs recorded beside it."""
    session = ostinato.InferenceSession(path)
    runs: dict[str, dict[str, np.ndarray]] = {}
    with np.load(MODELS / f"{path.stem.partition('.')[0]}.npz") as file:
        for key in file.files:
            call, side, name = key.split("/")
            if side == "in":
                runs.setdefault(call, {})[name] = file[key]
    return digest([session.run(None, feeds) for feeds in runs.values()])


def compute(pattern: str) -> dict[str, str]:
    """Digests by name of what the pattern finds."""
    jobs: dict[str, Callable[[], str | None]] = {c.name: lambda c=c: of_case(c) for c in CASES}
    jobs |= {p.name: lambda p=p: of_model(p) for p in sorted(MODELS.glob("*.onnx"))}
    chosen = {name: job for name, job in jobs.items() if re.search(pattern, name)}
    found = {
        name: job()
        for name, job in track(chosen.items(), "Running", disable=not sys.stderr.isatty())
    }
    return {name: value for name, value in found.items() if value is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or write; 1 if a digest changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", dest="pattern", default="", help="regular expression for names")
    parser.add_argument("--write", action="store_true", help="record what is computed now")
    options = parser.parse_args(arguments)
    found = compute(options.pattern)
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
