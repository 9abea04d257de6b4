"""All cases."""

from __future__ import annotations

from tests.cases import (
    casts,
    contractions,
    einsum,
    functions,
    gather_affine,
    gradients,
    graphs,
    norms,
    pointwise,
    positions,
    quantization,
    recurrent,
    reductions,
    resize,
    runtime_sizes,
    scatter,
    scatter_affine,
    sequences,
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
    *einsum.CASES,
    *recurrent.CASES,
    *graphs.CASES,
    *gradients.CASES,
    *windows.CASES,
    *casts.CASES,
    *functions.CASES,
    *quantization.CASES,
    *resize.CASES,
    *runtime_sizes.CASES,
    *norms.CASES,
    *positions.CASES,
    *gather_affine.CASES,
    *scatter.CASES,
    *scatter_affine.CASES,
    *sequences.CASES,
    *signals.CASES,
    *sorting.CASES,
]
NAMES = [case.name for case in CASES]
