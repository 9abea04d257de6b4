"""python -m ostinato.onnxruntime [-m MODULE | PROGRAM] ARGS: a program that gets this package."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import zipfile
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path

from ostinato.onnxruntime.install import install

USAGE = """\
usage: python -m ostinato.onnxruntime PROGRAM [ARGS ...]
       python -m ostinato.onnxruntime -m MODULE [ARGS ...]

Runs a Python program whose `import onnxruntime` gets ostinato.onnxruntime: its models are compiled
once, and run as native code. PROGRAM is a file, or the name of a command written in Python."""

# What a folder or an archive that is a program has one of.
_MAIN = ("__main__.py", "__main__.pyc")


def main(arguments: list[str]) -> int:
    """Run the program as its own interpreter would; 2 where there is none."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] == "-m":
        if len(arguments) < 2:
            return _refuse("-m: expected the name of a module")
        install()
        sys.argv = arguments[1:]
        # Where a program would find modules of its own, as `python -m` has it.
        sys.path.insert(0, os.getcwd())
        missing = _missing(arguments[1])
        if missing:
            return _refuse(f"-m {arguments[1]}: {missing}")
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    program = arguments[0]
    path = program if os.path.exists(program) else shutil.which(program)
    if path is None:
        return _refuse(f"{program}: there is no such file, and no such command")
    if not _is_program(Path(path)):
        return _refuse(f"{path} is no Python program")
    install()
    sys.argv = [path, *arguments[1:]]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")
    return 0


def _missing(module: str) -> str | None:
    """Why `python -m` finds nothing to run; None where it does."""
    try:
        found = find_spec(module)
        if found is None:
            return "there is no such module"
        if found.submodule_search_locations is None or find_spec(f"{module}.__main__"):
            return None
    except (ImportError, ValueError) as error:
        return str(error)
    return "it is a package without __main__.py, and no program"


def _is_program(path: Path) -> bool:
    """Whether Python can take it: `__main__.py` in it, text, or compiled text."""
    if path.is_dir():
        return any((path / name).exists() for name in _MAIN)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(name in archive.namelist() for name in _MAIN)
    contents = path.read_bytes()
    return contents.startswith(MAGIC_NUMBER) or b"\0" not in contents


def _refuse(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
