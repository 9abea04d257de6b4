"""C programs for other machines: compiled by Zig, run by qemu and wine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ostinato.machine.targets import Target

# How Zig names the systems; programs for Linux are static.
_TRIPLES = {
    ("x86_64", "linux"): "x86_64-linux-musl",
    ("aarch64", "linux"): "aarch64-linux-musl",
    ("x86_64", "windows"): "x86_64-windows-gnu",
    ("wasm32", "none"): "wasm32-wasi",
}
_PATIENCE = 300


def compiled(
    target: Target, folder: Path, files: Sequence[str], options: Sequence[str] = ()
) -> Path:
    """A program of these files, C and objects, in a folder. Skips the test without Zig."""
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    name = folder / ("program.exe" if target.system == "windows" else "program")
    triple = _TRIPLES[target.architecture, target.system]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", triple, "-O1", *options]
    _run([*command, *files, "-o", str(name)], folder)
    return name


def run(program: Path, arguments: Sequence[str], cpu: str | None = None) -> str:
    """What a program prints. Skips the test where it cannot be run.

    cpu: that of a program for AArch64, as qemu names it.
    """
    emulator = "wine" if program.suffix == ".exe" else "qemu-aarch64-static" if cpu else None
    if emulator is not None and shutil.which(emulator) is None:
        pytest.skip(f"there is no {emulator} on this machine")
    before = [] if emulator is None else [emulator, *(["-cpu", cpu] if cpu else [])]
    return _run([*before, str(program), *arguments], program.parent)


def _run(command: Sequence[str], folder: Path) -> str:
    room = Path.home() / ".cache" / "ostinato-targets" / "wine"
    room.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "WINEPREFIX": str(room), "WINEDEBUG": "-all"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_PATIENCE
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout
