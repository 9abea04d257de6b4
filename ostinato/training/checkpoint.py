"""Files that training goes on from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.errors import InputError
from ostinato.runtime.archive import read_arrays

Array = np.ndarray[Any, Any]

_FINGERPRINT = "fingerprint"
_RATE = "lr"
_VALUE = "value "


def write(
    path: str | os.PathLike[str], fingerprint: str, lr: float, values: Mapping[str, Array]
) -> None:
    """Write an .npz file. An old one at `path` stays until the new one is complete."""
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    arrays: dict[str, Any] = {_FINGERPRINT: np.array(fingerprint), _RATE: np.array(lr)}
    arrays.update((_VALUE + name, array) for name, array in values.items())
    try:
        with open(partial, "wb") as file:
            np.savez(file, **arrays)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], fingerprint: str) -> tuple[float, dict[str, Array]]:
    """The learning rate and the values that `write` was given.

    Raises `InputError` for a file that is no checkpoint, or one with another fingerprint.
    """
    saved = read_arrays(path, "checkpoint")
    found, rate = saved.pop(_FINGERPRINT, None), saved.pop(_RATE, None)
    if found is None or rate is None or rate.shape != () or rate.dtype != np.float64:
        raise InputError(f"{os.fspath(path)}: no checkpoint (another .npz file)")
    if str(found) != fingerprint:
        raise InputError(
            f"{os.fspath(path)}: the checkpoint of another trainer; model, loss, optimizer, `train`"
            " and `freeze` must be the same"
        )
    return float(rate), {name.removeprefix(_VALUE): value for name, value in saved.items()}
