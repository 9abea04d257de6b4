"""Objects that LLVM made, kept from run to run in pytest's cache.

LLVM takes a third of the time of a run, and was given nearly all texts in the run before. An object
depends on the text, the target, LLVM and the code that calls it, and these are its name. What was
used longest ago goes when all are too large; `pytest --cache-clear` removes all.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding

from ostinato.codegen import llvm, target, webassembly
from ostinato.codegen.target import Target

# Names the folder; `tests/conftest.py` sets it. Without one nothing is kept.
FOLDER = "OSTINATO_TESTS_OBJECTS"
# Of fewer characters LLVM makes an object in about a millisecond, and a file takes a fifth of that.
SHORTEST = 4000
# A run has a tenth of these bytes.
MOST_BYTES = 1 << 30


def kept(make: Callable[[str, Target], bytes]) -> Callable[[str, Target], bytes]:
    """The function, which finds again what it made of the same arguments."""
    parts = (llvm, target, webassembly, sys.modules[make.__module__])
    callers = [make.__qualname__, *map(inspect.getsource, parts)]
    versions = [llvmlite.__version__, *map(str, llvmlite.binding.llvm_version_info)]
    made_by = "\n".join((*callers, *versions))

    def found(text: str, target: Target) -> bytes:
        if FOLDER not in os.environ or len(text) < SHORTEST:
            return make(text, target)
        key = hashlib.sha256("\n".join((made_by, _spelled(target), text)).encode()).hexdigest()
        path = Path(os.environ[FOLDER], key)
        try:
            made = zlib.decompress(path.read_bytes())
            os.utime(path)
        except (OSError, zlib.error):
            made = make(text, target)
            # Workers, and threads of one, may write at the same time.
            draft = path.with_name(f"{key}.{os.getpid()}.{threading.get_ident()}")
            draft.write_bytes(zlib.compress(made, 1))
            draft.replace(path)
        return made

    return found


@cache
def _spelled(target: Target) -> str:
    return repr(target)


def trim(folder: Path, most: int = MOST_BYTES) -> None:
    """Remove what was used longest ago, until no more than `most` bytes are left."""
    found = []
    # Another run may do the same.
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            facts = path.stat()
            found.append((facts.st_mtime_ns, path, facts.st_size))
    left = sum(size for *_, size in found) - most
    for _, path, size in sorted(found):
        if left <= 0:
            break
        path.unlink(missing_ok=True)
        left -= size
