"""Writes into what `detach` or `.data` gave, which are writes into the tensor that it was taken of.

PyTorch's gradients pass them by: that tensor gets other elements and keeps its history. Here it may
be one without a history, such as a buffer; others that are read later are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from ostinato.errors import UnsupportedError

_DETACH = torch.ops.aten.detach.default
_GRAD_ENABLED = torch.ops.higher_order.wrap_with_set_grad_enabled
_LOST = (
    "writes through detach(), .data or no_grad() into a tensor whose gradient does not pass the "
    "write; use x + (y - x).detach() for a result y with the gradient of x"
)


def is_without_gradients(node: Node) -> bool:
    """Whether this calls a graph within `no_grad`."""
    return node.target is _GRAD_ENABLED and not node.args[0]


def parts_of(program: torch.export.ExportedProgram) -> tuple[list[GraphModule], set[Any]]:
    """The graphs of a program, and those of them that are called within `no_grad`."""
    parts = [m for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    calls = [(part, n) for part in parts for n in part.graph.nodes if is_without_gradients(n)]
    return parts, {getattr(part, call.args[1].target) for part, call in calls}


def assign(x: Tensor, value: Tensor) -> None:
    """Assign to `x.data`: elements of the same sizes and type are written."""
    if x.shape != value.shape or x.dtype != value.dtype:
        raise UnsupportedError(".data", "module", "is assigned a tensor of another size or type")
    x.detach().copy_(value.detach())


def written_detaches(
    program: torch.export.ExportedProgram, constant: torch._ops.OpOverload
) -> set[Node]:
    """The calls of `detach` that have to stay views, since others read what is written there.

    What is written there, or within `no_grad`, goes through `constant`.

    Raises `UnsupportedError` for a write that a gradient would have to pass by.
    """
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    kept: set[Node] = set()
    parts, plain = parts_of(program)
    for part in parts:
        memory = _Memory(part, lambda node: kinds.get(node.name) == InputKind.BUFFER)
        shared = [] if part in plain else [*memory.shared_writes()]
        for write, _ in memory.writes if part in plain else shared:
            memory.fix_operands(write, constant)
        kept.update(view for _, view in shared)
    return kept


class _Memory:
    """Which values of a graph share memory, and which have gradients.

    base: for each value the first one with its memory. origin: the same, but views of what `detach`
    gave have that. differentiable: origins that a gradient reaches. writes: calls that write, with
    what they write to, in order. results: what the graph returns.
    """

    def __init__(self, part: GraphModule, is_buffer: Callable[[Node], bool]) -> None:
        self.places = {node: place for place, node in enumerate(part.graph.nodes)}
        self.base: dict[Node, Node] = {}
        self.origin: dict[Node, Node] = {}
        self.differentiable: set[Node] = set()
        self.writes: list[tuple[Node, Node]] = []
        self.results = part.graph.output_node().args
        for node in part.graph.nodes:
            source = _viewed(node, part)
            self.base[node] = node if source is None else self.base[source]
            is_first = source is None or node.target is _DETACH
            self.origin[node] = node if is_first else self.origin[source]
            self.writes += [(node, target) for target in _written(node, part)]
            if self._has_gradient(node) and not is_buffer(node):
                self.differentiable.add(self.origin[node])

    def _has_gradient(self, node: Node) -> bool:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and not (value.is_floating_point() or value.is_complex()):
            return False
        if node.op == "placeholder":
            return True
        if node.target is _DETACH or is_without_gradients(node) or _is_filled(node):
            return False
        return any(self.origin[given] in self.differentiable for given in node.all_input_nodes)

    def shared_writes(self) -> Iterator[tuple[Node, Node]]:
        """Writes through `detach` to what is read elsewhere behind them, with that `detach`."""
        for write, target in self.writes:
            origin, readers = self.origin[target], self._readers(write, target)
            if origin.target is _DETACH:
                if readers <= {origin}:
                    continue
                is_read = origin in readers and origin in self.differentiable
                if is_read or self._has_history(origin.args[0]):
                    raise UnsupportedError(str(write.name), "module", _LOST)
                yield write, origin
            elif is_without_gradients(write) and readers and self._has_history(target):
                raise UnsupportedError(str(write.name), "module", _LOST)

    def _has_history(self, node: Any) -> bool:
        """Whether a gradient is wanted of it; of an argument, whether one is of the example."""
        first = self.base[node]
        if first.op == "placeholder":
            return bool(getattr(first.meta.get("val"), "requires_grad", False))
        return self.origin[node] in self.differentiable

    def _readers(self, write: Node, target: Node) -> set[Node]:
        """The origins of values through which memory is read behind a write to it."""
        return {
            self.origin[node]
            for node, first in self.base.items()
            if first is self.base[target]
            for user in node.users
            if self.places[user] > self.places[write] and self.origin[user] is not self.origin[node]
        }

    def fix_operands(self, write: Node, constant: torch._ops.OpOverload) -> None:
        """Have no gradient enter by what is written."""
        for given in write.all_input_nodes:
            if (
                self.origin[given] in self.differentiable
                and self.base[given] is not self.base[write]
            ):
                with write.graph.inserting_before(write):
                    fixed = write.graph.call_function(constant, (given,))
                fixed.meta["val"] = given.meta["val"]
                write.replace_input_with(given, fixed)


def _is_filled(node: Node) -> bool:
    """Whether an operator takes only type and sizes of its operands."""
    name = getattr(node.target, "_opname", "")
    return name.startswith("new_") or name.endswith("_like")


def _viewed(node: Node, part: GraphModule) -> Node | None:
    """The operand whose memory a result has, or may have."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        call, place = node.args
        if is_without_gradients(call):
            memory, operands = _body(call, part)
            (results,) = memory.results
            return operands.get(memory.base.get(results[place]))
        return call if _viewed(call, part) is not None else None
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    is_view = any(result.alias_info is not None for result in node.target._schema.returns)
    return next(iter(_aliased(node, only_written=False)), None) if is_view else None


def _written(node: Node, part: GraphModule) -> list[Node]:
    """The operands that a call writes to."""
    if isinstance(node.target, torch._ops.OpOverload):
        return _aliased(node, only_written=True)
    if not is_without_gradients(node):
        return []
    memory, operands = _body(node, part)
    written = {memory.base[target] for _, target in memory.writes}
    return [given for holder, given in operands.items() if holder in written]


def _body(call: Node, part: GraphModule) -> tuple[_Memory, dict[Any, Node]]:
    """The graph that is called, and the operand of each of its placeholders."""
    body = getattr(part, str(call.args[1].target))
    holders = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
    return _Memory(body, lambda _: False), dict(zip(holders, call.args[2:], strict=True))


def _aliased(node: Node, only_written: bool) -> list[Node]:
    found = []
    for place, argument in enumerate(node.target._schema.arguments):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        alias = argument.alias_info
        if alias is not None and (alias.is_write or not only_written) and isinstance(given, Node):
            found.append(given)
    return found
