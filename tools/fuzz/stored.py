"""Random nodes that read narrow constants: they compute what these stand for.

    python -m tools.fuzz stored --seconds 60

What DequantizeLinear makes of the constants alone is compared with its formula. With these results
as constants, the nodes have the same bits as with DequantizeLinear in front of them, in every mode.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ostinato import InferenceSession, OstinatoError
from tools.fuzz.graphs import AGREE, CHILD_SECONDS, Outcome, difference, in_child, same_bits
from tools.fuzz.modes import Array, mode_of
from tools.fuzz.random_stored import TYPES, Stored, random_stored
from tools.fuzz.seeds import try_seeds


def model_of(stored: Stored, results: list[Array] | None = None) -> onnx.ModelProto:
    """The nodes behind DequantizeLinear, or behind what it gave."""
    constants, front = {**stored.constants}, stored.dequantised
    if results is not None:
        front = []
        for node, array in zip(stored.dequantised, results, strict=True):
            constants[node.name] = numpy_helper.from_array(array, node.name)
    nodes = [*front, *stored.nodes]
    read = {name for node in nodes for name in node.input}
    made = [name for node in stored.nodes if node.op_type != "Cast" for name in node.output]
    return _model(stored, nodes, [n for n in made if n not in read], stored.inputs, constants)


def _model(
    stored: Stored, nodes: Any, outputs: Any, inputs: Any, constants: dict[str, onnx.TensorProto]
) -> onnx.ModelProto:
    kinds = {a.dtype: helper.np_dtype_to_tensor_dtype(a.dtype) for _, a in inputs.values()}
    graph = helper.make_graph(
        nodes,
        "stored",
        [helper.make_tensor_value_info(n, kinds[a.dtype], d) for n, (d, a) in inputs.items()],
        [helper.make_tensor_value_info(n, _kind(stored, n), None) for n in outputs],
        [*constants.values()],
    )
    opsets = [helper.make_opsetid("", stored.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=13)


def _kind(stored: Stored, name: str) -> int:
    for node in stored.dequantised:
        if node.name == name:
            kind = TensorProto.DataType.Value(stored.scales)
            return next((a.i for a in node.attribute if a.name == "output_dtype"), kind)
    return TensorProto.FLOAT


def formula(stored: Stored, node: onnx.NodeProto) -> Array:
    """What the document of DequantizeLinear says, in float64."""
    about = {a.name: a.i for a in node.attribute}
    x, *others = (
        numpy_helper.to_array(stored.constants[n]).astype(np.float32).astype(np.float64)
        for n in node.input
    )

    def along(values: Array) -> Array:
        if values.ndim == 0:
            return values
        axis = about["axis"] % x.ndim
        if "block_size" in about:
            repeated = np.repeat(values, about["block_size"], axis)
            return repeated.take(range(x.shape[axis]), axis)
        return values.reshape([-1 if i == axis else 1 for i in range(x.ndim)])

    scale, *point = (along(values) for values in others)
    result: Array = (x - sum(point)) * scale
    return result


def _tried(seed: int) -> Outcome:
    logging.disable()
    warnings.simplefilter("ignore")
    stored = random_stored(seed)
    names = [node.name for node in stored.dequantised]
    alone = _model(stored, stored.dequantised, names, {}, stored.constants)
    feeds = {name: array for name, (_, array) in stored.inputs.items()}
    model = model_of(stored)
    try:
        results = InferenceSession(alone, cache_dir=None).run(None, {})
        tolerance = max(TYPES.values()) if stored.scales != "FLOAT" else 0.0
        for node, array in zip(stored.dequantised, results, strict=True):
            kind = TensorProto.DataType.Name(_kind(stored, node.name))
            wanted = [formula(stored, node)]
            if found := difference([array], wanted, max(tolerance, TYPES[kind])):
                return Outcome("differ", f"{node.name}: {found}")
        plain = InferenceSession(model_of(stored, results), cache_dir=None)
        expected = plain.run(None, dict(feeds))
        session = InferenceSession(model, cache_dir=None)
        got = session.run(None, dict(feeds))
        if session.report().interpreted:
            return Outcome("exception", f"interpreted: {session.report().interpreted}")
        if not same_bits(got, expected):
            return Outcome("bits", difference(got, expected))
        mode = mode_of(seed, model, feeds)
        mode.prepare()
        other = InferenceSession(model, cache_dir=None, **mode.options)
        again = mode.run(other, model.SerializeToString(), feeds)
        if not other.report().interpreted and not same_bits(got, again):
            return Outcome("bits", f"{mode}: {difference(again, got)}")
    except OstinatoError as error:
        return Outcome("exception", f"{type(error).__name__}: {error}")
    return Outcome(AGREE)


def tried(seed: int) -> Outcome:
    """Compare the nodes of a seed, in a process of its own."""
    outcome = in_child(lambda: (_tried(seed), []), CHILD_SECONDS)[0]
    assert isinstance(outcome, Outcome)
    return outcome


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try nodes from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: model_of(random_stored(n)), seconds, seed, count, folder)
