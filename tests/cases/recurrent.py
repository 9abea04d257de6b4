"""Cases of RNN, GRU and LSTM nodes, expected to equal `tests.oracle.recurrent`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from tests.cases.case import Array, Case, In, Sizes
from tests.passes import recurrent_cases
from tests.passes.recurrent_cases import ORACLES, OUTPUTS

SIZES: tuple[Sizes, ...] = (
    {"S": 4, "N": 2}, {"S": 1, "N": 1}, {"S": 0, "N": 2}, {"S": 3, "N": 0}, {"S": 6, "N": 5},
)  # fmt: skip
RAGGED: tuple[Sizes, ...] = ({"S": 4, "N": 2}, {"S": 9, "N": 5})
# Long enough for several chunks of each size.
LONG: Sizes = {"S": 23, "N": 3}


def recurrent(name: str, op: str, sizes: tuple[Sizes, ...] = SIZES, **options: Any) -> Case:
    """A case of one node; the dimensions that are not baked in are S, time, and N, batch."""
    options = {"dtype": np.float32, "outputs": OUTPUTS[op], **options}
    carried = options.pop("carried", False)
    source = recurrent_cases.Case(op, **options)
    inputs = {}
    for value in source.model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = tuple(d.dim_param or d.dim_value for d in dims)
        dtype = source.arrays[value.name].dtype.name
        inputs[value.name] = In(shape, dtype, scale=0.7)
        if value.name == "sequence_lens":
            inputs[value.name] = In(("N",), "int32", values=source.lengths)

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        arrays = {**source.arrays, **feeds}
        results = ORACLES[op](**arrays, **source.attributes)
        by_name = dict(zip(OUTPUTS[op], results, strict=True))
        return [by_name[output] for output in source.outputs]

    states = {"initial_h": "Y_h", "initial_c": "Y_c"} if op == "LSTM" else {"initial_h": "Y_h"}
    return Case(
        f"{op}-{name}",
        lambda: onnx.shape_inference.infer_shapes(source.model),
        inputs,
        ({},) if source.static else (*sizes, *[LONG] * carried),
        ulps=16,
        # Errors of every step grow through the steps that follow.
        length=256 if carried else 64,
        witness=False,
        batch=source.lengths is None and not source.static,
        states=states if carried else None,
        expected=expected,
    )


# Initial states that are run-time inputs.
STATES = {
    "optional": frozenset({"B", "initial_h", "initial_c"}),
    "constant": frozenset({"W", "R", "B", "P"}),
}


def cases() -> list[Case]:
    found = []
    for op in ("RNN", "GRU", "LSTM"):
        found += [
            recurrent("plain", op, I=5, H=20),
            recurrent("static", op, static=True, S=3, N=2),
            recurrent("one-step", op, static=True, S=1, N=1, H=33),
            recurrent("states", op, **STATES, carried=True, I=4, H=17),
            recurrent("no-bias", op, optional=frozenset(), H=5),
            recurrent("reverse", op, direction="reverse", H=7),
            recurrent("bidirectional", op, direction="bidirectional", **STATES, H=7),
            recurrent("layout", op, layout=1, **STATES),
            recurrent("lengths", op, lengths=(4, 2), sizes=RAGGED, direction="bidirectional"),
            recurrent("clip", op, clip=0.3),
            recurrent("runtime-weights", op, constant=frozenset(), H=9),
            recurrent("last-only", op, outputs=("Y_h",), H=16),
            recurrent("sequence-only", op, outputs=("Y",), H=16),
            recurrent("f64", op, dtype=np.float64, H=9),
        ]  # fmt: skip
    found += [
        recurrent("after-reset", "GRU", linear_before_reset=1, I=5, H=20),
        recurrent("after-reset-states", "GRU", linear_before_reset=1, **STATES, carried=True, H=33),
        recurrent("coupled", "LSTM", input_forget=1, H=9),
        recurrent("peepholes", "LSTM", optional=frozenset({"B", "P", "initial_c"}), H=9),
        recurrent("activations", "GRU", activations=("HardSigmoid", "Softsign"),
                  activation_alpha=(0.3,)),
        recurrent("activations", "LSTM", activations=("Sigmoid", "Affine", "ScaledTanh"),
                  activation_alpha=(0.5, 0.9), activation_beta=(0.1, 1.1)),
        recurrent("activations", "RNN", activations=("LeakyRelu",), activation_alpha=(0.2,)),
    ]  # fmt: skip
    return found


CASES = cases()
