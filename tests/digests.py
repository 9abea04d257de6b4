"""Digests of what cases and models compute, and those recorded in digests.json.

A digest is one of the outputs of all runs: element types, shapes and bits, with one NaN for all.
Results do not depend on the machine, so the file holds everywhere. What runs on reference kernels
has no digest: NumPy adds in an order of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".json")
RECORDED: dict[str, str] = json.loads(FILE.read_text()) if FILE.exists() else {}


def digest(runs: Sequence[Sequence[Any]]) -> str:
    """A digest of the outputs of some runs."""
    found = hashlib.sha256()
    for outputs in runs:
        for output in outputs:
            array = np.asarray(output)
            if array.dtype.kind == "f":
                array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
            found.update(f"{array.dtype} {array.shape} ".encode())
            found.update(array.tobytes())
    return found.hexdigest()[:16]
