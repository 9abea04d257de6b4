"""Attributes of a module beside parameters and buffers, and how calls change them.

PyTorch's exporter sets attributes back to what they were: a value that a call keeps in one for the
next call would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from ostinato.caller import warn

_OF_MODULES = frozenset(vars(torch.nn.Module()))
_PLAIN = (bool, int, float, complex, str, torch.SymInt, torch.SymFloat, torch.SymBool)
_OPAQUE = (torch.nn.Module, type, FunctionType, MethodType, ModuleType, *_PLAIN)
# Objects nested so deep are searched.
_DEPTH = 6


@dataclass(frozen=True)
class Kept:
    """Something that attributes hold.

    value: a tensor, or a plain value of an attribute. is_entry: whether it is in a dict, where
    modules keep tables that they compute once.
    """

    value: Any
    is_entry: bool = False


def kept(module: torch.nn.Module) -> dict[str, Kept]:
    """Plain attributes of modules by name, and the tensors in lists, dicts and objects."""
    found: dict[str, Kept] = {}
    for path, part in module.named_modules():
        # A graph of Dynamo holds its own code; the program's attributes are inputs of it.
        if isinstance(part, torch.fx.GraphModule):
            continue
        for key, value in vars(part).items():
            name = f"{path}.{key}".lstrip(".")
            if key in _OF_MODULES or isinstance(value, torch.Tensor):
                continue
            if isinstance(value, _PLAIN):
                found[name] = Kept(value)
            else:
                found.update(_within(name, value, False, _DEPTH))
    return found


def _within(name: str, value: Any, is_entry: bool, depth: int) -> Iterator[tuple[str, Kept]]:
    """The tensors in an object, by how a program writes them."""
    if isinstance(value, torch.Tensor):
        yield name, Kept(value, is_entry)
        return
    if not depth or isinstance(value, _OPAQUE):
        return
    if isinstance(value, dict):
        parts = [(f"{name}[{key!r}]", part, True) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{name}[{place}]", part, False) for place, part in enumerate(value)]
    else:
        own = getattr(value, "__dict__", {})
        parts = [(f"{name}.{key}", part, False) for key, part in own.items()]
    for path, part, is_of_dict in parts:
        yield from _within(path, part, is_of_dict, depth - 1)


def lost(before: Mapping[str, Kept], after: Mapping[str, Kept]) -> list[str]:
    """The tensors in lists, dicts and objects that a call has put there or replaced.

    Not those under new keys of a dict. What is written in place the exporter refuses.
    """
    names = []
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if not any(isinstance(one.value, torch.Tensor) for one in (old, new) if one):
            continue
        if old is None and new is not None and new.is_entry:
            continue
        # A recurrent layer lists its parameters, for which the exporter puts others.
        if old is not None and isinstance(old.value, torch.nn.Parameter):
            continue
        if old is None or new is None or old.value is not new.value:
            names.append(name)
    return names


def left_out(before: Mapping[str, Kept], after: Mapping[str, Kept]) -> list[str]:
    """Name other changes of a call: plain attributes, and new keys of dicts."""
    names = []
    for name, new in after.items():
        old = before.get(name)
        if isinstance(new.value, torch.Tensor):
            if old is None and new.is_entry:
                names.append(name)
        # A size that is a symbol cannot be compared without deciding about it.
        elif old is None or type(new.value) is not type(old.value) or new.value != old.value:
            names.append(name)
    return names


def tell(what: str, names: Sequence[str]) -> None:
    """Warn of what compiled calls leave out."""
    if names:
        warn(
            f"{what}: a call changes {', '.join(map(repr, sorted(names)[:3]))}, which compiled "
            "calls do not; give what depends on it as an argument, or use "
            "torch.compile(module, backend='ostinato')"
        )
