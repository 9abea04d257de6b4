"""Random command lines: a result, or an error in one sentence, and the exit code that says so.

python -m tools.fuzz commands --seconds 60
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import tempfile
import warnings
from pathlib import Path

from typer.testing import CliRunner

from ostinato.cli.app import app
from tools.fuzz.graphs import Outcome, in_child
from tools.fuzz.random_commands import random_command
from tools.fuzz.seeds import try_seeds

CHILD_SECONDS = 150.0
# What an error says of an exception that no rule foresaw.
_DEFECT = "this package is wrong"


def check(seed: int, folder: Path) -> Outcome:
    """Call one command line, whose files are in `folder`."""
    logging.disable()
    warnings.simplefilter("ignore")
    os.chdir(folder)
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "160"}
    words = random_command(seed, folder)
    result = CliRunner().invoke(app, words)
    told = shlex.join(words)[:1000]
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        error = result.exception
        return Outcome("exception", f"{told}: {type(error).__name__}: {str(error)[:500]}")
    if _DEFECT in result.stderr or "Traceback" in result.stderr:
        return Outcome("exception", f"{told}: {result.stderr[:1000]}")
    if result.exit_code not in (0, 1, 2):
        return Outcome("exception", f"{told}: exit code {result.exit_code}")
    if result.exit_code == 2:
        return refused(told, result.stderr, result.stdout)
    if "--json" in words:
        try:
            json.loads(result.stdout)
        except ValueError as error:
            return Outcome("exception", f"{told}: no JSON: {error}: {result.stdout[:300]}")
    return Outcome(f"{words[0]} {result.exit_code}")


def refused(told: str, stderr: str, stdout: str) -> Outcome:
    """Whether an error is a sentence on stderr, after words on progress, and nothing else."""
    # What an error lists is indented below it.
    lines = [line for line in stderr.strip().splitlines() if not line.startswith("  ")]
    is_usage = any(line.startswith("Usage:") for line in (each.strip() for each in lines))
    errors = [line for line in lines if line.startswith("error: ")]
    if stdout.strip():
        return Outcome("exception", f"{told}: an error, and on stdout: {stdout[:300]}")
    if is_usage and not errors:
        return Outcome("usage")
    if len(errors) != 1 or not lines[-1].startswith("error: ") or len(lines[-1]) < 20:
        return Outcome("exception", f"{told}: no sentence: {stderr[:600]}")
    return Outcome("refused", f"{told}: {lines[-1]}")


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each in a process and a folder of its own."""

    def apart(seed: int) -> Outcome:
        with tempfile.TemporaryDirectory() as files:
            place = Path(files)
            return in_child(lambda: (check(seed, place), []), CHILD_SECONDS)[0]  # type: ignore[no-any-return]

    def words(seed: int) -> str:
        with tempfile.TemporaryDirectory() as files:
            return shlex.join(random_command(seed, Path(files)))

    return try_seeds(apart, words, seconds, seed, count, folder)
