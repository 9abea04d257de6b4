"""Gradients of the cases of operators that have one: attributes, ranks, broadcasting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from onnx import TensorProto

from ostinato.autodiff.registry import RULES
from ostinato.autodiff.rules import norms, pointwise, reductions
from tests.autodiff.check import check
from tests.cases import gradients
from tests.cases.case import Array, Case
from tests.cases.table import CASES

# Functions whose operands are moved to where they are smooth; others get normal random numbers.
DOMAINS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("Acos", "Asin", "Atanh"), lambda x: 0.9 * np.tanh(x)),
    **dict.fromkeys(("Log", "Sqrt", "ReduceLogSum", "Pow"), lambda x: np.abs(x) + 0.5),
    **dict.fromkeys(("Div", "Reciprocal", "Mod"), lambda x: x + 0.5 * np.sign(x)),
    "Acosh": lambda x: np.abs(x) + 1.5,
    "Tan": np.tanh,
    "BatchNormalization": lambda x: np.abs(x) + 0.5,
}
# The rooms whose operators these are; other rooms test theirs in models of their own.
ROOMS = {room.__name__ for room in (norms, pointwise, reductions)}
OPERATORS = {name for name, rule in RULES.items() if rule.__module__ in ROOMS}
MOST_CASES = 6
# Older models go through onnx.version_converter.
LEAST_OPSET = 13
LEFT_OUT = {
    **dict.fromkeys(("Mod-fmod", "Mod-fmod-far", "Mod-floats"), "no gradient for the divisor"),
    "Cast-powers-of-two": "steps, which gradients pass through",
    "Dropout-training": "no gradient in training where the mask is no output",
    "Dropout-training-runtime": "no gradient in training where the mask is no output",
    "Celu-default": "no float64 before opset 28",
    "Celu-given": "no float64 before opset 28",
    "ReduceSum-reduced-axes": "the axes are computed",
    "LayerNormalization-statistics": "no gradient for the statistics",
    "BatchNormalization-training-vector": "no gradient for one axis",
    **dict.fromkeys(
        (f"BatchNormalization-training-{name}" for name in ("14", "15", "momentum", "runtime")),
        "no gradient for the statistics",
    ),
}


def is_candidate(case: Case) -> bool:
    """Whether the model has only such operators, and floats come in and go out."""
    model = case.model
    return (
        case.name not in LEFT_OUT
        and model.opset_import[0].version >= LEAST_OPSET
        and all(node.op_type in OPERATORS for node in model.graph.node)
        and any(one.dtype == "float32" for one in case.inputs.values())
        and any(v.type.tensor_type.elem_type == TensorProto.FLOAT for v in model.graph.output)
    )


def candidates() -> Iterator[Case]:
    """The first cases of each operator."""
    found: Counter[str] = Counter()
    # Those that are gradients take long to make.
    for case in filter(is_candidate, [case for case in CASES if case not in gradients.CASES]):
        key = " ".join(node.op_type for node in case.model.graph.node)
        found[key] += 1
        if found[key] <= MOST_CASES:
            yield case


CANDIDATES = list(candidates())


def smooth(case: Case, feeds: dict[str, Array]) -> dict[str, Array]:
    """The feeds with random numbers from the domain of the operators in place of floats."""
    random = np.random.default_rng(11)
    moves = [DOMAINS[node.op_type] for node in case.model.graph.node if node.op_type in DOMAINS]
    found = {}
    for name, array in feeds.items():
        if array.dtype == np.float32:
            array = random.standard_normal(array.shape)
            for move in moves:
                array = move(array)
            array = np.asarray(array, np.float32)
        found[name] = array
    return found


@pytest.mark.parametrize("case", CANDIDATES, ids=[case.name for case in CANDIDATES])
def test_gradients_of_cases(case: Case) -> None:
    feeds = smooth(case, case.feeds(case.sizes[0]))
    check(case.model, feeds, native=case.native, onnxruntime=case.witness)
