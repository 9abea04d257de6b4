"""A model and its gradient as two models: what the first one computed, the second one reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from ostinato.autodiff.differentiate import load_at_opset, prepare, pull_back
from ostinato.autodiff.gradient import ALL_PASSES, expose
from ostinato.autodiff.scope import is_float
from ostinato.autodiff.stops import drop_stops
from ostinato.errors import InputError
from ostinato.graph.edit import append_copy, can_return
from ostinato.graph.facts import facts_of
from ostinato.model.captures import captures
from ostinato.model.graphs import upstream
from ostinato.model.load import ModelLike
from ostinato.model.names import Names
from ostinato.model.values import dims_of
from ostinato.model.write import to_model_proto
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.pipeline import run_passes

# Passes that join two nodes, of which one may belong to the forward model and the other not.
_JOINING = ("stack_operands", "thread_ifs")


@dataclass(frozen=True)
class Partition:
    """The two models of a vector-Jacobian product.

    forward: `[inputs] -> [outputs of the model, residuals]`.
    backward: `[reads, cotangents] -> [gradients]`, in the order of `wrt`.
    reads: names of inputs and outputs of `forward` that `backward` takes.
    cotangents: the input of `backward` that is the gradient of an output, by that output.
    """

    forward: onnx.ModelProto
    backward: onnx.ModelProto
    reads: tuple[str, ...]
    cotangents: dict[str, str]


def partition(model: ModelLike, wrt: Sequence[str], outputs: Sequence[str]) -> Partition:
    """Cut the model with its gradients where the gradients of the outputs come in.

    wrt: inputs and initializers of float type, which become inputs. outputs: those of float type
    through which gradients come.

    Raises `InputError` for names that are not there, `UnsupportedError` naming the first node on
    the way without a gradient, and what `load_model` raises.
    """
    loaded = load_at_opset(model)
    expose(loaded, wrt)
    results = [str(value.name) for value in loaded.graph.outputs]
    prepare(loaded, passes=ALL_PASSES)
    # Passes may give another value in place of an output, with its name.
    made = {str(value.name): value for value in loaded.graph.outputs}
    for name in outputs:
        if name not in made or not is_float(made[name]):
            raise InputError(f"{name!r} is no output of float type: there are {results}")
    inputs = {str(value.name): value for value in loaded.graph.inputs}
    names = Names(loaded)
    cotangents = {}
    for name in outputs:
        value = made[name]
        shape = None if value.shape is None else ir.Shape(value.shape)
        given = ir.Value(name=names.fresh(f"{name}_grad"), type=value.type, shape=shape)
        loaded.graph.inputs.append(given)
        cotangents[name] = given
    seeds = {made[name]: given for name, given in cotangents.items()}
    gradients = pull_back(loaded, seeds, [inputs[name] for name in wrt])
    drop_stops(loaded)
    gradient_names = _return(loaded.graph, names, wrt, gradients)
    run_passes(loaded, _JOINING, passes=ALL_PASSES)
    infer_shapes(loaded)
    return _cut(loaded, results, gradient_names, {k: str(v.name) for k, v in cotangents.items()})


def _return(
    graph: ir.Graph, names: Names, wrt: Sequence[str], gradients: Sequence[ir.Value]
) -> list[str]:
    """Make outputs of the gradients; returns their names."""
    sources = {str(value.name): value for value in graph.inputs}
    for name, value in zip(wrt, gradients, strict=True):
        new = names.fresh(f"{name}_grad")
        result = value if can_return(graph, value) else append_copy(graph, value, new)
        result.name, result.type, result.shape = new, sources[name].type, sources[name].shape
        graph.outputs.append(result)
    return [str(value.name) for value in graph.outputs[len(graph.outputs) - len(wrt) :]]


def _cut(
    model: ir.Model, results: Sequence[str], gradients: Sequence[str], cotangents: dict[str, str]
) -> Partition:
    graph = model.graph
    values = {str(value.name): value for value in graph.outputs}
    ends = [values[name] for name in gradients]
    seeds = {value for value in graph.inputs if value.name in cotangents.values()}
    late = _downstream(graph, seeds)
    needed = [v for v in upstream(ends, _operands) if v in late]
    read = dict.fromkeys(v for end in needed for v in _operands(end) if v not in late)
    read.update(dict.fromkeys(v for v in ends if v not in late))
    residuals = _residuals(read)
    given = [value for value in graph.inputs if value not in seeds]
    forward_ends = [values[name] for name in results]
    forward_ends += [value for value in residuals if value not in forward_ends]
    taken = [v for v in upstream(ends, _operands, residuals) if v in given]
    reads = [*taken, *residuals]
    # In the order of the outputs, whatever the passes did.
    last = [next(v for v in graph.inputs if v.name == name) for name in cotangents.values()]
    proto, names = to_model_proto(model), Names(model)
    return Partition(
        _part(proto, graph, given, forward_ends, names),
        _part(proto, graph, [*reads, *last], ends, names),
        tuple(str(value.name) for value in reads),
        cotangents,
    )


def _operands(value: ir.Value) -> list[ir.Value]:
    node = value.producer()
    return [] if node is None else captures(node)


def _downstream(graph: ir.Graph, sources: Iterable[ir.Value]) -> set[ir.Value]:
    found = set(sources)
    for node in graph:
        if any(value in found for value in captures(node)):
            found.update(node.outputs)
    return found


def _residuals(read: Iterable[ir.Value]) -> list[ir.Value]:
    """The values to keep so that the values `read` can be computed without anything costly.

    Views of a value are made again from it, and so is what moves or converts inputs of the model.
    Each element-wise function that costs less than storing its result is run again, if its operands
    are kept anyway.
    """
    free: dict[ir.Value, bool] = {}
    kept: dict[ir.Value, None] = {}
    for value in read:
        source = _source(value)
        if not _is_free(source, free):
            kept[source] = None
    for value in reversed(list(kept)):
        node = value.producer()
        facts = None if node is None else facts_of(node.op_type, node.domain)
        if facts is not None and facts.cheap and facts.elementwise:
            operands = map(_source, _operands(value))
            if all(v in kept or _is_free(v, free) for v in operands):
                del kept[value]
    return list(kept)


def _source(value: ir.Value) -> ir.Value:
    """The value of which this one is a view, with the same elements or most of them."""
    while (node := value.producer()) is not None:
        facts = facts_of(node.op_type, node.domain)
        first = node.inputs[0] if node.inputs else None
        same = facts.moves and (facts.in_order or node.op_type == "Transpose")
        if first is None or not (same or (node.op_type == "Slice" and _is_most(value, first))):
            break
        value = first
    return value


def _is_most(part: ir.Value, whole: ir.Value) -> bool:
    """Whether a slice has half of the elements or more: to keep it would be another copy."""
    sizes, all_sizes = dims_of(part), dims_of(whole)
    if sizes is None or all_sizes is None:
        return False
    kept = total = 1
    for size, whole_size in zip(sizes, all_sizes, strict=True):
        if size == whole_size and size is not None:
            continue
        if not isinstance(size, int) or not isinstance(whole_size, int):
            return False
        kept, total = kept * size, total * whole_size
    return 2 * kept >= total


def _is_free(value: ir.Value, known: dict[ir.Value, bool]) -> bool:
    """Whether the value is an input, a constant, or moved from such, or a size."""
    for current in upstream([value], _operands, known):
        node = current.producer()
        if node is None:
            known[current] = True
            continue
        facts = facts_of(node.op_type, node.domain)
        moves = facts.moves or facts.casts or node.op_type == "ConstantOfShape"
        known[current] = facts.reads_shape or (moves and all(known[v] for v in _operands(current)))
    return known[value]


def _part(
    proto: onnx.ModelProto,
    graph: ir.Graph,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    names: Names,
) -> onnx.ModelProto:
    """The model of the nodes between these values. proto: all of `graph`, node by node.

    A node of which one result is an input, and another one is asked for its shape, stays for that.
    """
    given = {value.name for value in inputs}
    found = set(upstream(outputs, _operands, set(inputs)))
    part = onnx.ModelProto(ir_version=proto.ir_version)
    part.opset_import.extend(proto.opset_import)
    part.graph.name = proto.graph.name
    for node, written in zip(graph, proto.graph.node, strict=True):
        if found.intersection(node.outputs):
            copied = part.graph.node.add()
            copied.CopyFrom(written)
            copied.output[:] = [names.fresh(n) if n in given else n for n in written.output]
    read = {value.name for value in found}
    part.graph.initializer.extend(t for t in proto.graph.initializer if t.name in read)
    part.graph.input.extend(map(_declared, inputs))
    part.graph.output.extend(map(_declared, outputs))
    return part


def _declared(value: ir.Value) -> onnx.ValueInfoProto:
    info: onnx.ValueInfoProto = ir.to_proto(value)
    return info
