"""The driver: finds weights, chooses their types, rounds and writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

import numpy as np
import onnx
import onnx.checker
import onnx_ir as ir

from ostinato.arguments import is_one_of, names_of
from ostinato.errors import InputError, ModelError, OptionError
from ostinato.graph.raise_opset import converted
from ostinato.graph.writer import Array
from ostinato.model.attributes import describe
from ostinato.model.graphs import is_standard
from ostinato.model.load import ModelLike, load_model
from ostinato.model.names import Names
from ostinato.model.types import type_text
from ostinato.model.values import dims_of
from ostinato.model.write import to_model_proto
from ostinato.passes.normalise.inline_functions import inline_functions
from ostinato.passes.normalise.lift_constants import lift_constants
from ostinato.passes.normalise.portable import portable
from ostinato.passes.simplify.constant_folding import constant_folding
from ostinato.passes.simplify.dead_code import dead_code
from ostinato.quantization.activations import LEVELS, write_activations
from ostinato.quantization.bias import correct_bias
from ostinato.quantization.calibration import Seen, observe
from ostinato.quantization.constants import evaluate_operands
from ostinato.quantization.formats import FORMATS, Format
from ostinato.quantization.samples import (
    Calibration,
    Sample,
    outputs_of,
    read_samples,
    signal_to_noise,
)
from ostinato.quantization.sensitivity import Trial, decibels, narrowest
from ostinato.quantization.sites import Site, find_sites, tied_transposes
from ostinato.quantization.weights import (
    WHOLE,
    Stored,
    block_of,
    drop_unread,
    fits,
    store,
    write_weights,
)
from ostinato.runtime.session import InferenceSession, NodeArg

# The first with blocks of scales and int4, and the IR version that goes with it.
OPSET, IR_VERSION = 21, 10
METADATA = "ostinato.quantized"
_STATIC = "int8-static"
_ACTIVATIONS = ("int8-dynamic", _STATIC)
# Operands by rank, from 0 for the one that 8 bits hold least well.
Floats: TypeAlias = "frozenset[int]"
# Operands that are tried in bytes again one by one: each takes a compilation.
_MOST_TRIED = 16


@dataclass(frozen=True)
class Layer:
    """Weights of the result: bytes before and after, of elements and scales.

    name: of their node. weights: of the initializer. type: what they are stored in. snr: in dB, of
    the worst output where these weights alone are narrow; None where that was not measured, or no
    sample reaches them.
    """

    name: str
    weights: str
    type: str
    before: int
    after: int
    snr: float | None = None


@dataclass(frozen=True)
class Quantized:
    """A quantised model, and what its weights are stored in."""

    model: onnx.ModelProto
    layers: tuple[Layer, ...]


def quantize(
    model: ModelLike,
    weights: str = "int8",
    activations: str | None = None,
    *,
    calibration: Calibration | None = None,
    exclude: Sequence[str] = (),
    block: int | None = None,
    target_snr: float | None = None,
    states: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Store the weights of every product and recurrence of a model in fewer bytes.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
    weights: "int8" or "int4" with scales, "bf16" or "f16". A weight matrix becomes a constant
        behind DequantizeLinear (or Cast), which every runtime reads.
    activations: None to compute in floats; "int8-dynamic" for integer products with inputs whose
        range is that of each run, or of each step in a recurrence, or, where blocks of terms share
        a scale of the weights, that of a row's block; "int8-static" for the ranges of the
        calibration data (QuantizeLinear and DequantizeLinear around products). Static ranges need
        weights="int8", others "int8" or "int4"; RNN, GRU and LSTM then come out as Scan.
    calibration: arrays by the names of inputs, a list of such samples, or the path of an .npz file;
        arrays with one axis more than their input hold a sample in each row. With it, rounding
        takes second moments of inputs into account (GPTQ) and biases are corrected.
    exclude: names or patterns (`"decoder*"`) of nodes or weights to leave as they are.
    block: how many terms of a sum share a scale, -1 for all of them; by default all, and 32 for
        int4.
    target_snr: in dB, for all outputs; each weight matrix then has the narrowest type, from
        `weights` on, with which the model meets it on the calibration data. Those that no sample
        reaches stay as they are, with a warning. With "int8-static" the operands that 8 bits hold
        least well stay floats, as few as meet it.
    states: the output of each state by its input: samples that do not give a state are run one
        after the other, as by `InferenceSession.stream`.

    Returns a model of standard operators with the same inputs and outputs, of opset 21 or later.

    Raises `OptionError` for options that do not exist or fit, `InputError` for calibration data
    that does not, `ModelError` for weights that are not finite and for a model with none, and what
    `load_model` raises.
    """
    return quantize_layers(
        model,
        weights,
        activations,
        calibration=calibration,
        exclude=exclude,
        block=block,
        target_snr=target_snr,
        states=states,
    ).model


def quantize_layers(
    model: ModelLike,
    weights: str = "int8",
    activations: str | None = None,
    *,
    calibration: Calibration | None = None,
    exclude: Sequence[str] = (),
    block: int | None = None,
    target_snr: float | None = None,
    states: Mapping[str, str] | None = None,
    measure_on: Calibration | None = None,
) -> Quantized:
    """`quantize`, with what became of each layer.

    measure_on: samples like those of `calibration`, on which each layer is measured alone; with
        `target_snr` those of `calibration` by default.
    """
    form = _format(weights)
    _check_options(form, activations, block, target_snr)
    if not isinstance(states, Mapping | None):
        raise OptionError(f"states={states!r}: expected the output of each state by its input")
    request = _Request(model, form, activations, calibration, exclude, block, dict(states or {}))
    if target_snr is None or activations != _STATIC:
        return _quantized(request, target_snr=target_snr, measure_on=measure_on)
    floats = _floats(request, target_snr)
    return _quantized(request, floats=floats, measure_on=measure_on)


@dataclass(frozen=True)
class _Request:
    """The arguments of `quantize`, checked where that needs no model."""

    model: ModelLike
    form: Format
    activations: str | None
    calibration: Calibration | None
    exclude: Sequence[str]
    block: int | None
    states: Mapping[str, str]


def _floats(request: _Request, target: float) -> Floats:
    """Choose as few operands in floats as meet the target on the samples.

    How many of those that 8 bits hold least well is found by bisection; each is then tried in bytes
    again. Where nothing meets the target, all are floats.
    """
    _quantized(request)  # refuses what cannot be calibrated
    assert request.calibration is not None  # it has been asked for ranges
    loaded = _loaded(request.model)
    samples = read_samples(request.calibration, _arguments(loaded), request.states)

    def outputs(proto: onnx.ModelProto) -> list[dict[str, Array]]:
        session = InferenceSession(proto, cache_dir=None, integer_products=True)
        return list(outputs_of(session, samples, request.states))

    expected = outputs(to_model_proto(loaded))

    def meets(floats: Floats) -> bool:
        found = _quantized(request, floats=floats)
        ratios = signal_to_noise(expected, outputs(found.model))
        return min(ratios.values()) >= target

    low, high = 0, len(find_sites(loaded))
    while low < high:
        middle = (low + high) // 2
        is_enough = meets(frozenset(range(middle)))
        low, high = (low, middle) if is_enough else (middle + 1, high)
    floats = frozenset(range(low))
    # Errors of the last layers reach the outputs as they are, those of the first ones less so.
    for rank in range(min(low, _MOST_TRIED)):
        fewer = floats - {rank}
        floats = fewer if meets(fewer) else floats
    return floats


def _quantized(
    request: _Request,
    *,
    target_snr: float | None = None,
    floats: Floats = frozenset(),
    measure_on: Calibration | None = None,
) -> Quantized:
    """A quantised model. floats: the operands that stay floats, by their rank."""
    loaded, states = _loaded(request.model), request.states
    sites = _chosen(find_sites(loaded), request.exclude)
    for site in sites:
        _check_finite(site)
        block_of(site, request.form, request.block)
    _check_states(loaded, states)
    seen: dict[tuple[ir.Node, int], Seen] = {}
    samples = None
    if request.calibration is not None:
        samples = read_samples(request.calibration, _arguments(loaded), states)
        places = [(site.node, site.position) for site in find_sites(loaded)]
        seen = dict(zip(places, observe(loaded, samples, states), strict=True))
    if measure_on is not None:
        samples = read_samples(measure_on, _arguments(loaded), states)
    measures = measure_on is not None or target_snr is not None
    work = _Work(loaded, sites, request.block, seen, samples, states, measures)
    if target_snr is None:
        stored = work.stored(request.form)
    else:
        stored = work.narrowest(request.form, target_snr)
    return work.written(stored, request.activations, floats)


def _arguments(model: ir.Model) -> list[NodeArg]:
    """The inputs as a session lists them, of which none need be compiled."""
    found = []
    for value in model.graph.inputs:
        dims = dims_of(value)
        shape = None if dims is None else ["?" if size is None else size for size in dims]
        found.append(NodeArg(str(value.name), type_text(value.type), shape))
    return found


def _check_states(model: ir.Model, states: Mapping[str, str]) -> None:
    inputs, outputs = (
        [value.name for value in values] for values in (model.graph.inputs, model.graph.outputs)
    )
    for name, output in states.items():
        if name not in inputs or output not in outputs:
            raise InputError(
                f"states: {name!r} and {output!r} are no input and output of the model, it has "
                f"{inputs} and {outputs}"
            )


def prepared(model: ModelLike) -> ir.Model:
    """The model in opset 21 or later, with every weight an initializer of the main graph."""
    loaded = converted(load_model(model), OPSET)
    inline_functions(loaded)
    lift_constants(loaded)
    constant_folding(loaded, tied_transposes(loaded))
    dead_code(loaded)
    loaded.ir_version = max(loaded.ir_version, IR_VERSION)
    for node in loaded.graph.all_nodes():
        if is_standard(node, "Loop"):
            # onnxruntime asks for the rank of a step's number and condition.
            for scalar in node.attributes["body"].as_graph().inputs[:2]:
                scalar.shape = ir.Shape([])
    return loaded


def _loaded(model: ModelLike) -> ir.Model:
    """`prepared`, and weights that are computed from constants are constants too."""
    loaded = prepared(model)
    if evaluate_operands(loaded):
        dead_code(loaded)
    return loaded


def _format(name: str) -> Format:
    if not is_one_of(name, FORMATS):
        raise OptionError(f"weights={name!r}: expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def _check_options(
    form: Format, activations: str | None, block: int | None, target_snr: float | None
) -> None:
    if activations is not None:
        if not is_one_of(activations, _ACTIVATIONS):
            raise OptionError(
                f"activations={activations!r}: expected None or one of {', '.join(_ACTIVATIONS)}"
            )
        is_static = activations == _STATIC
        forms = ("int8",) if is_static else ("int8", "int4")
        for name, given, wanted in (
            ("weights", form.name, forms),
            ("block", block if is_static else None, (None,)),
            ("target_snr", None if is_static else target_snr, (None,)),
        ):
            if given not in wanted:
                raise OptionError(
                    f"{name}={given!r}: integer products of activations={activations!r} have "
                    f"{name}={' or '.join(map(repr, wanted))}"
                )
    check_block(form, block)
    if target_snr is not None:
        is_number = isinstance(target_snr, int | float | np.number)
        if not is_number or not np.isfinite(target_snr):
            raise OptionError(f"target_snr={target_snr!r}: expected a number of dB")


def check_block(form: Format, block: int | None) -> None:
    """Raise `OptionError` for what no number of terms can be."""
    is_whole = isinstance(block, int | np.integer) and not isinstance(block, bool)
    if block is not None and not (is_whole and (block > 0 or block == WHOLE)):
        raise OptionError(f"block={block!r}: expected a number of terms, or {WHOLE} for all")
    if block is not None and not form.is_integer:
        raise OptionError(f"block={block}: {form.name} has no scales")


def _chosen(sites: Sequence[Site], exclude: Sequence[str]) -> list[Site]:
    """The sites that no pattern excludes."""
    patterns = names_of(exclude)
    if patterns is None:
        raise OptionError(f"exclude={exclude!r}: expected a list of names")
    if not sites:
        raise ModelError(
            "there is nothing to quantise: no MatMul, Gemm, Conv, ConvTranspose, RNN, GRU, LSTM or "
            "Gather has constant weights of type float32 or float16"
        )
    left_out: set[int] = set()
    for pattern in patterns:
        fitting = {
            index
            for index, site in enumerate(sites)
            for name in (site.name, describe(site.node), str(site.weight.name))
            if name == pattern or fnmatchcase(name, pattern)
        }
        if not fitting:
            raise OptionError(
                f"exclude: no node or weight is called {pattern!r}; there are "
                f"{[site.name for site in sites]}"
            )
        left_out |= fitting
    chosen = [site for index, site in enumerate(sites) if index not in left_out]
    if not chosen:
        raise OptionError("exclude: nothing is left to quantise")
    return chosen


def _check_finite(site: Site) -> None:
    if not np.isfinite(site.array).all():
        count = int(np.count_nonzero(~np.isfinite(site.array)))
        raise ModelError(
            f"weights {site.weight.name!r} of node {site.name!r} have {count} elements that are "
            "NaN or infinite; `exclude` the node"
        )


@dataclass(frozen=True)
class _Work:
    """State that the steps of quantising share.

    seen: statistics of operands, by node and position of the weights. measures: whether layers are
    measured alone.
    """

    model: ir.Model
    sites: Sequence[Site]
    block: int | None
    seen: Mapping[tuple[ir.Node, int], Seen]
    samples: Sequence[Sample] | None
    states: Mapping[str, str]
    measures: bool

    def _statistics(self, site: Site) -> Seen | None:
        return self.seen.get((site.node, site.position))

    def _store(self, site: Site, form: Format) -> Stored:
        return store(site, form, self.block, self._statistics(site))

    def stored(self, form: Format) -> list[Stored]:
        """All weights in one type, with biases corrected where the inputs are known."""
        stored = [self._store(site, form) for site in self.sites]
        names = Names(self.model)
        for item in stored:
            statistics = self._statistics(item.site)
            if statistics is not None:
                correct_bias(self.model, names, item, statistics)
        return stored

    def narrowest(self, form: Format, target: float) -> list[Stored]:
        """See `sensitivity.narrowest`. Biases stay: what was measured is what is written."""
        if self.samples is None:
            raise OptionError("target_snr: needs `calibration` data to measure on")

        def fitting(site: Site, wider: Format) -> Stored | None:
            is_narrower = wider.bits < 8 * site.array.itemsize
            return self._store(site, wider) if is_narrower and fits(site, wider) else None

        trial = Trial(self.model, self.sites, self.samples, self.states)
        stored = narrowest(trial, self.sites, form, target, fitting)
        if not stored:
            raise OptionError(f"target_snr={target}: no weights can be narrower than they are")
        return stored

    def _ranges(
        self, activations: str, floats: Floats
    ) -> Mapping[tuple[ir.Node, int], Seen] | None:
        """The observed ranges of the operands, without those that stay floats."""
        if activations != _STATIC:
            return None
        if not self.seen:
            raise OptionError("activations='int8-static': needs `calibration` data for the ranges")
        worst = sorted(self.seen, key=lambda place: self.seen[place].rounding_snr(LEVELS))
        return {p: Seen() if i in floats else self.seen[p] for i, p in enumerate(worst)}

    def written(
        self, stored: Sequence[Stored], activations: str | None, floats: Floats = frozenset()
    ) -> Quantized:
        """The model with these weights."""
        layers = tuple(self._layers(stored))
        left = stored
        if activations is not None:
            left = write_activations(self.model, stored, self._ranges(activations, floats))
        write_weights(self.model, Names(self.model), left)
        drop_unread(self.model, [item.site.weight for item in stored])
        self.model.metadata_props[METADATA] = json.dumps(
            {"activations": activations, "weights": {layer.name: layer.type for layer in layers}}
        )
        proto = portable(self.model)
        onnx.checker.check_model(proto)
        return Quantized(proto, layers)

    def _layers(self, stored: Sequence[Stored]) -> Iterator[Layer]:
        trial = None
        if self.measures and self.samples is not None:
            trial = Trial(self.model, self.sites, self.samples, self.states)
        for item in stored:
            is_known = trial is not None and trial.reaches(item)
            snr = decibels(trial.noise([item])) if trial is not None and is_known else None
            weight, before = str(item.site.weight.name), item.site.array.nbytes
            yield Layer(item.site.name, weight, item.form.name, before, item.nbytes, snr)
