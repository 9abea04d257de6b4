"""A host with AArch64: Debian's Python under qemu, with this package and what it needs.

The files lie in a folder of the user's cache and are made once. Nothing of them is installed on
this machine, and no rights are needed beyond those to run debootstrap.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ostinato.codegen.objects import versions
from tools.programs import ROOM, Unavailable

REPOSITORY = Path(__file__).parents[2]
EMULATOR = "qemu-aarch64-static"
# Its Python is 3.11.
_RELEASE, _PYTHON = "bookworm", "3.11"
# Wheels are made for these kinds of systems.
_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64")
_ALSO = ("pytest", "hypothesis", "mpmath")
_PATIENCE = 600


def run(arguments: Sequence[str], cpu: str = "max", patience: int = _PATIENCE) -> str:
    """What Python prints there, in the folder of the repository. Raises `AssertionError`.

    cpu: as qemu names them.
    """
    root, wheels = _root(), _wheels()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(wheels), str(REPOSITORY)]),
        "QEMU_LD_PREFIX": str(root),
        "QEMU_CPU": cpu,
    }
    command = [EMULATOR, str(root / "usr/bin/python3"), *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=patience
    )
    assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout[-3000:]}{done.stderr}"
    return done.stdout


def _root() -> Path:
    """The files of a small Debian. Raises `Unavailable`."""
    root = ROOM / f"arm64-{_RELEASE}"
    if root.exists():
        return root
    for program in (EMULATOR, "debootstrap", "dpkg"):
        if shutil.which(program) is None:
            raise Unavailable(f"there is no {program} on this machine")
    draft = root.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    what = ("--foreign", "--variant=minbase", "--include=python3")
    _made(["debootstrap", "--arch=arm64", *what, _RELEASE, str(draft)])
    # Nothing is configured: Python needs its files alone.
    for package in sorted((draft / "var/cache/apt/archives").glob("*.deb")):
        _made(["dpkg", "-x", str(package), str(draft)])
        package.unlink()
    draft.rename(root)
    return root


def _wheels() -> Path:
    """The folder of the packages that this one and its tests need. Raises `Unavailable`."""
    needed = [
        name
        for name in importlib.metadata.requires("ostinato") or ()
        if "extra ==" not in name.replace("'", '"')
    ]
    folder = ROOM / f"wheels-{_PYTHON}-llvmlite-{versions()[0]}"
    if folder.exists():
        return folder
    draft = folder.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    options = ["--target", str(draft), "--python-version", _PYTHON, "--only-binary", ":all:"]
    options += [word for name in _PLATFORMS for word in ("--platform", name)]
    # Conditions in the list are those of this Python.
    if platform.python_version().startswith(f"{_PYTHON}."):
        options += ["--constraint", str(REPOSITORY / "constraints.txt")]
    _made([sys.executable, "-m", "pip", "install", "-q", *options, *needed, *_ALSO])
    draft.rename(folder)
    return folder


def _made(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()
        raise Unavailable(f"{command[0]}: {said[-1] if said else error}") from error
