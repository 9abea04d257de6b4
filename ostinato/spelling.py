"""Guess what a name that does not exist may mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# The share of letters that two names must have in common, as in `difflib`: for a rough guess among
# a few known names, and for a mistyped one among many.
_ROUGHLY, _MISTYPED = 0.5, 0.8


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence with the known names that are nearest to one that is not, or with all."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=4, cutoff=_ROUGHLY)
    return f"did you mean {', '.join(close)}?" if close else f"known are {', '.join(known)}"


def mistyped(name: str, known: Iterable[str]) -> str:
    """A question after the known names that differ from one by little; empty if there is none."""
    close = difflib.get_close_matches(name, sorted(known), cutoff=_MISTYPED)
    return f"did you mean {', '.join(close)}?" if close else ""
