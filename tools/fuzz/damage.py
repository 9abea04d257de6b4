"""Damage to models: of the bytes of a file, and of the structure of the message in it.

An edit is a kind and a seed. It picks its place anew in whatever model it is given, so any part of
a list of edits can be applied without the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.defs
from onnx import AttributeProto, TensorProto, helper, numpy_helper

Edit: TypeAlias = "tuple[str, int]"
Random: TypeAlias = random.Random

# Where sizes, counts, axes and types begin to be wrong.
INTEGERS = (
    *(0, 1, -1, 2, -2, 3, 4, 5, 7, 8, 15, 16, 31, 64, 100, 127, 128, 255, 1000, 65535),
    *(2**20, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, -(2**40), 2**59, 2**60, 2**62),
    *(2**63 - 1, -(2**63), -(2**63) + 1),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, -3e38, float("inf"), float("nan"))
NAMES = ("", "x", "y", "float", "Add", "a\0b", "ü", "a/b", "../x", "'", "x" * 300)
SYMBOLS = ("N", "T", "B", "", "M", "N+1", "-1")
# Tensors of more elements are weights: which of them changes makes no difference.
_FEW = 64
_NUMBERS = (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS)


def apply(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file with the edits made, those of its structure first."""
    structural = [edit for edit in edits if edit[0] != "bytes"]
    if structural:
        model = onnx.ModelProto.FromString(data)
        for kind, seed in structural:
            EDITS[kind](model, random.Random(seed))
        data = model.SerializeToString()
    for kind, seed in edits:
        if kind == "bytes":
            data = _bytes(data, random.Random(seed))
    return data


def draw(chance: Random) -> list[Edit]:
    """A few edits: most often one or two, of the structure four times out of five."""
    count = chance.choice((1, 1, 1, 2, 2, 3, 5))
    if chance.random() < 0.2:
        return [("bytes", chance.getrandbits(32)) for _ in range(count)]
    kinds = chance.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()), k=count)
    return [(kind, chance.getrandbits(32)) for kind in kinds]


def _bytes(data: bytes, chance: Random) -> bytes:
    if not data:
        return data
    if chance.random() < 0.1:
        return data[: chance.randrange(len(data))]
    damaged = bytearray(data)
    at = chance.randrange(len(damaged))
    match chance.randrange(5):
        case 0 | 1:
            damaged[at] ^= 1 << chance.randrange(8)
        case 2:
            damaged[at] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        case 3:
            del damaged[at : at + chance.choice((1, 1, 2, 8))]
        case _:
            damaged[at:at] = bytes(
                chance.choices((0, 1, 8, 127, 128, 255), k=chance.choice((1, 4)))
            )
    return bytes(damaged)


# What a model consists of


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    inside = [node for graph in _graphs(model.graph) for node in graph.node]
    return inside + [node for function in model.functions for node in function.node]


def _attributes(model: onnx.ModelProto) -> list[AttributeProto]:
    return [attribute for node in _nodes(model) for attribute in node.attribute]


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    stored = [tensor for graph in _graphs(model.graph) for tensor in graph.initializer]
    return stored + [a.t for a in _attributes(model) if a.HasField("t")]


def _values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    graphs = list(_graphs(model.graph))
    return [value for graph in graphs for value in (*graph.input, *graph.output)]


def _names(model: onnx.ModelProto) -> list[str]:
    made = [name for node in _nodes(model) for name in (*node.input, *node.output)]
    return [*made, *(value.name for value in _values(model)), *NAMES]


def _integer(chance: Random, old: int = 0) -> int:
    near = (old + 1, old - 1, -old, old * 2, old // 2, chance.randrange(-8, 9))
    value = chance.choice(near) if chance.random() < 0.4 else chance.choice(INTEGERS)
    return max(-(2**63), min(value, 2**63 - 1))


# Edits of the structure, by kind


def _number(model: onnx.ModelProto, chance: Random) -> None:
    """Another number in an attribute."""
    numbers = [attribute for attribute in _attributes(model) if attribute.type in _NUMBERS]
    if not numbers:
        return _operand(model, chance)
    attribute = chance.choice(numbers)
    if attribute.type == AttributeProto.INT:
        attribute.i = _integer(chance, attribute.i)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = chance.choice(FLOATS)
    elif attribute.type == AttributeProto.FLOATS:
        _list(attribute.floats, chance, lambda old: chance.choice(FLOATS))
    else:
        _list(attribute.ints, chance, lambda old: _integer(chance, old or 0))


def _list(items: Any, chance: Random, make: Callable[[Any], Any]) -> None:
    """Replace, remove or add an element of a repeated scalar."""
    values = list(items)
    action = chance.random()
    if values and action < 0.6:
        at = chance.randrange(len(values))
        values[at] = make(values[at])
    elif values and action < 0.8:
        del values[chance.randrange(len(values))]
    else:
        values.insert(chance.randint(0, len(values)), make(None))
    del items[:]
    items.extend(values)


def _operand(model: onnx.ModelProto, chance: Random) -> None:
    """Another number in a small constant."""
    small = [
        tensor
        for tensor in _tensors(model)
        if tensor.data_type in (TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT)
        and 0 < np.prod([max(n, 0) for n in tensor.dims], dtype=float) <= _FEW
    ]
    integers = [tensor for tensor in small if tensor.data_type != TensorProto.FLOAT]
    chosen = integers if integers and chance.random() < 0.8 else small
    if not chosen:
        return _field(model, chance)
    tensor = chance.choice(chosen)
    try:
        array = numpy_helper.to_array(tensor).copy()
    except (ValueError, TypeError):
        return None
    at = chance.randrange(array.size)
    if array.dtype.kind == "f":
        array.flat[at] = chance.choice(FLOATS)
    else:
        limits = np.iinfo(array.dtype)
        value = _integer(chance, int(array.flat[at]))
        array.flat[at] = max(limits.min, min(value, limits.max))
    if chance.random() < 0.2:
        array = array.reshape(-1)[: chance.randint(0, array.size)]
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    return None


def _tensor(model: onnx.ModelProto, chance: Random) -> None:
    """Another shape or element type of a constant, with data that fits or not."""
    tensors = _tensors(model)
    if not tensors:
        return _number(model, chance)
    tensor = chance.choice(tensors)
    if chance.random() < 0.5:
        _list(tensor.dims, chance, lambda old: _integer(chance, old or 1))
    else:
        tensor.data_type = chance.randrange(0, 28)
    if chance.random() < 0.7:
        _refill(tensor)
    return None


def _refill(tensor: TensorProto) -> None:
    """Give the tensor as much data as its shape and type ask for, if that is little."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, TypeError):
        return
    count = np.prod([float(n) for n in tensor.dims])
    if min(tensor.dims, default=0) < 0 or count > 2**16 or dtype.kind == "O":
        return
    name = tensor.name
    data = np.ones(tuple(tensor.dims), dtype)
    tensor.CopyFrom(numpy_helper.from_array(data, name))


def _operators() -> list[str]:
    return sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})


_OPERATORS = _operators()


def _operator(model: onnx.ModelProto, chance: Random) -> None:
    """Another operator for a node."""
    nodes = _nodes(model)
    if nodes:
        node = chance.choice(nodes)
        node.op_type = chance.choice(_OPERATORS)
        if chance.random() < 0.5:
            known = _schema_attributes(node.op_type)
            kept = [attribute for attribute in node.attribute if attribute.name in known]
            del node.attribute[:]
            node.attribute.extend(kept)


def _schema_attributes(op_type: str) -> dict[str, Any]:
    try:
        return dict(onnx.defs.get_schema(op_type).attributes)
    except onnx.defs.SchemaError:
        return {}


def _attribute(model: onnx.ModelProto, chance: Random) -> None:
    """An attribute more, less, or twice."""
    nodes = _nodes(model)
    if not nodes:
        return
    node = chance.choice(nodes)
    if node.attribute and chance.random() < 0.3:
        del node.attribute[chance.randrange(len(node.attribute))]
        return
    known = _schema_attributes(node.op_type)
    if not known:
        return
    name = chance.choice(sorted(known))
    kind = known[name].type.name
    values: dict[str, Callable[[], Any]] = {
        "INT": lambda: _integer(chance),
        "INTS": lambda: [_integer(chance) for _ in range(chance.randint(0, 4))],
        "FLOAT": lambda: chance.choice(FLOATS),
        "FLOATS": lambda: [chance.choice(FLOATS) for _ in range(chance.randint(1, 4))],
        "STRING": lambda: chance.choice(NAMES),
        "STRINGS": lambda: [chance.choice(NAMES)],
        "TENSOR": lambda: numpy_helper.from_array(np.array(_integer(chance)), "t"),
    }
    if kind not in values:
        return
    if chance.random() < 0.8:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
    kind_number = getattr(onnx.AttributeProto, kind)
    node.attribute.append(helper.make_attribute(name, values[kind](), attr_type=kind_number))


def _edge(model: onnx.ModelProto, chance: Random) -> None:
    """An operand or result of a node more, less, or another."""
    nodes = _nodes(model)
    if nodes:
        node = chance.choice(nodes)
        names = node.input if chance.random() < 0.8 else node.output
        _list(names, chance, lambda old: chance.choice(_names(model)))


def _value_type(model: onnx.ModelProto, chance: Random) -> None:
    """Another type or shape of an input or output."""
    values = _values(model)
    if not values:
        return
    value = chance.choice(values)
    kind = chance.random()
    if kind < 0.1:
        tensor = value.type.tensor_type
        element = helper.make_tensor_type_proto(tensor.elem_type or 1, None)
        wrap = chance.choice((helper.make_sequence_type_proto, helper.make_optional_type_proto))
        value.type.CopyFrom(wrap(element))
        return
    tensor = value.type.tensor_type
    if kind < 0.35:
        tensor.elem_type = chance.randrange(0, 28)
    elif kind < 0.45:
        tensor.ClearField("shape")
    elif kind < 0.6 and tensor.shape.dim:
        del tensor.shape.dim[chance.randrange(len(tensor.shape.dim))]
    elif kind < 0.7 or not tensor.shape.dim:
        tensor.shape.dim.add(dim_value=_integer(chance))
    else:
        dim = chance.choice(tensor.shape.dim)
        if chance.random() < 0.5:
            dim.dim_param = chance.choice(SYMBOLS)
        else:
            dim.dim_value = _integer(chance, dim.dim_value)


def _version(model: onnx.ModelProto, chance: Random) -> None:
    """Another version of the operators, or of the format."""
    if model.opset_import and chance.random() < 0.9:
        item = chance.choice(model.opset_import)
        item.version = chance.choice((*range(1, 29), _integer(chance)))
    else:
        model.ir_version = chance.choice((0, 1, 3, 4, 8, 10, 13, 14, 2**31, 2**63 - 1))


def _node_list(model: onnx.ModelProto, chance: Random) -> None:
    """A node less, a node more, or nodes in another order."""
    graph = chance.choice(list(_graphs(model.graph)))
    if not graph.node:
        return
    at = chance.randrange(len(graph.node))
    match chance.randrange(4):
        case 0:
            del graph.node[at]
        case 1:
            nodes = list(graph.node)
            chance.shuffle(nodes)
            del graph.node[:]
            graph.node.extend(nodes)
        case 2:
            copy = onnx.NodeProto()
            copy.CopyFrom(graph.node[at])
            if chance.random() < 0.7:
                copy.output[:] = [f"{name}_2" for name in copy.output]
            graph.node.append(copy)
        case _:
            _insert(graph, at, chance)


def _insert(graph: onnx.GraphProto, at: int, chance: Random) -> None:
    """Put a node between another and one of its operands."""
    reader = graph.node[at]
    if not reader.input:
        return
    place = chance.randrange(len(reader.input))
    operands = [reader.input[place]]
    operands += chance.choices([*_local_names(graph)], k=chance.choice((0, 0, 1, 1, 2, 3)))
    result = f"inserted_{chance.getrandbits(32)}"
    node = helper.make_node(chance.choice(_OPERATORS), operands, [result])
    reader.input[place] = result
    nodes = list(graph.node)
    nodes.insert(at, node)
    del graph.node[:]
    graph.node.extend(nodes)


def _local_names(graph: onnx.GraphProto) -> list[str]:
    tensors = [tensor.name for tensor in graph.initializer]
    return [*tensors, *(value.name for value in graph.input), ""]


def _field(model: onnx.ModelProto, chance: Random) -> None:
    """Any field of any message: another value, an element more or less, or nothing."""
    message, field = chance.choice(list(_fields(model)))
    if field.is_repeated:
        _repeated(getattr(message, field.name), field, chance)
    elif field.message_type is not None or chance.random() < 0.2:
        message.ClearField(field.name)
    else:
        old = getattr(message, field.name)
        setattr(message, field.name, _scalar(field, old, chance))


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _fields(inner)


def _repeated(items: Any, field: Any, chance: Random) -> None:
    values = list(items)
    at = chance.randrange(len(values))
    match chance.randrange(5):
        case 0:
            del values[at]
        case 1:
            values.insert(chance.randint(0, len(values)), values[at])
        case 2:
            chance.shuffle(values)
        case 3 if field.message_type is not None:
            # The next element of another field with this type would do as well.
            values += values[: chance.choice((1, 1, 40))]
        case _ if field.message_type is None:
            values[at] = _scalar(field, values[at], chance)
    if field.message_type is not None:
        values = [type(value).FromString(value.SerializeToString()) for value in values]
    del items[:]
    items.extend(values)


def _scalar(field: Any, old: Any, chance: Random) -> Any:
    if isinstance(old, bytes):
        return _bytes(old, chance) if old else b"x"
    if isinstance(old, str):
        return chance.choice(NAMES)
    if isinstance(old, float):
        return chance.choice(FLOATS)
    if field.enum_type is not None:
        return chance.choice([value.number for value in field.enum_type.values])
    value = _integer(chance, int(old))
    if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32):
        return (
            max(-(2**31), min(value, 2**31 - 1))
            if field.cpp_type == field.CPPTYPE_INT32
            else (value % 2**32)
        )
    return value % 2**64 if field.cpp_type == field.CPPTYPE_UINT64 else value


EDITS: dict[str, Callable[[onnx.ModelProto, Random], None]] = {
    "number": _number,
    "operand": _operand,
    "tensor": _tensor,
    "operator": _operator,
    "attribute": _attribute,
    "edge": _edge,
    "type": _value_type,
    "version": _version,
    "nodes": _node_list,
    "field": _field,
}
WEIGHTS = {
    "number": 20,
    "operand": 18,
    "tensor": 10,
    "operator": 10,
    "attribute": 12,
    "edge": 8,
    "type": 12,
    "version": 3,
    "nodes": 8,
    "field": 12,
}
