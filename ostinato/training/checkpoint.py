"""Files that training goes on from."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ostinato.errors import InputError
from ostinato.runtime.archive import Entry, Kind, read_arrays, write_arrays

Array = np.ndarray[Any, Any]

_CHECKPOINT = Kind(
    "checkpoint",
    "the checkpoint of another trainer; model, loss, optimizer, `train` and `freeze` must be the "
    "same",
)
_RATE = "lr"
_VALUE = "value "


def write(
    path: str | os.PathLike[str], fingerprint: str, lr: float, values: Mapping[str, Array]
) -> None:
    """Write an .npz file. An old one at `path` stays until the new one is complete."""
    arrays = {_VALUE + name: array for name, array in values.items()}
    write_arrays(path, fingerprint, {_RATE: np.array(lr), **arrays})


def read(
    path: str | os.PathLike[str], fingerprint: str, expected: Mapping[str, Entry]
) -> tuple[float, dict[str, Array]]:
    """The learning rate and the values that `write` was given, of which `expected` says all.

    Raises `InputError` for a file that is no checkpoint, or one with another fingerprint.
    """
    entries = {_VALUE + name: entry for name, entry in expected.items()}
    rate = Entry(np.dtype(np.float64), ())
    saved = read_arrays(path, _CHECKPOINT, fingerprint, {_RATE: rate, **entries})
    lr = float(saved.pop(_RATE))
    if not (math.isfinite(lr) and lr >= 0):
        raise InputError(
            f"{os.fspath(path)}: no checkpoint (member '{_RATE}.npy': expected 0 or a positive "
            f"number, got {lr})"
        )
    return lr, {name.removeprefix(_VALUE): value for name, value in saved.items()}
