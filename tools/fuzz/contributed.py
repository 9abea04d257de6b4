"""Random nodes of onnxruntime's own domains, against onnxruntime.

Attributes, operands that are left out, types and open sizes are drawn, and what may be a constant
is one or an input. Results of 8 bits may differ by 1: onnxruntime rounds in other places.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests import witness
from tools.fuzz import contributed_layers, contributed_products, contributed_quantised
from tools.fuzz.graphs import (
    AGREE,
    CHILD_SECONDS,
    HALF_TOLERANCE,
    TOLERANCE,
    Outcome,
    difference,
    in_child,
    ours,
)
from tools.fuzz.modes import mode_of
from tools.fuzz.random_contributed import random_contributed
from tools.fuzz.seeds import try_seeds

__all__ = ["contributed_layers", "contributed_products", "contributed_quantised"]

# What a refusal says of an attribute or operand that no definition honours, by intent.
_BY_INTENT = (
    "no constant",
    "not supported",
    "not a constant",
    ", expected ",
    "is not known",
    "unknown width",
)


def _are_neighbours(results: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether bytes differ by 1 at most, and nothing else differs."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(results, expected, strict=True)]
    return all(
        a.dtype in (np.int8, np.uint8)
        and a.shape == b.shape
        and bool((np.abs(a.astype(int) - b.astype(int)) <= 1).all())
        for a, b in pairs
    )


def tried(seed: int) -> Outcome:
    """Run one node here and there."""
    model, feeds = random_contributed(seed)
    data, mode = model.SerializeToString(), mode_of(seed, model, feeds)
    outcome, results = in_child(lambda: ours(data, feeds, mode), CHILD_SECONDS)
    if outcome.kind not in (AGREE, "refused", "run fails"):
        return outcome
    try:
        expected = witness.run(data, feeds, optimized=True, saturating=True)
    except witness.WitnessError as error:
        both = "both refuse" if outcome.kind != AGREE else "onnxruntime refuses"
        return Outcome(both, str(error)[:200])
    if outcome.kind != AGREE:
        is_meant = any(words in outcome.message for words in _BY_INTENT)
        return Outcome("not supported" if is_meant else "run fails", outcome.message)
    is_half = any(kind.type.tensor_type.elem_type == 10 for kind in model.graph.output)
    tolerance = HALF_TOLERANCE if is_half else TOLERANCE
    found = difference(results, expected, tolerance)
    if not found:
        return Outcome(AGREE)
    if _are_neighbours(results, expected):
        return Outcome("rounded otherwise")
    return Outcome("differ", found)


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try nodes from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, _model, seconds, seed, count, folder)


def _model(seed: int) -> onnx.ModelProto:
    return random_contributed(seed)[0]
