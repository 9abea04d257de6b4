"""How the attributes `activations`, `activation_alpha` and `activation_beta` are read."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from ostinato.definitions.recurrent_activations import read_activations
from ostinato.errors import UnsupportedError
from ostinato.model.attributes import Attributes


def read(defaults: tuple[str, ...], directions: int = 1, **attributes: Any) -> list[list[Any]]:
    node = ir.node("LSTM", [], attributes, name="cell")
    reader = Attributes(node)
    found = read_activations(reader, defaults, directions)
    reader.finish()
    return [[(a.function, dict(a.parameters)) for a in direction] for direction in found]


def test_defaults_of_the_operator_for_every_direction() -> None:
    assert read(("Sigmoid", "Tanh"), 2) == [[("Sigmoid", {}), ("Tanh", {})]] * 2


def test_values_are_taken_in_order_by_the_functions_that_take_them() -> None:
    found = read(
        ("Sigmoid", "Tanh", "Tanh"),
        2,
        activations=["HardSigmoid", "Tanh", "LeakyRelu", "Affine", "Relu", "ScaledTanh"],
        activation_alpha=[0.5, 0.25, 2.0, 3.0],
        activation_beta=[0.125, 4.0, 8.0],
    )
    assert found == [
        [
            ("HardSigmoid", {"alpha": 0.5, "beta": 0.125}),
            ("Tanh", {}),
            ("LeakyRelu", {"alpha": 0.25}),
        ],
        [
            ("Affine", {"alpha": 2.0, "beta": 4.0}),
            ("Relu", {}),
            ("ScaledTanh", {"alpha": 3.0, "beta": 8.0}),
        ],
    ]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Affine", {"alpha": 1.0, "beta": 0.0}),
        ("LeakyRelu", {"alpha": 0.01}),
        ("ThresholdedRelu", {"alpha": 1.0}),
        ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
        ("Elu", {"alpha": 1.0}),
        ("Softsign", {}),
        ("Softplus", {}),
    ],
)
def test_missing_values_are_the_defaults_of_the_operators(name: str, parameters: dict) -> None:
    assert read(("Tanh",), activations=[name]) == [[(name, parameters)]]
    assert read(("Tanh",), activations=[name.upper()]) == [[(name, parameters)]]


def test_default_of_the_rnn_schema_names_one_function_too_many() -> None:
    assert read(("Tanh",), 1, activations=["Tanh", "Tanh"]) == [[("Tanh", {})]]


@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"activations": ["Tanh"]}, "'activations' has 1 functions, expected 2"),
        ({"activations": ["Tanh"] * 3}, "'activations' has 3 functions, expected 2"),
        ({"activations": ["Tanh", "Swish"]}, "'Swish'"),
        ({"activations": ["Tanh", "ScaledTanh"]}, "'alpha'"),
        ({"activations": ["Tanh", "ScaledTanh"], "activation_alpha": [1.0]}, "'beta'"),
        ({"activation_alpha": [1.0]}, "'activation_alpha' has 1 values more"),
        ({"activations": ["Tanh", "Elu"], "activation_beta": [1.0]}, "'activation_beta'"),
        ({"activations": [1, 2]}, "'activations' has type INTS"),
    ],
)
def test_refusals_name_node_and_attribute(attributes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedError, match=named) as caught:
        read(("Sigmoid", "Tanh"), **attributes)
    assert "'cell' (LSTM)" in str(caught.value)
