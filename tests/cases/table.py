"""All cases."""

from __future__ import annotations

from tests.cases import contractions, graphs, pointwise, recurrent, reductions, views, windows

CASES = [
    *pointwise.CASES,
    *views.CASES,
    *reductions.CASES,
    *contractions.CASES,
    *recurrent.CASES,
    *graphs.CASES,
    *windows.CASES,
]
NAMES = [case.name for case in CASES]
