"""The shape inference of the onnx package: native code that ends the process on some nodes.

It calls a function for each operator. In the registry of the package, those that take for granted
what no check makes sure of are replaced by ones that look first, and leave the result open where
the original would fail. What they look at are inferred shapes, so nothing before inference could.
Others correct what the original says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

import onnx
import onnx.defs
import onnx.shape_inference

# Whether a node, given as the context of its inference, is one that the original can take.
Guard: TypeAlias = Callable[[Any], bool]
Infer: TypeAlias = Callable[[Any], None]


def infer_shapes(model: onnx.ModelProto | bytes, data_prop: bool = False) -> onnx.ModelProto:
    """As `onnx.shape_inference.infer_shapes`, for any model that passes the checks."""
    _guard_all()
    inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
    return inferred


def infer_node(
    node: onnx.NodeProto,
    given: Iterable[onnx.ValueInfoProto],
    data: Iterable[onnx.TensorProto],
    opsets: Mapping[str, int],
) -> dict[str, onnx.ValueInfoProto]:
    """What the inference of one node without graphs in it says of its results, by name.

    given: its operands. data: those that are constants. Nothing where it has no inference.
    """
    _guard_all()
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            node,
            {info.name: info.type for info in given},
            {tensor.name: tensor for tensor in data},
            opset_imports=[onnx.OperatorSetIdProto(domain=d, version=v) for d, v in opsets.items()],
        )
    except Exception:  # no schema, or whatever inference raises: nothing is known then
        return {}
    return {name: onnx.ValueInfoProto(name=name, type=kind) for name, kind in found.items()}


@cache
def _guard_all() -> None:
    for name in {*_GUARDS, *_CORRECTIONS}:
        guard, correct = _GUARDS.get(name), _CORRECTIONS.get(name)
        for schema in _versions(name):
            original = schema.get_type_and_shape_inference_function()
            schema.set_type_and_shape_inference_function(_guarded(original, guard, correct))
            onnx.defs.deregister_schema(name, schema.since_version, "")
            onnx.defs.register_schema(schema)


def _versions(name: str) -> Iterator[Any]:
    version = onnx.defs.onnx_opset_version()
    while version:
        try:
            schema = onnx.defs.get_schema(name, version, "")
        except onnx.defs.SchemaError:
            return
        yield schema
        version = schema.since_version - 1


def _guarded(original: Infer, guard: Guard | None, correct: Infer | None) -> Infer:
    def infer(context: Any) -> None:
        if guard is None or guard(context):
            # An error of the original would end all inference; its own callers ignore it.
            with suppress(Exception):
                original(context)
                if correct is not None:
                    correct(context)

    return infer


def _sizes(context: Any, position: int) -> list[int | None] | None:
    """The sizes of an operand as far as they are known; None if its rank is not."""
    kind = context.get_input_type(position) if context.has_input(position) else None
    if kind is None or not kind.HasField("tensor_type"):
        return None
    if not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]


def _number(context: Any, name: str, default: int) -> int:
    attribute = context.get_attribute(name)
    return default if attribute is None else int(attribute.i)


def _is_not_negative(context: Any) -> bool:
    """Sizes that a node before this one makes negative, as a window too large for its image."""
    return all(size is None or size >= 0 for size in _sizes(context, 0) or ())


def _has_axis(context: Any) -> bool:
    sizes = _sizes(context, 0)
    return sizes is None or -len(sizes) <= _number(context, "axis", -1) < len(sizes)


def _has_batch(context: Any) -> bool:
    ranks = [len(sizes) for sizes in (_sizes(context, 0), _sizes(context, 1)) if sizes is not None]
    return 0 <= _number(context, "batch_dims", 0) < min(ranks, default=1)


_GUARDS: dict[str, Guard] = {
    "Slice": _is_not_negative,
    "LayerNormalization": _has_axis,
    "GatherND": _has_batch,
}


def _forget_names(context: Any) -> None:
    """The sizes that the type of a sequence names differ from one element to the next."""
    element = context.get_output_type(0)
    for dim in element.tensor_type.shape.dim:
        dim.ClearField("dim_param")
    if element.HasField("tensor_type"):
        context.set_output_type(0, element)


_CORRECTIONS: dict[str, Infer] = {"SequenceAt": _forget_names}
