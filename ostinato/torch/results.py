"""Results of a module as the tensors in them, and how they are put together again."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ostinato.errors import UnsupportedError

_DTYPES = {int: torch.int64, float: torch.float64, bool: torch.bool}


@dataclass(frozen=True)
class Result:
    """A leaf of what a module returns.

    place: of the model's output, None for a constant. value: the constant; of an output that Python
    has as a number, the type of the number; complex for a tensor of complex numbers, pairs in the
    model. parts: of an object that holds tensors, each of them as the object has it, and the result
    that takes its place in a copy.
    """

    place: int | None
    value: Any = None
    parts: tuple[tuple[Any, Result], ...] = ()


def flat(found: Any) -> tuple[list[Any], Any]:
    """The leaves of what a call returns, those of dataclasses too, and how they are nested."""
    while True:
        leaves, spec = pytree.tree_flatten(found)
        records = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf)}
        if not records:
            break
        for record in records:
            torch.export.register_dataclass(record)
    return leaves, spec


def noted(leaf: Any, tensors: dict[int, torch.Tensor]) -> Result:
    """Note a leaf of the results; `tensors` are those that were before, by identity."""
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    kind = kinds.get(type(leaf))
    if kind is None and not isinstance(leaf, torch.Tensor):
        held = {id(part): part for part in _within(leaf, (torch.Tensor, *kinds), set())}
        _try_copy(leaf, held)
        return Result(None, leaf, tuple((part, noted(part, tensors)) for part in held.values()))
    tensor = leaf if kind is None else torch.scalar_tensor(leaf, dtype=_DTYPES[kind])
    tensors.setdefault(id(tensor), tensor)
    return Result(list(tensors).index(id(tensor)), complex if tensor.is_complex() else kind)


def _try_copy(leaf: Any, held: Mapping[int, Any]) -> None:
    """Raise `UnsupportedError` for an object with tensors that cannot be copied with others."""
    try:
        copy.deepcopy(leaf, dict(held)) if held else None
    except Exception as error:
        raise UnsupportedError(
            type(leaf).__name__,
            "module",
            f"is returned, holds tensors and cannot be copied ({error}); return them in a tuple, a "
            "dict or a dataclass",
        ) from error


def _within(found: Any, kinds: tuple[type, ...], seen: set[int]) -> Iterator[Any]:
    """Yield the objects of these types within an object, at any depth.

    Raises `UnsupportedError` for one that holds modules.
    """
    if isinstance(found, kinds):
        yield found
    elif isinstance(found, torch.nn.Module):
        raise UnsupportedError(
            type(found).__name__,
            "module",
            "is returned within an object; return tensors in a tuple, a dict or a dataclass",
        )
    elif id(found) not in seen and not isinstance(found, (type, FunctionType)):
        seen.add(id(found))
        own = [*found.values()] if isinstance(found, dict) else []
        own += found if isinstance(found, (list, tuple, set)) else []
        own += getattr(found, "__dict__", {}).values()
        for part in own:
            yield from _within(part, kinds, seen)


def rebuilt(result: Result, tensors: Sequence[torch.Tensor]) -> Any:
    """Rebuild the leaf of a call's results. tensors: the outputs of the model."""
    if result.parts:
        made = {id(part): rebuilt(own, tensors) for part, own in result.parts}
        return copy.deepcopy(result.value, made)
    if result.place is None:
        return result.value
    tensor = tensors[result.place]
    if result.value is complex:
        return torch.view_as_complex(tensor.contiguous())
    return tensor if result.value is None else result.value(tensor.item())
