"""Operators that the standard defines by others become those before they are differentiated."""

from __future__ import annotations

import onnx
import pytest

from ostinato.autodiff import gradient
from ostinato.autodiff.differentiate import prepare
from ostinato.model.load import load_model
from ostinato.model.write import to_model_proto
from tests.autodiff.check import check, with_loss
from tests.autodiff.test_cases import smooth
from tests.cases.case import Case
from tests.cases.table import CASES, NAMES


def case_named(name: str) -> Case:
    return CASES[NAMES.index(name)]


def expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the definitions in place, whose conversions to float32 are then nodes."""
    loaded = load_model(model)
    prepare(loaded, None)
    return to_model_proto(loaded)


@pytest.mark.parametrize(
    "name",
    [
        "AffineGrid-plane",
        "AffineGrid-space",
        "Attention-causal",
        "Attention-scale and cap",
        "Attention-shared keys",
        "CausalConvWithState-four taps",
        "CausalConvWithState-no bias",
        "LinearAttention-gated delta",
        "LinearAttention-linear",
        "LinearAttention-shared keys",
        "RotaryEmbedding-four axes",
        "RotaryEmbedding-packed, interleaved, partial",
        "SwiGLU-alpha",
        "SwiGLU-plain",
    ],
)
def test_definitions(name: str) -> None:
    case = case_named(name)
    feeds = smooth(case, case.feeds(case.sizes[0]))
    check(expanded(case.model), feeds, native=case.native, onnxruntime=case.witness)


@pytest.mark.parametrize("name", ["LinearAttention-no past, scale", "CausalConvWithState-no past"])
def test_definitions_without_a_past(name: str) -> None:
    model = with_loss(case_named(name).model)
    made = gradient(model, "loss", ["x0"])
    assert [output.name for output in made.graph.output] == ["loss", "x0_grad"]
