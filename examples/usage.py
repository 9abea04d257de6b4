"""How the examples are called, and what they say when something is missing: no example itself."""

import re
import sys
from pathlib import Path


def stop(message):
    """End with one line for the reader and exit code 2."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def arguments(text):
    """Give the arguments of an example: as many as are named in a line of its docstring.

    text: the docstring. Its line `python FILE NAMES` says what is expected, its line `pip install`
        what to install. `--help` prints all of it.

    From here on, a package, model or recording that is missing or damaged ends the program with
    one line and exit code 2. In a notebook, which has no command line, nothing happens.
    """
    if not hasattr(sys.modules["__main__"], "__file__"):
        return []
    given = sys.argv[1:]
    if {"-h", "--help"} & {*given}:
        print(text.strip())
        sys.exit()
    names = re.search(r"^ *python \S+(.*)$", text, re.M)
    names = names[1].split() if names else []
    if len(given) != len(names):
        call = " ".join(["python", sys.argv[0], *names])
        stop(f"expected {' '.join(names) or 'no arguments'}: {call}  (--help says more)")
    explain(text)
    return given


def explain(text):
    """From here on, say in one line what to install or which file is missing; see `arguments`."""
    sys.excepthook = lambda *error: _explain(text, *error)


def _explain(text, kind, error, trace):
    """One line for what the reader can mend, a traceback for everything else."""
    if isinstance(error, ModuleNotFoundError):
        install = re.search(r"^ *(pip install .*)$", text, re.M)
        stop(f"{error.name} is not installed: {install[1] if install else 'pip install ostinato'}")
    expected = [OSError]
    for package, name in (("ostinato", "OstinatoError"), ("soundfile", "SoundFileError")):
        if package in sys.modules:
            expected.append(getattr(sys.modules[package], name))
    if isinstance(error, tuple(expected)):
        stop(f"{type(error).__name__}: {error}".replace("\n", " "))
    sys.__excepthook__(kind, error, trace)
