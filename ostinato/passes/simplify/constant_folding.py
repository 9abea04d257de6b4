"""Nodes that move or compute constants exactly become constants."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.graph.axis_maps import Form
from ostinato.graph.edit import add_constant, discard, replace_value
from ostinato.graph.facts import facts_of
from ostinato.graph.ruled_sizes import refine_shapes
from ostinato.limits import MOST_KNOWN_BYTES
from ostinato.model.graphs import graphs, maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.origins import Made, Observed
from ostinato.model.schema import opset_of, schema_of
from ostinato.model.signature import type_error
from ostinato.model.types import known_type
from ostinato.model.values import constant_array, constant_tensor, static_dims, unread_array
from ostinato.reference.direct import EXACT_FLOATS, direct_kernel, has_direct_kernel, has_subnormals

# A result this small is stored whatever it was made from.
SMALL_RESULT_BYTES = 64 * 1024
# Elements of a result that is not folded, as its size is not computed here.
_UNBOUNDED = 1 << 62

_HALVES = (ir.DataType.FLOAT16.numpy(), ir.DataType.BFLOAT16.numpy())

# The largest whole number up to which both of them hold all.
_MOST_IN_HALVES = 256

# Types that QuantizeLinear makes and that have a native form.
_WHOLE = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
_WHOLE_ARRAYS = tuple(kind.numpy() for kind in _WHOLE)

# Whole numbers below this one, and their sums with zero points, are integers of 32 bits.
_MOST_QUOTIENT = 2.0**30

# The metadata in which a model keeps how much its constants may still grow.
_ROOM = "ostinato.room"

_logger = logging.getLogger(__name__)


def constant_folding(model: ir.Model, kept: Collection[ir.Node] = ()) -> int:
    """Evaluate nodes whose inputs are constants and store the results; returns the number of nodes.

    kept: nodes that stay.

    Matches, in every graph, nodes of exact operators whose inputs are initializers, and
    Shape and Size of a value whose sizes are fixed, or become so as operands do. Makes an
    initializer for each output, computed with the kernels of `onnx.reference` for the model's
    operator set.

    Valid because a result computed here has the bits that it would have at run time: integers,
    booleans, moved elements, and float operations that IEEE 754 rounds correctly. Everything else
    stays in the graph, such as Exp, Tanh or MatMul, whose last bit depends on who computes it.
    A result above 64 KiB is stored only if it is not larger than the inputs. All together make the
    model at most twice as large, or by `MOST_KNOWN_BYTES` larger.
    """
    opset = opset_of(model)
    names = Names(model)
    room = constant_room(model)
    folded = 0
    for node in nodes_of(model):
        if node.domain != "" or node in kept:
            continue
        refine_shapes(node, opset)
        results = _known_sizes(node) or _evaluate(node, opset, room)
        if results is None or not all(_may_be_returned(value, opset) for value in node.outputs):
            continue
        room -= sum(result.nbytes for result in results) - _freed(node)
        for value, result in zip(node.outputs, results, strict=False):
            if value.name:
                store_constant(model, names, value, result)
        discard(node)
        folded += 1
    take_room(model, constant_room(model) - room)
    return folded


def _may_be_returned(value: ir.Value, opset: int) -> bool:
    """Whether an Identity may return a constant in place of this value, if a graph returns it."""
    copy = schema_of("Identity", "", opset)
    if copy is None or not value.is_graph_output():
        return True
    return type_error(copy, [known_type(value)]) is None


def constant_room(model: ir.Model) -> int:
    """The bytes by which constants may still grow: at first as many as the model has."""
    room: int | None = model.meta.get(_ROOM)
    if room is None:
        room = max(MOST_KNOWN_BYTES, sum(constant.nbytes for constant in _constants(model)))
        model.meta[_ROOM] = room
    return room


def take_room(model: ir.Model, size: int) -> None:
    """Note that constants have grown by this many bytes."""
    model.meta[_ROOM] = constant_room(model) - size


def _constants(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in graphs(model):
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def _freed(node: ir.Node) -> int:
    """Bytes of constants that only this node uses."""
    users = {
        value: {use.node for use in value.uses()} for value in node.inputs if value is not None
    }
    arrays = [unread_array(value) for value, nodes in users.items() if nodes == {node}]
    return sum(array.nbytes for array in arrays if array is not None)


def store_constant(
    model: ir.Model, names: Names, value: ir.Value, contents: np.ndarray | Observed
) -> None:
    """Let every reader of `value` read an initializer with these contents."""
    name = value.name or ""
    if value.is_graph_output():
        name = names.fresh(f"{name}_constant")
    whole = contents if isinstance(contents, Observed) else np.asarray(contents)
    replace_value(value, add_constant(model, name, whole))


def _known_sizes(node: ir.Node) -> list[np.ndarray] | None:
    """The result of Shape, Size or Gather from a Shape when the sizes it asks for are fixed."""
    if node.op_type == "Gather":
        maker, indices = maker_of(node.inputs[0], "Shape"), constant_array(node.inputs[1])
        sizes = None if maker is None else _sizes(maker)
        if sizes is None or indices is None or not np.all(np.abs(indices + 0.5) < len(sizes)):
            return None
        chosen = np.asarray(np.array(sizes, object)[indices], object)
    elif facts_of(node.op_type).reads_shape:
        chosen = np.array(_sizes(node), object)
    else:
        return None
    if any(size is None for size in chosen.flat):
        return None
    result = chosen.prod() if node.op_type == "Size" else chosen
    return [np.array(result, np.int64)]


def _sizes(node: ir.Node) -> Sequence[int | None] | None:
    """The sizes that a Shape or Size node reads, as far as they are fixed."""
    dims = static_dims(node.inputs[0])
    if dims is None:
        return None
    return dims[node.attributes.get_int("start", 0) : node.attributes.get_int("end", None)]


def _evaluate(node: ir.Node, opset: int, room: int) -> Sequence[np.ndarray | Observed] | None:
    """The outputs of a node of constants, None when it must not or cannot be evaluated here."""
    tensors = [constant_tensor(value) for value in node.inputs]
    if any(t is None and v is not None for t, v in zip(tensors, node.inputs, strict=True)):
        return None
    observed = [tensor for tensor in tensors if isinstance(tensor, Observed)]
    if not observed:
        return _results(node, opset, room, [constant_array(value) for value in node.inputs])
    arrays = [unread_array(value) for value in node.inputs]
    results = _results(node, opset, room, arrays) if _is_followed(node) else None
    if results is not None and len(results) == 1:
        attributes = {attribute.name: attribute.value for attribute in node.attributes.values()}
        made = Made(node.op_type, attributes, facts_of(node.op_type).moves, tuple(arrays))
        return [observed[0].origins.made(made, results[0])]
    if not _may_read(node) and not _is_exact(node, [a for a in arrays if a is not None]):
        return None
    return _results(node, opset, room, [constant_array(value) for value in node.inputs])


def _is_followed(node: ir.Node) -> bool:
    """Whether the node does the same with any weights, which is known when others are there."""
    facts, kinds = facts_of(node.op_type), (ir.AttributeType.INT, ir.AttributeType.INTS)
    is_plain = all(attribute.type in kinds for attribute in node.attributes.values())
    is_exact = facts.moves or facts.exact_floats or _makes_floats(node)
    return is_plain and is_exact and has_direct_kernel(node.op_type)


def _makes_floats(node: ir.Node) -> bool:
    """Whether a node casts to a type that decides alone, for floats, if that is exact."""
    target = node.outputs[0].dtype
    return facts_of(node.op_type).casts and target is not None and target.is_floating_point()


def _may_read(node: ir.Node) -> bool:
    """Whether elements decide if the node is exact."""
    facts = facts_of(node.op_type)
    if facts.casts:
        return not _makes_floats(node)
    return facts.selects or node.op_type in ("QuantizeLinear", "DequantizeLinear")


def _results(
    node: ir.Node, opset: int, room: int, arrays: list[np.ndarray | None]
) -> list[np.ndarray] | None:
    """The outputs of a node, given its inputs; None if they must not be stored."""
    given = [array for array in arrays if array is not None]
    try:
        if not _is_exact(node, given):
            return None
        # An operand that is given twice is stored once.
        stored = sum({id(array): array.nbytes for array in given}.values())
        bytes_allowed = max(SMALL_RESULT_BYTES, stored)
        bytes_needed = _result_elements(node, arrays, opset) * _widest(node)
        if bytes_needed > bytes_allowed or bytes_needed - _freed(node) > room:
            return None
        with np.errstate(all="ignore"):
            results = _run(node, opset, arrays)
    except Exception as error:  # a kernel refuses in its own way; the node then fails at run time
        _logger.debug("%s is not folded: %s", node, error)
        return None
    return results if _are_sound(node, given, results) else None


def _is_exact(node: ir.Node, arrays: Sequence[np.ndarray]) -> bool:
    """Whether any correct implementation of the node returns the same bits."""
    types = {array.dtype for array in arrays}
    if not all(isinstance(value.type, ir.TensorType) for value in node.outputs if value.name):
        return False
    facts = facts_of(node.op_type)
    if facts.casts and types:
        return _is_exact_cast(node, arrays[0])
    if node.op_type == "QuantizeLinear":
        return _is_exact_rounding(node, arrays)
    if node.op_type == "DequantizeLinear":
        return _is_exact_scaling(arrays)
    if not types or any(dtype.kind not in "biuf" for dtype in types):
        return False
    # Identity makes a constant an output of the model.
    if facts.random or node.op_type == "Identity":
        return False
    if facts.moves:
        return True
    # Halves are computed in float32, which is wide enough that rounding twice is rounding once.
    if types <= EXACT_FLOATS or types == {np.dtype(np.float16)}:
        return facts.exact_floats or (facts.selects and _are_ordered(arrays))
    if any(dtype.kind == "f" for dtype in types):
        return False
    divides = facts.broadcasts and not facts.total
    return facts.exact_integers and not (divides and not arrays[1].all())


def _are_ordered(arrays: Sequence[np.ndarray]) -> bool:
    """Whether it is plain which floats are larger: none is NaN, and zeros have the same sign."""
    signs = {bool(sign) for array in arrays for sign in np.signbit(array[array == 0]).flat}
    return len(signs) < 2 and not any(np.isnan(array).any() for array in arrays)


def _is_exact_cast(node: ir.Node, array: np.ndarray) -> bool:
    """Whether a cast has one right result: not so for floats that the target cannot hold.

    Matrices of 16-bit floats are read as they are stored; vectors may be sizes.
    """
    target = node.outputs[0].dtype
    if target is None:
        return False
    dtype = target.numpy()
    if array.ndim < 2 and array.dtype in _HALVES and dtype in EXACT_FLOATS:
        return True
    if array.ndim < 2 and array.dtype.kind in "iu" and dtype in _HALVES:
        return bool(np.all(np.abs(array) <= _MOST_IN_HALVES))
    if not {array.dtype.kind, dtype.kind} <= set("biuf"):
        return False
    if array.dtype.kind == "f" and array.dtype not in EXACT_FLOATS:
        return False
    if dtype.kind == "f":
        return dtype in EXACT_FLOATS and (
            array.dtype.kind != "f" or array.itemsize <= dtype.itemsize
        )
    if array.dtype.kind == "f" and dtype.kind != "b":
        limits = np.iinfo(dtype)
        whole = np.trunc(array)
        return bool(np.all((whole >= float(limits.min)) & (whole < float(limits.max))))
    return True


def _is_exact_rounding(node: ir.Node, arrays: Sequence[np.ndarray]) -> bool:
    """Whether quotients of float32, rounded, have one nearest whole number of at most 16 bits."""
    (x, scale), target = arrays[:2], node.outputs[0].dtype
    is_plain = target in _WHOLE and not node.attributes.get_int("precision", 0)
    is_single = {x.dtype, scale.dtype} == {np.dtype(np.float32)}
    if not (is_plain and is_single):
        return False
    if not (np.isfinite(x).all() and np.isfinite(scale).all() and (scale > 0).all()):
        return False
    if not (x.size and scale.size):
        return True
    # Kernels round to integers of 32 bits before they saturate.
    return float(np.abs(x).max()) < float(scale.min()) * _MOST_QUOTIENT


def _is_exact_scaling(arrays: Sequence[np.ndarray]) -> bool:
    """Whether a single small integer is scaled, by one product: larger ones stay narrow weights."""
    is_single = all(array.size == 1 for array in arrays)
    return is_single and arrays[0].dtype in _WHOLE_ARRAYS and arrays[1].dtype == np.float32


def _widest(node: ir.Node) -> int:
    """The most bytes that an element of the results has; 8 where that is not known."""
    known = [value.dtype.itemsize for value in node.outputs if value.dtype is not None]
    return math.ceil(max(known, default=8))


def _result_elements(node: ir.Node, arrays: Sequence[np.ndarray | None], opset: int) -> int:
    """An upper bound on the number of elements of the results, known before they are computed."""
    facts, dims = facts_of(node.op_type), [None if a is None else a.shape for a in arrays]
    form = Form(node, dims, lambda i: arrays[i], opset)
    found = [None] if facts.sizes is None else facts.sizes(form) or [None]
    numbers = [[n for n in sizes or (None,) if isinstance(n, int)] for sizes in found]
    if any(n < 0 for sizes in numbers for n in sizes):
        return _UNBOUNDED  # lowering says what is wrong with the operand
    if all(s is not None and len(n) == len(s) for n, s in zip(numbers, found, strict=True)):
        return sum(map(math.prod, numbers))
    return _UNBOUNDED if facts.fills else sum(a.size for a in arrays if a is not None)


def _run(node: ir.Node, opset: int, arrays: list[np.ndarray | None]) -> list[np.ndarray]:
    result = direct_kernel(node, arrays)
    if result is not None:
        return [result]
    # 230 modules: models without such nodes are compiled sooner without them.
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops._op_list import load_op

    from ostinato.reference.kernels import KERNELS

    parameters: dict[str, Any] = {
        "log": lambda *_: None,
        "opsets": {"": opset},
        "verbose": 0,
        "new_ops": None,
        "existing_functions": {},
        "evaluator_cls": ReferenceEvaluator,
    }
    kernels = {kernel.__name__: kernel for kernel in KERNELS}
    kernel = kernels.get(node.op_type) or load_op("", node.op_type, opset)
    made = kernel(ir.to_proto(node), parameters)
    return [np.asarray(result) for result in made.run(*arrays)]


def _are_sound(node: ir.Node, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> bool:
    """Whether the results have the types that inference promised, and depend on no option.

    Float operations that meet subnormal numbers are left for run time, where they may be flushed.
    """
    for value, result in zip(node.outputs, results, strict=False):
        if value.name and (value.dtype is None or value.dtype.numpy() != result.dtype):
            return False
    return facts_of(node.op_type).moves or not any(map(has_subnormals, (*arrays, *results)))
