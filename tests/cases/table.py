"""All cases."""

from __future__ import annotations

from tests.cases import (
    casts,
    contractions,
    functions,
    graphs,
    pointwise,
    quantization,
    recurrent,
    reductions,
    resize,
    runtime_sizes,
    scatter,
    signals,
    sorting,
    views,
    windows,
)

CASES = [
    *pointwise.CASES,
    *views.CASES,
    *reductions.CASES,
    *contractions.CASES,
    *recurrent.CASES,
    *graphs.CASES,
    *windows.CASES,
    *casts.CASES,
    *functions.CASES,
    *quantization.CASES,
    *resize.CASES,
    *runtime_sizes.CASES,
    *scatter.CASES,
    *signals.CASES,
    *sorting.CASES,
]
NAMES = [case.name for case in CASES]
