"""onnxruntime as the second witness: of the expanded model, and of the node it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests import witness
from tests.passes.recurrent_cases import PARAMETERS, Case, cases


def matches(case: Case, results: list[np.ndarray]) -> bool:
    """Equal up to the approximations of tanh and sigmoid in onnxruntime, about 1e-6."""
    return all(
        got.shape == want.shape and np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
        for got, want in zip(results, case.expected, strict=True)
    )


@given(cases(np.float32, first_opset=9))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_expanded_model_runs_elsewhere(case: Case) -> None:
    assume(case.S > 0)  # onnxruntime refuses a Scan of no steps
    assume(case.N > 0 or case.layout == 0)  # it divides by zero for an empty batch on axis 0
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

    applies: the cases it can show in. example: one where it does show. error: part of the message
    when onnxruntime refuses the example, None when it gives other numbers.
    """

    reason: str
    applies: Callable[[Case], bool]
    example: Case
    error: str | None = None


def _lacks_a_default(case: Case) -> bool:
    """Whether Affine or ThresholdedRelu is left without one of its values."""
    for which, given_values in enumerate((case.activation_alpha, case.activation_beta)):
        takers = [name for name in case.activations or () if PARAMETERS[name][which]]
        if {"Affine", "ThresholdedRelu"} & set(takers[len(given_values or ()) :]):
            return True
    return False


SMALL = Case("LSTM", dtype=np.float32, outputs=("Y", "Y_h", "Y_c"))
GIVEN = frozenset({"B", "initial_h", "initial_c", "P"})

DIFFERENCES = {
    "old": Difference(
        "operators of opset 1 to 6 have no kernel",
        lambda c: c.opset < 7,
        replace(SMALL, opset=6),
        "Could not find an implementation",
    ),
    "layout": Difference(
        "layout 1 is refused", lambda c: c.layout == 1, replace(SMALL, layout=1), "[Bb]atchwise"
    ),
    "double": Difference(
        "float64 is refused",
        lambda c: c.dtype != np.float32,
        replace(SMALL, dtype=np.float64),
        "does not support double",
    ),
    "length_zero": Difference(
        "a row of length 0 ends in zero, not in its initial state",
        lambda c: c.lengths is not None and 0 in c.lengths and set(c.outputs) != {"Y"},
        replace(SMALL, lengths=(0, 3), optional=GIVEN),
    ),
    "no_steps": Difference(
        "without steps the states are zero, not the initial ones",
        lambda c: c.S == 0,
        replace(SMALL, S=0, optional=GIVEN),
    ),
    "no_steps_gru": Difference(
        "without steps GRU ends the process",
        lambda c: c.op == "GRU" and c.S == 0,
        Case("GRU", S=0, dtype=np.float32),
        "ended with code",
    ),
    "no_rows": Difference(
        "an empty batch ends the process in GRU and LSTM",
        lambda c: c.N == 0,
        replace(SMALL, N=0),
        "ended with code",
    ),
    "clip_cell": Difference(
        "clip does not bound the cell state that goes into h",
        lambda c: c.op == "LSTM" and c.clip is not None,
        replace(SMALL, clip=0.25, optional=GIVEN),
    ),
    "defaults": Difference(
        "a missing alpha of Affine or ThresholdedRelu is 0, not the operator's default",
        _lacks_a_default,
        replace(SMALL, op="RNN", outputs=("Y",), activations=("Affine",)),
    ),
}


@given(cases(np.float32, first_opset=7))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_node_means_the_same_elsewhere(case: Case) -> None:
    assume(not any(difference.applies(case) for difference in DIFFERENCES.values()))
    assert matches(case, witness.run(case.model.SerializeToString(), case.feeds))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_listed_differences_exist(name: str) -> None:
    difference = DIFFERENCES[name]
    example = difference.example
    assert difference.applies(example)
    if difference.error is not None:
        with pytest.raises(witness.WitnessError, match=difference.error):
            witness.run(example.model.SerializeToString(), example.feeds)
    else:
        results = witness.run(example.model.SerializeToString(), example.feeds)
        assert not matches(example, results), f"no longer true: {difference.reason}"


def test_a_witness_that_dies_is_replaced() -> None:
    dies = Case("GRU", N=0, dtype=np.float32)
    with pytest.raises(witness.WitnessError, match="ended with code"):
        witness.run(dies.model.SerializeToString(), dies.feeds)
    lives = Case("GRU", dtype=np.float32)
    assert matches(lives, witness.run(lives.model.SerializeToString(), lives.feeds))
