"""Selection of the initializers that are trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import onnx_ir as ir

from ostinato.arguments import names_of
from ostinato.errors import InputError
from ostinato.graph.facts import facts_of
from ostinato.graph.loop_form import reads

_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def _trainable(model: ir.Model, loss: ir.Value) -> list[str]:
    """The names of the initializers that training changes by default.

    They are of type float32 or float64, have at least one axis, the loss depends on them, and no
    node reads them as a statistic or a setting. Scalars are taken for constants
    of a formula.
    """
    used = _behind(model.graph, loss)
    settings = {
        node.inputs[position]
        for node in model.graph.all_nodes()
        for position in facts_of(node.op_type).settings
        if position < len(node.inputs)
    }
    return [
        name
        for name, value in model.graph.initializers.items()
        if value in used and value not in settings and value.dtype in _TYPES and value.shape
    ]


def _behind(graph: ir.Graph, result: ir.Value) -> set[ir.Value]:
    """Everything that `result` is computed from."""
    found = {result}
    for node in reversed(graph):
        if not found.isdisjoint(node.outputs):
            found.update(reads(node))
    return found


def chosen(
    model: ir.Model, loss: ir.Value, train: Sequence[str] | None, freeze: Sequence[str]
) -> list[str]:
    """The names to train: those of `train`, by default `_trainable`, without those of `freeze`.

    Both are names or patterns such as `"encoder.*"`. Raises `InputError` for one that fits no
    initializer, or if nothing is left.
    """
    known = list(model.graph.initializers)
    by_default = _trainable(model, loss)
    names = by_default if train is None else _matching(known, train, "train")
    for name in names:
        dtype = model.graph.initializers[name].dtype
        if dtype not in _TYPES:
            raise InputError(f"train: {name!r} is {dtype}, expected float32 or float64")
    left_out = set(_matching(known, freeze, "freeze"))
    left = [name for name in names if name not in left_out]
    if not left:
        raise InputError(
            f"there is nothing to train: {len(names)} initializers can be trained by default, "
            f"{len(left_out)} are frozen; the model has {sorted(known)}"
        )
    return left


def list_of_names(option: str, given: Iterable[str]) -> list[str]:
    """Read the names that an option was given. Raises `InputError` for anything else."""
    names = names_of(given)
    if names is None:
        raise InputError(f"{option}={given!r}: expected a list of names")
    return list(names)


def _matching(known: Sequence[str], patterns: Iterable[str], option: str) -> list[str]:
    found: dict[str, None] = {}
    for pattern in list_of_names(option, patterns):
        fitting = [name for name in known if name == pattern or fnmatchcase(name, pattern)]
        if not fitting:
            raise InputError(f"{option}: no initializer fits {pattern!r}; there are {known}")
        found.update(dict.fromkeys(fitting))
    return [name for name in known if name in found]
