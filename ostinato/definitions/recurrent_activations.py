"""The activation functions of RNN, GRU and LSTM (https://onnx.ai/onnx/operators/onnx__LSTM.html)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import onnx_ir as ir

from ostinato.graph.writer import Writer
from ostinato.model.attributes import Attributes
from ostinato.records import dataclass

# Name in lower case -> (name, parameters it consumes with the default of the ONNX operator of that
# name). ScaledTanh has no such operator, hence no default.
_FUNCTIONS: dict[str, tuple[str, dict[str, float | None]]] = {
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "affine": ("Affine", {"alpha": 1.0, "beta": 0.0}),
    "leakyrelu": ("LeakyRelu", {"alpha": 0.01}),
    "thresholdedrelu": ("ThresholdedRelu", {"alpha": 1.0}),
    "scaledtanh": ("ScaledTanh", {"alpha": None, "beta": None}),
    "hardsigmoid": ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
    "elu": ("Elu", {"alpha": 1.0}),
    "softsign": ("Softsign", {}),
    "softplus": ("Softplus", {}),
}


@dataclass(frozen=True)
class Activation:
    """One activation function with its parameters filled in."""

    function: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    def write(self, writer: Writer, x: ir.Value, role: str) -> ir.Value:
        """Write the nodes that apply this function to `x`, element by element."""
        if self.function == "Affine":
            scaled = writer.op("Mul", [x, self._scalar(writer, "alpha")], f"{role}_scaled")
            return writer.op("Add", [scaled, self._scalar(writer, "beta")], role)
        if self.function == "ScaledTanh":
            scaled = writer.op("Mul", [x, self._scalar(writer, "beta")], f"{role}_scaled")
            tanh = writer.op("Tanh", [scaled], f"{role}_tanh")
            return writer.op("Mul", [tanh, self._scalar(writer, "alpha")], role)
        if self.function == "ThresholdedRelu":
            # The operator of this name is 0 at x == alpha and exists from opset 10 only; the
            # recurrent operators document x where x >= alpha.
            below = writer.op(
                "Less", [x, self._scalar(writer, "alpha")], f"{role}_below", dtype=ir.DataType.BOOL
            )
            return writer.op("Where", [below, writer.scalar(0.0), x], role)
        return writer.op(self.function, [x], role, self.parameters)

    def _scalar(self, writer: Writer, parameter: str) -> ir.Value:
        return writer.value(writer.scalar(self.parameters[parameter]), parameter)


def read_activations(
    attributes: Attributes, defaults: tuple[str, ...], directions: int
) -> tuple[tuple[Activation, ...], ...]:
    """The activations of every direction, read from `activations`, `activation_alpha` and `_beta`.

    Names are matched without regard to case. The parameter lists are consumed in order by the
    functions that take them; missing values are the defaults of the ONNX operators. Raises
    `UnsupportedError` for an unknown function, a wrong count, values left over, or a parameter
    that has neither a value nor a default.
    """
    wanted = defaults * directions
    names = attributes.strings("activations", wanted)
    if names == ("Tanh", "Tanh") and wanted == ("Tanh",):
        # The schema of RNN declares this default for every direction, one name too many here.
        names = wanted
    if len(names) != len(wanted):
        raise attributes.refuse(
            f"attribute 'activations' has {len(names)} functions, expected {len(wanted)}: "
            f"{len(defaults)} for each of {directions} directions"
        )
    values = {name: list(attributes.floats(f"activation_{name}", ())) for name in ("alpha", "beta")}
    activations = [_read_activation(attributes, name, values) for name in names]
    for name, left in values.items():
        if left:
            raise attributes.refuse(
                f"attribute 'activation_{name}' has {len(left)} values more than the functions "
                f"{', '.join(names)} take; list one for each function that takes {name}"
            )
    count = len(defaults)
    return tuple(tuple(activations[d * count : (d + 1) * count]) for d in range(directions))


def _read_activation(
    attributes: Attributes, name: str, values: dict[str, list[float]]
) -> Activation:
    if name.lower() not in _FUNCTIONS:
        known = ", ".join(function for function, _ in _FUNCTIONS.values())
        raise attributes.refuse(f"attribute 'activations' names {name!r}, which is none of {known}")
    function, defaults = _FUNCTIONS[name.lower()]
    parameters = {}
    for parameter, default in defaults.items():
        number = values[parameter].pop(0) if values[parameter] else default
        if number is None:
            raise attributes.refuse(
                f"{function} has no documented default for {parameter!r}; "
                f"give it in attribute 'activation_{parameter}'"
            )
        parameters[parameter] = number
    return Activation(function, parameters)
