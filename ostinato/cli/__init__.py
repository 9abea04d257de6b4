"""The command line: one file per command, what they share in `common`.

Nothing heavy is imported at the top of these files, so that `ostinato --help` answers at once:
a command imports NumPy, the compiler or a peer when it runs.
"""

from __future__ import annotations

import io
import sys


def main() -> None:
    """The `ostinato` script. Exit codes: 0 done, 1 an assertion failed, 2 an error."""
    from ostinato.cli.app import app

    # Names that the encoding of the output does not have, as in a file on Windows, are escaped.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="ostinato")
