"""Zig, whose compiler and linkers for all systems come as one Python package."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ostinato.errors import OptionError, OstinatoError

_INSTALL = "pip install 'ostinato[build]'"

# Linking takes a fraction of a second, the first time for a system up to a minute.
_PATIENCE = 600


def require_zig(what: str) -> None:
    """Raise `OptionError`, which says what to install, where there is no linker for `what`."""
    if importlib.util.find_spec("ziglang") is None:
        raise OptionError(f"{what} needs the linker of `ziglang`: {_INSTALL}")


def zig(arguments: Sequence[str], folder: Path) -> None:
    """Run it in a folder. Raises `OstinatoError` with what it says where it fails."""
    command = [sys.executable, "-m", "ziglang", *arguments]
    try:
        subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=_PATIENCE
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip()
        raise OstinatoError(f"zig {' '.join(arguments)}: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OstinatoError(f"zig {' '.join(arguments)}: {error}") from error
