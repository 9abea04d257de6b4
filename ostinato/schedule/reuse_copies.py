"""Equal copies are made once.

Gradients of several weights read the same matrix along the same sum, each in a copy of it; several
convolutions of one image each in a padded copy. Where two copies hold the same in the same order,
and nothing changes what they are copied from in between, the second one is not made, and its
readers read the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ostinato.program.expr import Axis, Load
from ostinato.program.nodes import (
    Branch,
    Kernel,
    Program,
    Stmt,
    map_kernels,
    map_loads,
    with_bodies,
)
from ostinato.schedule.elide import whole_buffers
from ostinato.schedule.index_maps import Affine, Map, substitute_store

# What is copied and how, with the buffers that hold the copy and what was copied.
_Made: TypeAlias = "dict[Hashable, tuple[str, Set[str]]]"


def reuse_copies(program: Program) -> Program:
    """Drop copies that hold what an earlier one still holds."""
    writers = Counter(name for kernel in program.kernels() for name in kernel.writes())
    named = set(whole_buffers(program))
    own = {n for n, b in program.buffers.items() if b.kind == "arena" and n not in named}
    copies = {n for k in program.kernels() if _is_padded(k) for n in k.writes()}
    copies |= {name for name, buffer in program.buffers.items() if buffer.is_copy}
    whole = {name for name in own & copies if writers[name] == 1}
    return program.with_body(_reused(program.body, whole, {}))


def _is_padded(kernel: Kernel) -> bool:
    """Whether a kernel copies a value with a constant around it."""
    values = [store.value for store in kernel.stores]
    return all(isinstance(value, Load) and value.mask is not None for value in values)


def _reused(body: tuple[Stmt, ...], whole: Set[str], made: _Made) -> tuple[Stmt, ...]:
    """The statements without copies that are made already.

    whole: buffers that a single copy fills.
    """
    result: list[Stmt] = []
    names: dict[str, str] = {}
    for statement in body:
        (current,) = map_kernels((statement,), lambda kernel: _renamed(kernel, names))
        key = _contents(current, whole)
        if key in made:
            (name,) = current.writes()
            names[name] = made[key][0]
            continue
        # A step of a loop may change what the one before it has copied.
        known = made if isinstance(current, Branch) else {}
        current = with_bodies(current, partial(_reused, whole=whole, made=known))
        result.append(current)
        changed = current.writes()
        made = {k: v for k, v in made.items() if changed.isdisjoint({v[0], *v[1]})}
        if key is not None:
            (name,) = changed
            made[key] = name, current.reads()
    return tuple(result)


def _contents(statement: Stmt, whole: Set[str]) -> Hashable:
    """A key of what a copy writes, free of names; None for statements that are no copies."""
    if not isinstance(statement, Kernel) or not statement.writes() <= whole:
        return None
    if len(statement.writes()) != 1 or statement.reductions or statement.guard is not None:
        return None
    if statement.ordered or any(store.partial for store in statement.stores):
        return None
    images: Map = {
        axis: Affine(0, ((Axis(str(number), axis.extent), 1),))
        for number, axis in enumerate(statement.axes)
    }
    stores = [substitute_store(store, images) for store in statement.stores]
    extents = tuple(axis.extent for axis in statement.axes)
    return extents, tuple(replace(s, access=replace(s.access, buffer="")) for s in stores)


def _renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel reading other buffers."""

    def change(load: Load) -> Load:
        name = load.access.buffer
        return replace(load, access=replace(load.access, buffer=names.get(name, name)))

    return map_loads(kernel, change) if not names.keys().isdisjoint(kernel.reads()) else kernel
