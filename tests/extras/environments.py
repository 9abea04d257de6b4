"""The environments that `python -m tools.install_extras` makes, as tests use them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import install_extras


def python(name: str) -> Path:
    """The interpreter of an environment; skips the test where it was not made."""
    path = install_extras.python(name)
    if not (path.parents[1] / ".ready").exists():
        pytest.skip(f"no environment {name!r}: python -m tools.install_extras {name}")
    return path


def run(name: str, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run Python of an environment with this package on its path."""
    environment = {**os.environ, "PYTHONPATH": str(install_extras.ROOT)}
    return subprocess.run(
        [str(python(name)), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
