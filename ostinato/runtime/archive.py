"""Files of NumPy arrays by name, written by this package."""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from ostinato.errors import InputError

# What NumPy raises for files that are damaged, or of another kind.
_UNREADABLE = (
    *(OSError, ValueError, TypeError, EOFError, KeyError, SyntaxError),
    *(NotImplementedError, zipfile.BadZipFile, zlib.error),
)


def read_arrays(path: str | os.PathLike[str], kind: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an .npz file. Raises `InputError`: "`path`: no `kind`"."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        raise InputError(f"{path}: no {kind} ({error})") from error
