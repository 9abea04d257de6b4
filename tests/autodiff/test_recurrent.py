"""Gradients of RNN, GRU and LSTM, which are Scans by then."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from tests.autodiff.check import check
from tests.passes.recurrent_cases import Case, cases

ALL = ("Y", "Y_h", "Y_c")
STATES = frozenset({"B", "initial_h"})
EVERYTHING = frozenset({"B", "initial_h", "initial_c", "P"})
NO_CONSTANT: frozenset[str] = frozenset()

TABLE = {
    "rnn": Case("RNN"),
    "reset_after": Case("GRU", linear_before_reset=1, constant=NO_CONSTANT, static=True),
    "bidirectional": Case("LSTM", direction="bidirectional", optional=EVERYTHING, outputs=ALL),
    "batch_first": Case("LSTM", direction="bidirectional", layout=1, optional=EVERYTHING),
    "one_row": Case("LSTM", N=1, constant=NO_CONSTANT, static=True),
    "ragged_reverse": Case("GRU", direction="reverse", N=3, lengths=(4, 1, 2), optional=STATES),
    "ragged_batch_first": Case("LSTM", direction="bidirectional", layout=1, lengths=(1, 3)),
    "length_zero": Case("LSTM", N=3, lengths=(0, 4, 0), optional=EVERYTHING, outputs=ALL),
    "coupled": Case("LSTM", input_forget=1, optional=EVERYTHING, outputs=ALL),
    "clip": Case("GRU", clip=0.3),
    "clip_cell": Case("LSTM", clip=0.2, optional=EVERYTHING, outputs=ALL),
    "one_step": Case("GRU", S=1, static=True),
    "no_step": Case("LSTM", S=0, optional=EVERYTHING, outputs=ALL),
    "no_row": Case("LSTM", N=0, outputs=ALL),
    "only_state": Case("LSTM", outputs=("Y_h",)),
    "only_cell": Case("LSTM", outputs=("Y_c",)),
    "opset_9": Case("LSTM", opset=9, direction="bidirectional", clip=0.4, lengths=(2, 4)),
}

# What onnxruntime refuses, and what ends its process: docs/recurrence.md.
NOT_IN_ONNXRUNTIME = {"batch_first", "ragged_batch_first", "no_step"}


def model_of(case: Case) -> onnx.ModelProto:
    """The model of the case with the ranks of its outputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for output in model.graph.output:
        for axis in range(4 if output.name == "Y" else 3):
            output.type.tensor_type.shape.dim.add(dim_param=f"{output.name}_{axis}")
    return model


def check_case(case: Case, onnxruntime: bool, checkpoint: int | None = None) -> None:
    """Gradients of all float inputs, be they constant or not."""
    case = dataclasses.replace(case, dtype=np.float32)
    wrt = [name for name, array in case.arrays.items() if array.dtype == np.float32]
    model = model_of(case)
    check(model, case.feeds, wrt, onnxruntime=onnxruntime, checkpoint=checkpoint)


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    check_case(TABLE[name], name not in NOT_IN_ONNXRUNTIME)


@pytest.mark.parametrize("name", ["ragged_reverse", "ragged_batch_first"])
def test_steps_that_run_again(name: str) -> None:
    check_case(TABLE[name], name not in NOT_IN_ONNXRUNTIME, checkpoint=2)


@given(cases(np.float32, first_opset=7))
@settings(max_examples=3, deadline=None, derandomize=True)
def test_any_combination(case: Case) -> None:
    check_case(case, onnxruntime=False)
