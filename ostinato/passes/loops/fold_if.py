"""An If that need not choose becomes one of its branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant, splice, supersede
from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.model.graphs import (
    branches,
    graphs,
    is_if,
    is_standard,
    maker_of,
    nodes_of,
    subgraphs,
)
from ostinato.model.names import Names
from ostinato.model.values import constant_array


def fold_if(model: ir.Model) -> int:
    """Replace each If whose outcome is known by the nodes of its branch; returns their number.

    Matches If whose condition is an initializer of one element, or is decided by an If around it
    on the same condition or on its negation (Not), or in a loop compares a size with a number, as
    PyTorch's `x.squeeze(1)` does, if the size follows from those of the states; and If whose two
    branches are the same node for node. Makes the branch's nodes, in the If's place. Valid because
    a branch has no inputs and reads only values that the If could read, and because a branch runs
    only when its condition holds.
    """
    names, folded = Names(model), 0
    _tell_sizes(model, names)
    for node in nodes_of(model, "If"):
        _tell_branches(model, node, names)
    for graph in reversed(graphs(model)):
        for node in graph:
            taken = _outcome(node) if is_if(node) else None
            if taken is None:
                continue
            results = splice(model, taken, node)
            supersede(node, results)
            folded += 1
    return folded


def _outcome(node: ir.Node) -> ir.Graph | None:
    """The branch that is as good as the If, None when both are needed."""
    then, other = branches(node)
    condition = constant_array(node.inputs[0])
    if condition is not None and condition.size == 1:
        return then if condition.item() else other
    return other if _are_equal(then, other) else None


def _tell_sizes(model: ir.Model, names: Names) -> None:
    """Let each If of a loop read a constant where the size that it asks for is proven.

    Shape inference knows no sizes of what a Loop carries, `infer_sizes` does.
    """
    # Branches have no inputs.
    bodies = (graph for graph in graphs(model)[1:] if graph.inputs)
    nodes = dict.fromkeys(node for body in bodies for node in _nested_ifs(body))
    asked = [(node, found) for node in nodes if (found := _size_compared(node.inputs[0]))]
    sizes = infer_sizes(model) if asked else {}
    for node, (value, axis, number) in asked:
        dims = sizes.get(value.name or "", ())
        size = dims[axis] if -len(dims) <= axis < len(dims) else None
        if isinstance(size, int):
            name = names.fresh(f"{value.name}_is_{number}")
            node.replace_input_with(0, add_constant(model, name, np.array(size == number)))


def _size_compared(condition: ir.Value | None) -> tuple[ir.Value, int, int] | None:
    """The value, the axis and the number of `Equal(Gather(Shape(value), axis), number)`."""
    equal = maker_of(condition, "Equal")
    for value, other in (equal.inputs, equal.inputs[::-1]) if equal else ():
        gather, number = maker_of(value, "Gather"), constant_array(other)
        shape = maker_of(gather.inputs[0], "Shape") if gather else None
        axis = constant_array(gather.inputs[1]) if gather else None
        if shape is None or shape.attributes or axis is None or number is None:
            continue
        whole = shape.inputs[0]
        if whole is not None and axis.size == number.size == 1:
            return whole, int(axis.item()), int(number.item())
    return None


def _tell_branches(model: ir.Model, node: ir.Node, names: Names) -> None:
    """Let each If nested in a branch read a constant where the branch decides its condition."""
    condition = node.inputs[0]
    if condition is None or constant_array(condition) is not None:
        return
    opposites = [reader.outputs[0] for reader, _ in condition.uses() if is_standard(reader, "Not")]
    maker = maker_of(condition, "Not")
    if maker is not None and maker.inputs[0] is not None:
        opposites.append(maker.inputs[0])
    for branch, holds in zip(branches(node), (True, False), strict=True):
        decided = {condition: holds} | dict.fromkeys(opposites, not holds)
        for inner in _nested_ifs(branch):
            known = decided.get(inner.inputs[0]) if inner.inputs[0] is not None else None
            if known is not None:
                name = names.fresh(f"{condition.name}_{str(known).lower()}")
                inner.replace_input_with(0, add_constant(model, name, np.array(known)))


def _nested_ifs(graph: ir.Graph) -> list[ir.Node]:
    """The If nodes in `graph` and in graphs nested in it."""
    found, pending = [], [graph]
    for current in pending:
        for node in current:
            found += [node] if is_if(node) else []
            pending.extend(subgraphs(node))
    return found


def _are_equal(left: ir.Graph, right: ir.Graph) -> bool:
    """Whether two branches have the same nodes in the same order and return the same of them."""
    if len(left) != len(right) or left.initializers or right.initializers:
        return False
    same: dict[ir.Value, ir.Value] = {}
    for a, b in zip(left, right, strict=True):
        if a.op_identifier() != b.op_identifier() or len(a.outputs) != len(b.outputs):
            return False
        if not _agree(a.inputs, b.inputs, same) or not _equal_attributes(a, b):
            return False
        same.update(zip(b.outputs, a.outputs, strict=True))
    return _agree(left.outputs, right.outputs, same)


def _agree(
    left: Sequence[ir.Value | None],
    right: Sequence[ir.Value | None],
    same: Mapping[ir.Value, ir.Value],
) -> bool:
    """Whether values of the left branch are those of the right one, by way of `same`."""
    translated = [value if value is None else same.get(value, value) for value in right]
    return len(left) == len(right) and all(a is b for a, b in zip(left, translated, strict=True))


def _equal_attributes(left: ir.Node, right: ir.Node) -> bool:
    if any(subgraphs(left)) or any(subgraphs(right)):
        return False
    return _contents(left) == _contents(right)


def _contents(node: ir.Node) -> dict[str, bytes]:
    return {
        name: ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)
        for name, attribute in node.attributes.items()
    }
