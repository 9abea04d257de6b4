"""Statistics of the operands of a model's weights, over samples of the model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.definitions.recurrent_node import Recurrent, read_recurrent
from ostinato.graph.edit import add_constant, append_copy
from ostinato.graph.loop_form import read_loop
from ostinato.graph.writer import Array
from ostinato.model.graphs import subgraphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array
from ostinato.model.write import to_model_proto
from ostinato.quantization.samples import Sample, outputs_of
from ostinato.quantization.sites import RECURRENT_WEIGHTS, Site, find_sites
from ostinato.runtime.session import InferenceSession

# Second moments of more terms than this take more time than rounding by nearest loses.
_MOST_TERMS = 4096
# Elements of the kernels that show what a convolution reads.
_MOST_TAPS = 1 << 24
# Elements that are kept of each operand, at most, to choose its range by.
_KEPT = 1 << 16
# Shares of the whole range that are tried.
_SHARES = np.linspace(1.0, 0.2, 41)


@dataclass
class Seen:
    """Statistics of one operand, or of one for each group of the weights.

    low, high: the range of its elements. count: of vectors. total: their sum, `[groups, terms]`.
    moments: the sum of their outer products, `[groups, terms, terms]`. kept: one in `every`
        elements.
    """

    low: float = 0.0
    high: float = 0.0
    count: int = 0
    total: Array | None = None
    moments: Array | None = None
    kept: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    every: int = 1

    @property
    def is_known(self) -> bool:
        """Whether any element but 0 was seen."""
        return self.low < self.high

    def mean(self, group: int) -> Array | None:
        """The mean vector of a group of weights, where a vector was seen."""
        total = self._of(group, self.total)
        return None if total is None else total / self.count

    def moments_of(self, group: int) -> Array | None:
        """The second moments for a group of weights, where a vector was seen."""
        return self._of(group, self.moments)

    def _of(self, group: int, sums: Array | None) -> Array | None:
        """The sums of a group; groups may share them."""
        if sums is None or not self.count:
            return None
        found: Array = sums[group if len(sums) > 1 else 0]
        return found

    def add(self, vectors: Array) -> None:
        """Count `[groups, vectors, terms]` in."""
        if not vectors.size:
            return
        self.widen(vectors)
        if vectors.shape[2] > _MOST_TERMS:
            return
        wide = vectors.astype(np.float64)
        total, moments = wide.sum(axis=1), wide.swapaxes(1, 2) @ wide
        self.total = total if self.total is None else self.total + total
        self.moments = moments if self.moments is None else self.moments + moments
        self.count += wide.shape[1]

    def widen(self, values: Array) -> None:
        """Count elements in, but no vectors."""
        if values.size:
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))
            taken = values.reshape(-1)[:: self.every].astype(np.float32)
            self.kept = np.concatenate([self.kept, taken])
            while self.kept.size > _KEPT:
                self.kept, self.every = self.kept[::2], 2 * self.every

    def rounding_snr(self, levels: int) -> float:
        """The SNR in dB of elements that are rounded to this many steps of `best_range`."""
        if not self.is_known:
            return float("inf")
        low, high = self.best_range(levels)
        scale = max((high - low) / levels, float(np.finfo(np.float32).tiny))
        first = np.rint(low / scale)
        error = self.kept - np.clip(np.rint(self.kept / scale), first, first + levels) * scale
        power, noise = (float(np.square(x, dtype=np.float64).sum()) for x in (self.kept, error))
        return 10 * float(np.log10(power / noise)) if noise else float("inf")

    def best_range(self, levels: int) -> tuple[float, float]:
        """The range around 0 for which rounding to this many steps has the least squared error.

        Both ends are the same share of what was seen: what lies beyond is cut off.
        """
        errors = []
        for share in _SHARES:
            scale = max((self.high - self.low) * share / levels, np.finfo(np.float32).tiny)
            low = np.rint(self.low * share / scale)
            rounded = np.clip(np.rint(self.kept / scale), low, low + levels) * scale
            error = self.kept - rounded
            errors.append(float(np.square(error, dtype=np.float64).sum()))
        share = float(_SHARES[int(np.argmin(errors))])
        return self.low * share, self.high * share


Name: TypeAlias = "str | Array | None"


@dataclass
class _Probe:
    """Names of the outputs that a site is seen by.

    values: the other operand; for recurrent weights the sequence of states, then the first state.
    """

    site: Site
    values: list[Name]


def observe(model: ir.Model, samples: Sequence[Sample], states: Mapping[str, str]) -> list[Seen]:
    """Run `model` on `samples` and give what each site of `find_sites` saw, in their order.

    In a body of Scan or Loop every step counts, in an If the samples for which the branch runs;
    what a branch in a loop sees is not known. The recurrent part of a GRU that resets before the
    product is counted as the state, which is what it multiplies where the gate is open.
    """
    clone = model.clone()
    exposed = _Exposed(clone)
    probes = [_Probe(site, exposed.values(site)) for site in find_sites(clone)]
    proto = to_model_proto(clone)
    session = InferenceSession(proto, cache_dir=None)
    seen = [Seen() for _ in probes]
    for results in outputs_of(session, samples, states):
        for probe, statistics in zip(probes, seen, strict=True):
            arrays = [results[v] if isinstance(v, str) else v for v in probe.values]
            if arrays:
                _count(probe.site, exposed.opset, arrays, statistics)
    return seen


class _Exposed:
    """Makes outputs of what sites of `model` read."""

    def __init__(self, model: ir.Model) -> None:
        self._model, self._names, self.opset = model, Names(model), opset_of(model)
        self._owners = {body: node for node in model.graph.all_nodes() for body in subgraphs(node)}

    def values(self, site: Site) -> list[Name]:
        """The outputs that show what a site reads; none where that is not known, or no operand."""
        if site.is_table:
            return []
        if site.is_recurrent and site.position == RECURRENT_WEIGHTS:
            return self._states(site)
        value = site.node.inputs[site.other]
        assert value is not None
        found = [self._patches(site)] if site.node.op_type == "Conv" else []
        wanted = [item for item in found if item is not None]
        results = [self._returned(item) for item in (*wanted, value)]
        return [] if None in results else [*results]

    def _states(self, site: Site) -> list[Name]:
        recurrent = read_recurrent(site.node, self.opset)
        sequence, first = site.node.outputs[0], recurrent.input("initial_h")
        sequence.name = sequence.name or self._names.fresh("states")
        sequence.type = sequence.type or ir.TensorType(recurrent.dtype)
        shown = self._returned(sequence)
        constant = constant_array(first)
        if shown is None:
            return []
        if first is None or constant is not None:
            return [shown, constant]
        return [shown, self._returned(first)]

    def _patches(self, site: Site) -> ir.Value | None:
        """What each tap of a convolution reads: a convolution whose kernels are 1 at one tap."""
        node, terms = site.node, site.terms
        groups = node.attributes.get_int("group", 1)
        if terms * terms * groups > _MOST_TAPS or site.weight.dtype != ir.DataType.FLOAT:
            return None
        taps = np.eye(terms, dtype=np.float32).reshape(terms, *site.array.shape[1:])
        constant = add_constant(
            self._model, self._names.fresh("taps"), np.concatenate([taps] * groups)
        )
        result = ir.Value(name=self._names.fresh("patches"), type=ir.TensorType(ir.DataType.FLOAT))
        operands = [node.inputs[0], constant]
        attributes = list(node.attributes.values())
        node.append(ir.Node("", "Conv", operands, attributes, outputs=[result], name=""))
        return result

    def _from_branch(
        self, owner: ir.Node, branch: ir.Graph | ir.Function | None, value: ir.Value
    ) -> ir.Value:
        """A new output of an If: a value of one branch, and nothing in the other."""
        dtype, rank = value.dtype or ir.DataType.FLOAT, len(value.shape or (0,))
        for body in subgraphs(owner):
            if body is branch:
                body.outputs.append(append_copy(body, value, self._names.fresh("taken")))
                continue
            empty = ir.tensor(np.zeros((0,) * rank, dtype.numpy()))
            node = ir.Node("", "Constant", [], [ir.AttrTensor("value", empty)], name="")
            node.outputs[0].name, node.outputs[0].type = self._names.fresh("none"), value.type
            body.append(node)
            body.outputs.append(node.outputs[0])
        owner.resize_outputs(len(owner.outputs) + 1)
        result = owner.outputs[-1]
        result.name, result.type = self._names.fresh(f"{value.name}_taken"), ir.TensorType(dtype)
        return result

    def _returned(self, value: ir.Value) -> str | None:
        """Make an output of a value, of each step where it is one of a loop; return its name.

        An output of a branch is empty where the other one runs. None for a branch in a loop, whose
        steps would differ in size.
        """
        graph, is_chosen = value.graph, False
        while graph is not self._model.graph:
            owner = self._owners.get(graph) if isinstance(graph, ir.Graph) else None
            if owner is None:
                return None
            if owner.op_type == "If":
                value, is_chosen = self._from_branch(owner, graph, value), True
            else:
                loop = None if is_chosen else read_loop(owner, self.opset)
                if loop is None:
                    return None
                loop.stack(value, self._names)
                value = loop.stacked[-1].result
            graph = owner.graph
        name = self._names.fresh(f"seen/{value.name}")
        self._model.graph.outputs.append(append_copy(self._model.graph, value, name))
        return name


def _count(site: Site, version: int, arrays: Sequence[Array | None], seen: Seen) -> None:
    last = arrays[-1]
    if any(array is not None and not array.size for array in arrays):
        return
    if site.is_recurrent:
        recurrent = read_recurrent(site.node, version)
        if site.position == RECURRENT_WEIGHTS:
            assert arrays[0] is not None
            seen.add(_states_before(recurrent, arrays[0], last))
            return
    assert last is not None
    if site.is_convolution:
        seen.widen(last)
        if len(arrays) > 1 and arrays[0] is not None:
            moved = np.moveaxis(arrays[0], 1, -1)
            # Every group of a convolution counts, as all share a row of the weights' layout.
            seen.add(moved.reshape(1, -1, site.terms))
        return
    if last.ndim < 2:
        last = last[None, :] if site.other_axis == -1 else last[:, None]
    moved = np.moveaxis(last, site.other_axis, -1)
    seen.add(moved.reshape(1, -1, moved.shape[-1]))


def _states_before(recurrent: Recurrent, y: Array, first: Array | None) -> Array:
    """The state that each step reads: `[directions, steps and rows, H]`, from `Y` and initial_h."""
    h, count = recurrent.hidden_size, len(recurrent.directions)
    # In a loop every step of the loop has a sequence of its own.
    many = y.reshape(-1, *y.shape[-4:])
    if recurrent.layout:
        many = many.transpose(0, 2, 3, 1, 4)  # [.., B, S, D, H] -> [.., S, D, B, H]
    rows = many.shape[3]
    start = np.zeros((len(many), count, rows, h), y.dtype)
    if first is not None:
        given = first.reshape(-1, *first.shape[-3:])
        start[:] = given.swapaxes(1, 2) if recurrent.layout else given
    parts = []
    for d, direction in enumerate(recurrent.directions):
        own = many[:, :, d]
        later = own[:, 1:] if direction == "reverse" else own[:, :-1]
        parts.append(np.concatenate([start[:, d].reshape(-1, h), later.reshape(-1, h)]))
    return np.stack(parts)
