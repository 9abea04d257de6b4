"""The exporter's own tracings of a program."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.fx.experimental.symbolic_shapes import _ignore_fresh_unbacked_symbols_tls_context
from torch.onnx._internal.exporter import _building, _decomp, _fx_passes

from ostinato.graph.facts import facts_of


@contextmanager
def traced_once() -> Iterator[None]:
    """Have the exporter take operators apart only in programs with one that it has no form for.

    That traces all of a program again, half of the time of a long one. When it looks for operands
    of several types, sizes that data decide are not kept for a later scan, which would refuse them.
    """
    original, promote = _fx_passes.decompose_with_registry, _fx_passes.insert_type_promotion_nodes

    def decompose(program: torch.export.ExportedProgram, registry: Any) -> Any:
        known = {operator.getitem, *_decomp.get_onnx_implemented_overloads(registry)}
        nodes = [node for node in program.graph.nodes if node.op not in ("placeholder", "output")]
        is_known = all(node.target in known and not _writes(node.target) for node in nodes)
        return program if is_known else original(program, registry)

    def promoted(module: torch.fx.GraphModule) -> None:
        with _ignore_fresh_unbacked_symbols_tls_context():
            promote(module)

    _fx_passes.decompose_with_registry = decompose
    _fx_passes.insert_type_promotion_nodes = promoted
    try:
        yield
    finally:
        _fx_passes.decompose_with_registry = original
        _fx_passes.insert_type_promotion_nodes = promote


@contextmanager
def functions_left() -> Iterator[None]:
    """Leave the transforms of `torch.func` that an error has left entered."""
    count = len(retrieve_all_functorch_interpreters())
    try:
        yield
    finally:
        while len(retrieve_all_functorch_interpreters()) > count:
            torch._C._functorch.pop_dynamic_layer_stack()


@contextmanager
def symbolic_lengths() -> Iterator[None]:
    """Have `len` of a tensor be the size of its first axis: Python makes a number of that."""
    original = builtins.len

    def length(value: Any, /) -> Any:
        is_tensor = isinstance(value, torch.Tensor) and value.dim() > 0
        return value.shape[0] if is_tensor else original(value)

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = original


@contextmanager
def exact_numbers() -> Iterator[None]:
    """Have the exporter write numbers that it casts to float64 as they are, not as float32."""
    original = _building.OpRecorder.eval

    def evaluate(self: Any, schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if facts_of(schema.name).casts and isinstance(args[0], float):
            wanted = kwargs["to"] if schema.name == "Cast" else getattr(args[1], "dtype", None)
            if wanted == ir.DataType.DOUBLE:
                number = self.opset.Constant(value=ir.tensor(args[0], dtype=ir.DataType.DOUBLE))
                args = (number, *args[1:])
        return original(self, schema, args, kwargs)

    _building.OpRecorder.eval = evaluate
    try:
        yield
    finally:
        _building.OpRecorder.eval = original


def _writes(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
