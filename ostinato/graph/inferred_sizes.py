"""Sizes of values as far as they follow from the inputs: numbers, or names of run-time sizes.

Two values with one name have the same size whenever the model runs. The names are those that the
model gives to the dimensions of its inputs, and names that shape inference makes up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import prod
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from ostinato.graph.axis_maps import Form
from ostinato.graph.facts import facts_of
from ostinato.graph.linear_index import Indices, named_size
from ostinato.model import inference
from ostinato.model.graphs import nodes_of
from ostinato.model.order import scopes
from ostinato.model.schema import opset_of
from ostinato.model.values import optional_input
from ostinato.records import cached_property, dataclass
from ostinato.sizes.dims import Size

Sizes: TypeAlias = "tuple[int | str | None, ...]"

_INT64 = onnx.TensorProto.INT64
# Constants that say something about shapes are small.
_SHAPE_ELEMENTS = 64
# Vectors of more integers are data, not shapes.
_LONGEST_VECTOR = 2**12
# Symbols written for values of types that no size has are useless; they take 100 bytes each.
_LONGEST_OF_OTHERS = 2**16

# Since when ScatterElements exists.
_SCATTER_OPSET = 11

# The findings for the last outline: most passes change nothing, and the next one asks again.
_LAST: dict[bytes, dict[str, Sizes]] = {}

_logger = logging.getLogger(__name__)


def infer_sizes(model: ir.Model) -> dict[str, Sizes]:
    """The sizes of values of all graphs by name; a value of unknown rank is missing.

    ONNX lets a Loop change the shape of what it carries, so shape inference says nothing of it.
    Here every state is first taken to keep the shape of its initial value. Axes along which its
    next value then comes out with another size are given up until no more are, and states whose
    rank changes or is unknown: what remains is proven by induction over the steps.

    What is read of a Loop behind it has the sizes of the initial value at once, so that Loops in a
    row take no round each.
    """
    outline = _outline(model)
    key = outline.SerializeToString(deterministic=True)
    found = _LAST.get(key)
    if found is None:
        found = _proven(model, outline)
        _LAST.clear()
        _LAST[key] = found
    return dict(found)


class InferredSizes(Mapping[str, Sizes]):
    """The sizes that `infer_sizes` finds in a model, found once they are asked for."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    @cached_property
    def _found(self) -> dict[str, Sizes]:
        return infer_sizes(self._model)

    def __getitem__(self, name: str) -> Sizes:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _proven(model: ir.Model, outline: onnx.ModelProto) -> dict[str, Sizes]:
    """The sizes that `infer_sizes` finds in a model of this outline."""
    carried, opset = list(_carried(model)), opset_of(model)
    told = carried if opset >= _SCATTER_OPSET else ()
    nodes = (node for node in nodes_of(model) if node.outputs)
    makers = {node.outputs[0].name or "": node for node in nodes}
    given = [_claim(value, ()) for _, body in _loops(model) for value in body.inputs[:2]]
    assumed: dict[_Carried, Sizes] = {}
    refuted = set[_Carried]()
    while True:
        whole = {s for s in told if s not in refuted and None not in assumed.get(s, ())}
        claims = [*given, *_claims(assumed, whole)]
        sizes = _infer(_handed_on(outline, whole), claims, makers, opset)
        open_ = [state for state in carried if state not in assumed and state not in refuted]
        new = {state: sizes[state.initial] for state in open_ if state.initial in sizes}
        kept = {
            state: _common(shape, sizes.get(state.initial), sizes.get(state.after))
            for state, shape in assumed.items()
        }
        # A nested Loop must have had its chance before what depends on it is given up.
        if new:
            assumed |= new
        elif kept != assumed:
            refuted |= {state for state, shape in kept.items() if shape is None}
            assumed = {state: shape for state, shape in kept.items() if shape is not None}
        else:
            return sizes


def _common(assumed: Sizes, *others: Sizes | None) -> Sizes | None:
    """The assumed sizes that others agree with; None where a rank differs or is unknown."""
    if any(other is None or len(other) != len(assumed) for other in others):
        return None
    columns = zip(assumed, *filter(None, others), strict=True) if assumed else ()
    return tuple(first if {first, *rest} == {first} else None for first, *rest in columns)


@dataclass(frozen=True)
class _Carried:
    """A value that a Loop carries: names outside of its body, and values inside."""

    initial: str
    before: ir.Value
    after: str
    final: ir.Value


def _loops(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Graph]]:
    for node in nodes_of(model, "Loop"):
        yield node, node.attributes["body"].as_graph()


def _carried(model: ir.Model) -> Iterator[_Carried]:
    for node, body in _loops(model):
        for initial, before, after, final in zip(
            node.inputs[2:], body.inputs[2:], body.outputs[1:], node.outputs, strict=False
        ):
            if initial is not None and isinstance(before.type, ir.TensorType):
                yield _Carried(initial.name or "", before, after.name or "", final)


def _handed_on(outline: onnx.ModelProto, whole: Iterable[_Carried]) -> onnx.ModelProto:
    """The outline with final values of these states that have the sizes of their initial ones.

    A scatter says so, whose result has the sizes of its data whatever is scattered, and of which
    inference knows no elements: those of an initial value are not the final ones.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(outline)
    initials = {state.final.name or "": state.initial for state in whole if state.final.name}
    # Graphs within others first: a graph is copied with those in it.
    for graph in reversed([*scopes(proto.graph)]):
        nodes = list[onnx.NodeProto]()
        for node in graph.node:
            nodes.append(node)
            for place, name in enumerate(node.output):
                if name in initials:
                    node.output[place] = ""
                    data = [initials[name]] * 3
                    nodes.append(onnx.helper.make_node("ScatterElements", data, [name]))
        if len(nodes) > len(graph.node):
            del graph.node[:]
            graph.node.extend(nodes)
    return proto


def _claims(
    assumed: Mapping[_Carried, Sizes], whole: Set[_Carried]
) -> Iterator[onnx.ValueInfoProto]:
    """Declare sizes assumed for states; of `whole` ones the outline tells the final values."""
    for state, sizes in assumed.items():
        yield _claim(state.before, sizes)
        if state.final.name and state not in whole:
            yield _claim(state.final, sizes, state.before.type)


def _claim(
    value: ir.Value, sizes: Sizes, type_: ir.TypeProtocol | None = None
) -> onnx.ValueInfoProto:
    # A size that differs from step to step has a name of its own.
    shape = [f"{value.name}:{i}" if size is None else size for i, size in enumerate(sizes)]
    claim = ir.Value(name=value.name, type=type_ or value.type, shape=ir.Shape(shape))
    return ir.serde.serialize_value(claim)


def _infer(
    outline: onnx.ModelProto,
    claims: Iterable[onnx.ValueInfoProto],
    makers: Mapping[str, ir.Node],
    opset: int,
) -> dict[str, Sizes]:
    """The sizes that follow from the outline and these claims.

    makers: the nodes of the model by their first results.
    """
    proto, kept = onnx.ModelProto(), dict[str, Sizes]()
    proto.CopyFrom(outline)
    by_name = {claim.name: claim for claim in claims}
    for graph in scopes(proto.graph):
        _state(graph, by_name)
    while True:
        try:
            # Data propagation writes a symbol for every element of a vector.
            follows = not any(map(_is_long, _infos(inference.infer_shapes(proto).graph)))
            inferred = inference.infer_shapes(proto, data_prop=follows)
        except Exception as error:  # whatever inference raises: nothing is known then
            _logger.debug("sizes are not inferred: %s", error)
            return {}
        infos = {info.name: info for info in _infos(inferred.graph)}
        ranked = [info for info in infos.values() if info.type.tensor_type.HasField("shape")]
        found = {info.name: _sizes(info) for info in ranked}
        found |= {tensor.name: tuple(tensor.dims) for tensor in inferred.graph.initializer}
        indices = Indices(found)
        dims = (dim for value in proto.graph.input for dim in value.type.tensor_type.shape.dim)
        names = {dim.dim_param for dim in dims}
        news = _say(proto.graph, infos, kept, _rules_say(makers, found, names, opset), names)
        kept |= news
        every = [*scopes(proto.graph)]
        if not sum(_fold(scope, makers, infos, indices) for scope in every) and not news:
            return found


def _rules_say(
    makers: Mapping[str, ir.Node], found: Mapping[str, Sizes], names: Set[str], opset: int
) -> dict[str, Sizes]:
    """The sizes of results to which the inference gives made-up names, where rules know more.

    What follows from one of them reaches the next one through the rules of the nodes between, so
    that a chain of such results does not take an inference each. names: of sizes that are known.
    """
    known = dict(found)
    indices = Indices(known)
    ruled: dict[str, Sizes] = {}
    for name, node in makers.items():
        old = known.get(name)
        if old is None or all(isinstance(n, int) or n in names for n in old):
            continue
        sizes = _ruled(node, known, indices, opset)
        if sizes is None or len(old) != len(sizes):
            continue
        pairs = zip(sizes, old, strict=True)
        new = tuple(n if isinstance(n, int) or n in names else before for n, before in pairs)
        if new != old:
            known[name] = ruled[name] = new
    return ruled


def _ruled(node: ir.Node, found: Mapping[str, Sizes], indices: Indices, opset: int) -> Sizes | None:
    """The sizes of the result of a node by its rule; None where it has none, or misses a rank."""
    rule = facts_of(node.op_type, node.domain).sizes
    given = [value for value in node.inputs if value is not None]
    if rule is None or any(value.name not in found for value in given):
        return None

    def constant(index: int) -> np.ndarray | None:
        numbers = indices.numbers(optional_input(node, index))
        return None if numbers is None else np.array(numbers)

    def elements(index: int) -> Sequence[Size | None] | None:
        return indices.elements(optional_input(node, index))

    dims = [None if value is None else found[value.name or ""] for value in node.inputs]
    try:
        results = rule(Form(node, dims, constant, opset, elements=elements))
    except (ArithmeticError, LookupError, TypeError, ValueError):  # operands that do not fit
        return None
    return None if not results or results[0] is None else tuple(map(named_size, results[0]))


def _fold(
    graph: onnx.GraphProto,
    makers: Mapping[str, ir.Node],
    infos: Mapping[str, onnx.ValueInfoProto],
    indices: Indices,
) -> int:
    """Store what integer nodes compute from known sizes as initializers; returns how many.

    The inference of the onnx package follows sizes through sums and products, into the operands of
    some operators only: bounds of a Slice have to be initializers, and a division ends it, as in
    the `chunk` of scripted PyTorch.
    """
    results, kept = {value.name for value in graph.output}, list[onnx.NodeProto]()
    for node in graph.node:
        name = node.output[0]
        kind = infos[name].type.tensor_type if name in infos else None
        numbers = None
        if kind is not None and kind.elem_type == _INT64 and kind.HasField("shape"):
            is_single = name in makers and name not in results and len(node.output) == 1
            numbers = indices.numbers(makers[name].outputs[0]) if is_single else None
        array = None if kind is None or numbers is None else _array(kind, numbers)
        if array is None:
            kept.append(node)
        else:
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    folded = len(graph.node) - len(kept)
    if folded:
        del graph.node[:]
        graph.node.extend(kept)
    return folded


def _array(kind: onnx.TypeProto.Tensor, numbers: Sequence[int]) -> np.ndarray | None:
    """The numbers in the shape of a type; None where there are not as many."""
    sizes = [dim.dim_value for dim in kind.shape.dim]
    return np.array(numbers, np.int64).reshape(sizes) if prod(sizes) == len(numbers) else None


def _say(
    graph: onnx.GraphProto,
    infos: Mapping[str, onnx.ValueInfoProto],
    said: Mapping[str, Sizes],
    ruled: Mapping[str, Sizes],
    names: Set[str],
) -> dict[str, Sizes]:
    """Say which sizes rules know and the inference does not; returns what is new.

    infos: what is known of values of this graph and the graphs in it. said: what has been said of
    them. ruled: what rules say. names: of sizes that are known.
    """
    news = dict[str, Sizes]()
    for scope in scopes(graph):
        for node in scope.node:
            name = node.output[0]
            # Names that inference makes up differ every time.
            shape = tuple(
                n if isinstance(n, int) or n in names else None for n in ruled.get(name, ())
            )
            if name not in ruled or said.get(name) == shape:
                continue
            here = (info for info in (*scope.output, *scope.value_info) if info.name == name)
            info = next(here, None) or scope.value_info.add()
            info.CopyFrom(infos[name])
            for size, dim in zip(shape, info.type.tensor_type.shape.dim, strict=True):
                if isinstance(size, int):
                    dim.dim_value = size
                elif size is not None:
                    dim.dim_param = size
            news[name] = shape
    return news


def _sizes(info: onnx.ValueInfoProto) -> Sizes:
    return tuple(map(_size, info.type.tensor_type.shape.dim))


def _is_long(info: onnx.ValueInfoProto) -> bool:
    kind = info.type.tensor_type
    if kind.elem_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
        return any(dim.dim_value > _LONGEST_VECTOR for dim in kind.shape.dim)
    return len(kind.shape.dim) == 1 and kind.shape.dim[0].dim_value > _LONGEST_OF_OTHERS


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def _outline(model: ir.Model) -> onnx.ModelProto:
    """The model without large constants, and with no shapes inside."""
    proto = onnx.ModelProto(ir_version=model.ir_version)
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.name = "outline"
    for value in model.graph.inputs:
        proto.graph.input.append(_input(value))
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.size <= _SHAPE_ELEMENTS:
            proto.graph.initializer.append(ir.serde.serialize_tensor(tensor))
        else:
            proto.graph.input.append(_input(value))
    for node in model.graph:
        proto.graph.node.append(ir.serde.serialize_node(node))
    for value in model.graph.outputs:
        info = proto.graph.output.add(name=value.name or "")
        if value.type is not None:
            ir.serde.serialize_type_into(info.type, value.type)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    for graph in [*scopes(proto.graph)][1:]:
        # Inference does not look up the contents of constants in the graphs around.
        captured = dict.fromkeys(name for node in graph.node for name in node.input)
        graph.initializer.extend(constants[name] for name in captured if name in constants)
        del graph.value_info[:]
        for info in (*graph.input, *graph.output):
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
    return proto


def _input(value: ir.Value) -> onnx.ValueInfoProto:
    """A value of known rank, each of its unknown sizes with a name of its own."""
    info: onnx.ValueInfoProto = ir.serde.serialize_value(value)
    if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") and not dim.dim_param:
                dim.dim_param = f"{value.name}:{axis}"
    return info


def _state(graph: onnx.GraphProto, claims: Mapping[str, onnx.ValueInfoProto]) -> None:
    for info in (*graph.input, *graph.output):
        if info.name in claims:
            info.CopyFrom(claims[info.name])
    for node in graph.node:
        graph.value_info.extend(claims[name] for name in node.output if name in claims)


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    for scope in scopes(graph):
        yield from (*scope.input, *scope.value_info, *scope.output)
