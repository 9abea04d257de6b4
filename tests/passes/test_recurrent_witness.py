"""onnxruntime as the second witness: of the expanded model, and of the node it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests import witness
from tests.passes.recurrent_cases import Case, cases


def matches(case: Case, results: list[np.ndarray]) -> bool:
    """Equal up to the approximations of tanh and sigmoid in onnxruntime, about 1e-6."""
    return all(
        got.shape == want.shape and np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
        for got, want in zip(results, case.expected, strict=True)
    )


@given(cases(np.float32, first_opset=9))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_expanded_model_runs_elsewhere(case: Case) -> None:
    assume(case.S > 0)  # onnxruntime refuses a Scan of no steps
    optimized = case.H % 2 == 0
    results = witness.run(case.expanded.SerializeToString(), case.feeds, optimized=optimized)
    assert matches(case, results)


def test_a_scan_of_no_steps_is_still_refused_elsewhere() -> None:
    case = Case("GRU", S=0, dtype=np.float32)
    with pytest.raises(witness.WitnessError, match="Scan"):
        witness.run(case.expanded.SerializeToString(), case.feeds)


@dataclass(frozen=True)
class Difference:
    """A point where onnxruntime's own operators and the operator documents differ.

    applies: the cases it can show in. example: one where it does show.
    """

    reason: str
    applies: Callable[[Case], bool]
    example: Case


def _has_default_of_its_own(case: Case) -> bool:
    names = case.activations or ()
    alphas, betas = len(case.activation_alpha or ()), len(case.activation_beta or ())
    takers = [n for n in names if n in TAKE_ALPHA]
    late_alpha = any(n in ("Affine", "ThresholdedRelu") for n in takers[alphas:])
    late_beta = any(n == "Affine" for n in [n for n in names if n in TAKE_BETA][betas:])
    return late_alpha or late_beta


TAKE_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
TAKE_BETA = ("Affine", "ScaledTanh", "HardSigmoid")
SMALL = Case("LSTM", dtype=np.float32, outputs=("Y", "Y_h", "Y_c"))
GIVEN = frozenset({"B", "initial_h", "initial_c", "P"})

DIFFERENCES = {
    "old": Difference(
        "operators of opset 1 to 6 have no kernel",
        lambda c: c.opset < 7,
        replace(SMALL, opset=6),
    ),
    "layout": Difference("layout 1 is refused", lambda c: c.layout == 1, replace(SMALL, layout=1)),
    "double": Difference(
        "float64 is refused", lambda c: c.dtype != np.float32, replace(SMALL, dtype=np.float64)
    ),
    "length_zero": Difference(
        "a row of length 0 ends in zero, not in its initial state",
        lambda c: c.lengths is not None and 0 in c.lengths and "Y" not in c.outputs[-1:],
        replace(SMALL, lengths=(0, 3), optional=GIVEN),
    ),
    "no_steps": Difference(
        "without steps the states are zero, and GRU aborts",
        lambda c: c.S == 0,
        replace(SMALL, S=0, optional=GIVEN),
    ),
    "no_rows": Difference(
        "GRU and LSTM abort for a batch of 0",
        lambda c: c.N == 0,
        replace(SMALL, N=0),
    ),
    "clip_cell": Difference(
        "clip does not bound the cell state that goes into h",
        lambda c: c.op == "LSTM" and c.clip is not None,
        replace(SMALL, clip=0.25, optional=GIVEN),
    ),
    "defaults": Difference(
        "a missing alpha of Affine and ThresholdedRelu is 0, not the operator's default",
        _has_default_of_its_own,
        replace(SMALL, op="RNN", outputs=("Y",), activations=("Affine",)),
    ),
}


@given(cases(np.float32, first_opset=7))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_node_means_the_same_elsewhere(case: Case) -> None:
    assume(not any(difference.applies(case) for difference in DIFFERENCES.values()))
    assert matches(case, witness.run(case.model.SerializeToString(), case.feeds))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_listed_differences_exist(name: str) -> None:
    difference = DIFFERENCES[name]
    assert difference.applies(difference.example)
    try:
        results = witness.run(
            difference.example.model.SerializeToString(), difference.example.feeds
        )
    except witness.WitnessError:
        return
    assert not matches(difference.example, results), f"no longer true: {difference.reason}"


def test_a_witness_that_dies_is_replaced() -> None:
    dies = Case("GRU", N=0, dtype=np.float32)
    with pytest.raises(witness.WitnessError, match="ended with code"):
        witness.run(dies.model.SerializeToString(), dies.feeds)
    lives = Case("GRU", dtype=np.float32)
    assert matches(lives, witness.run(lives.model.SerializeToString(), lives.feeds))
