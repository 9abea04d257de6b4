"""What autocast does, as casts in the program.

An exported program depends on the autocast in which it is traced again: operators that autocast
knows are cast then, those within formulas and decompositions too, which PyTorch's own kernels do
not cast. Operators that are made of others, such as `einsum`, stay whole in a program, and nothing
casts their operands.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

_SCOPE = torch.ops.higher_order.wrap_with_autocast
_COMPOSITE, _CASTS = "CompositeImplicitAutograd", "AutocastCPU"
# The types that autocast reads and makes.
_TYPES = {torch.float32, torch.bfloat16, torch.float16}


def with_casts(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with the casts of the autocast that is active, and of those that it enters.

    It means the same without autocast. Where there is none, it is the program as it is.
    """
    parts = [m for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    nodes = [node for part in parts for node in part.graph.nodes]
    if not torch.is_autocast_enabled("cpu") and all(node.target is not _SCOPE for node in nodes):
        return program
    for node in nodes:
        _cast_operands(node)
    for part in parts:
        part.recompile()
    return program.run_decompositions({})


def _cast_operands(node: Node) -> None:
    """Cast what a whole operator reads to the type that it was traced to compute in."""
    if not _is_whole(node):
        return
    found = [v for v in pytree.tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    operands = {n: v.dtype for n in node.all_input_nodes if (v := _floats(n)) is not None}
    types = {*operands.values()}
    if not found or not types or not types | {found[0].dtype} <= _TYPES:
        return
    wanted = found[0].dtype
    # The type that the operator gives if nothing casts.
    promoted = torch.float32 if len(types) > 1 else types.pop()
    if promoted == wanted:
        return
    with node.graph.inserting_before(node):
        for operand in operands:
            node.replace_input_with(operand, _cast(operand, wanted))


def _is_whole(node: Node) -> bool:
    """Whether autocast casts what the operator of a node is made of, and not its operands."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name, has = node.target.name(), torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, _COMPOSITE) and not has(name, _CASTS)


def _floats(node: Node) -> torch.Tensor | None:
    """The value of a node where that is a tensor of floats."""
    value: Any = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) and value.is_floating_point() else None


def _cast(operand: Node, dtype: torch.dtype) -> Node:
    cast = operand.graph.call_function(torch.ops.aten.to.dtype, (operand, dtype))
    value = operand.meta["val"]
    with value.fake_mode, torch.autocast("cpu", enabled=False):
        cast.meta["val"] = value.to(dtype)
    return cast
