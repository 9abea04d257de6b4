"""The exporter's second tracing of a program, left out where it changes nothing."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.onnx._internal.exporter import _decomp, _fx_passes


@contextmanager
def traced_once() -> Iterator[None]:
    """Have the exporter take operators apart only in programs with one that it has no form for.

    That traces all of a program again, half of the time of a long one.
    """
    original = _fx_passes.decompose_with_registry

    def decompose(program: torch.export.ExportedProgram, registry: Any) -> Any:
        known = {operator.getitem, *_decomp.get_onnx_implemented_overloads(registry)}
        nodes = [node for node in program.graph.nodes if node.op not in ("placeholder", "output")]
        is_known = all(node.target in known and not _writes(node.target) for node in nodes)
        return program if is_known else original(program, registry)

    _fx_passes.decompose_with_registry = decompose
    try:
        yield
    finally:
        _fx_passes.decompose_with_registry = original


def _writes(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
