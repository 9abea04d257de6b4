"""Random networks that quantisers have narrowed: other runtimes compute the same, in every mode.

    python -m tools.fuzz quantised --seconds 60

The quantisers are those of onnxruntime (dynamic, static, of 4 bits) and `ostinato.quantize`.
Scales become powers of two, inputs and weights are multiples of such: sums of products are exact,
and what is rounded is the same whoever adds it up.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import ostinato
from tests import witness
from tools.fuzz.choosing import Chooser
from tools.fuzz.graphs import Outcome, in_child, judged
from tools.fuzz.modes import Array, Feeds, Mode, mode_of
from tools.fuzz.random_narrow import random_network
from tools.fuzz.seeds import try_seeds

CHILD_SECONDS = 120.0
Samples = list[dict[str, Array]]
Quantiser = Callable[[onnx.ModelProto, Samples, Chooser], onnx.ModelProto]


def _through_files(model: onnx.ModelProto, quantise: Callable[[str, str], None]) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        first, last = f"{folder}/first.onnx", f"{folder}/last.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(model), first)
        quantise(first, last)
        return onnx.load(last)


def _dynamic(model: onnx.ModelProto, _: Samples, c: Chooser) -> onnx.ModelProto:
    from onnxruntime import quantization as q

    options = {
        "per_channel": c.choose((False, True)),
        "reduce_range": c.choose((False, True, True)),
        "weight_type": c.choose((q.QuantType.QInt8, q.QuantType.QUInt8)),
        "extra_options": {
            "MatMulConstBOnly": c.choose((False, True)),
            "EnableSubgraph": True,
            "WeightSymmetric": c.choose((False, True)),
        },
    }
    return _through_files(model, lambda a, b: q.quantize_dynamic(a, b, **options))


_SWITCHES = (
    *("ActivationSymmetric", "WeightSymmetric", "AddQDQPairToWeight", "DedicatedQDQPair"),
    *("QDQKeepRemovableActivations", "ForceQuantizeNoInputCheck"),
)


def _static(model: onnx.ModelProto, samples: Samples, c: Chooser) -> Any:
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.samples = iter(samples)

        def get_next(self) -> Any:
            return next(self.samples, None)

    kinds = [q.QuantType.QInt8, q.QuantType.QUInt8]
    is_wide = c.chance(0.2)
    wide = [q.QuantType.QInt16, q.QuantType.QUInt16]
    format_ = q.QuantFormat.QDQ if is_wide else c.choose(list(q.QuantFormat))
    activations, weights = c.choose(wide if is_wide else kinds), c.choose(kinds)
    if activations == q.QuantType.QInt8:
        weights = q.QuantType.QInt8
    options = {
        "quant_format": format_,
        "per_channel": c.choose((False, True)),
        "reduce_range": c.choose((False, True, True)),
        "activation_type": activations,
        "weight_type": weights,
        "extra_options": {name: c.choose((False, True)) for name in _SWITCHES},
    }
    return _through_files(model, lambda a, b: q.quantize_static(a, b, Reader(), **options))


def _bits(model: onnx.ModelProto, _: Samples, c: Chooser) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantiser = MatMulNBitsQuantizer(
        onnx.ModelProto.FromString(model.SerializeToString()),
        bits=c.choose((4, 4, 8)),
        block_size=c.choose((16, 32, 64)),
        is_symmetric=c.choose((False, True)),
        accuracy_level=c.choose((None, 1, 4)),
        quant_format=c.choose((QuantFormat.QOperator, QuantFormat.QDQ)),
    )
    quantiser.process()
    return quantiser.model.model  # type: ignore[no-any-return]


def _own(model: onnx.ModelProto, samples: Samples, c: Chooser) -> onnx.ModelProto:
    weights = c.choose(("int8", "int8", "int4", "bf16", "f16"))
    activations = c.choose((None, "int8-dynamic", "int8-static"))
    options: dict[str, Any] = {"weights": weights}
    if weights == "int8" or (weights == "int4" and activations == "int8-dynamic"):
        options["activations"] = activations
    is_static = options.get("activations") == "int8-static"
    if weights in ("int8", "int4") and not is_static and c.chance(0.4):
        options["block"] = c.choose((-1, 4, 8))
    if c.chance(0.5) or options.get("activations") == "int8-static":
        options["calibration"] = samples
    return ostinato.quantize(model, **options)


QUANTISERS: list[Quantiser] = [_dynamic, _static, _static, _static, _bits, _own, _own]


def narrowed(seed: int) -> tuple[onnx.ModelProto, dict[str, Array], str]:
    """A quantised network, its inputs, and who quantised it.

    Raises `LookupError` where a quantiser does not take the network.
    """
    model, samples = random_network(seed)
    c = Chooser(np.random.default_rng(seed + 2**32))
    quantiser = c.choose(QUANTISERS)
    logging.disable()
    try:
        made = quantiser(model, samples, c)
        onnx.checker.check_model(made, full_check=False)
    except Exception as error:
        if quantiser is _own and not isinstance(error, ostinato.OstinatoError):
            raise
        raise LookupError(f"{quantiser.__name__}: {type(error).__name__}: {error}") from error
    _round_scales(made)
    return made, samples[0], quantiser.__name__


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


# The scales among the operands of what quantises.
_SCALES = {
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "QLinearAdd": (1, 4, 6),
    "QLinearMul": (1, 4, 6),
    "QGemm": (1, 4, 7),
    "MatMulNBits": (2,),
}


def _round_scales(model: onnx.ModelProto) -> None:
    """Make scales powers of two."""
    graphs = [*_graphs(model.graph)]
    names = {
        node.input[place]
        for graph in graphs
        for node in graph.node
        for place in _SCALES.get(node.op_type, (1,) if node.op_type.startswith("QLinear") else ())
        if place < len(node.input)
    }
    for graph in graphs:
        for tensor in graph.initializer:
            if tensor.name in names and tensor.data_type == onnx.TensorProto.FLOAT:
                scale = numpy_helper.to_array(tensor)
                rounded = np.exp2(np.round(np.log2(np.maximum(scale, 1e-9)))).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))


def _saturating(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """As onnxruntime computes, whose sums of two products of bytes may not fit."""
    return witness.run(model.SerializeToString(), feeds, saturating=True)


def tried(seed: int) -> Outcome:
    """Run one network everywhere."""

    def made() -> Any:
        warnings.simplefilter("ignore")
        try:
            return narrowed(seed), []
        except LookupError as error:
            return Outcome("not quantised", str(error)), []

    found = in_child(made, CHILD_SECONDS)[0]
    if isinstance(found, Outcome):
        return found
    model, feeds, name = found
    mode = mode_of(seed, model, feeds)
    if seed % 4 == 0:
        mode = Mode("integer products", {"integer_products": True})
    outcome = judged(model, feeds, mode, [("saturating", _saturating)])
    if outcome.kind == "differ" and "oracle refuses" in outcome.message:
        return Outcome("may saturate", f"{name}: {outcome.message}")
    return Outcome(outcome.kind, f"{name}: {outcome.message}")


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`."""
    return try_seeds(tried, lambda seed: narrowed(seed)[0], seconds, seed, count, folder)
