"""Make equal copies once.

Gradients of several weights read the same matrix along the same sum, each in a copy of it; several
convolutions of one image read it each in a padded copy. Where two copies hold the same elements in
the same order, and nothing changes their source in between, the second one is not made, and its
readers read the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Set
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TypeAlias

from ostinato.program.expr import Axis, Load
from ostinato.program.kernel import Kernel, map_loads
from ostinato.program.nodes import Branch, Program, Stmt, map_kernels, with_bodies
from ostinato.schedule.elide import whole_buffers
from ostinato.schedule.index_maps import Affine, Map, substitute_stores

# Maps a description of a copy to the buffer that holds it, and the buffers it was copied from.
_Made: TypeAlias = "dict[Hashable, tuple[str, Set[str]]]"


def reuse_copies(program: Program) -> Program:
    """Drop copies of elements that an earlier copy still holds."""
    writers = Counter(name for kernel in program.kernels() for name in kernel.writes())
    named = set(whole_buffers(program))
    own = {n for n, b in program.buffers.items() if b.kind == "arena" and n not in named}
    copies = {n for k in program.kernels() if _is_padded(k) for n in k.writes()}
    copies |= {name for name, buffer in program.buffers.items() if buffer.is_copy}
    whole = {name: writers[name] for name in own & copies}
    return program.with_body(_reused(program.body, whole, {}))


def _is_padded(kernel: Kernel) -> bool:
    """Whether a kernel copies a value with a constant around it."""
    values = [store.value for store in kernel.stores]
    return all(isinstance(value, Load) and value.mask is not None for value in values)


def _reused(body: tuple[Stmt, ...], whole: Mapping[str, int], made: _Made) -> tuple[Stmt, ...]:
    """Drop copies from a list of statements whose elements are in `made`.

    whole: for each buffer that copies fill, how many kernels fill it.
    """
    result: list[Stmt] = []
    names: dict[str, str] = {}
    for group in _groups(body, whole):
        current = map_kernels(group, lambda kernel: _renamed(kernel, names))
        name = _filled(current[0], whole)
        key = _contents(current) if name is not None and len(group) == whole[name] else None
        if name is not None and key in made:
            names[name] = made[key][0]
            continue
        # A step of a loop may change what the step before has copied.
        known = made if isinstance(current[0], Branch) else {}
        inside = partial(_reused, whole=whole, made=known)
        current = tuple(with_bodies(statement, inside) for statement in current)
        result += current
        changed = set[str]().union(*(statement.writes() for statement in current))
        made = {k: v for k, v in made.items() if changed.isdisjoint({v[0], *v[1]})}
        if name is not None and key is not None:
            made[key] = name, set[str]().union(*(statement.reads() for statement in current))
    return tuple(result)


def _groups(body: tuple[Stmt, ...], whole: Mapping[str, int]) -> Iterator[tuple[Stmt, ...]]:
    """Group adjacent statements that fill one buffer together; others are groups by themselves."""
    for name, statements in groupby(body, lambda statement: _filled(statement, whole)):
        if name is None:
            yield from ((statement,) for statement in statements)
        else:
            yield tuple(statements)


def _filled(statement: Stmt, whole: Mapping[str, int]) -> str | None:
    """The buffer that a kernel fills, or helps to fill, with copies; None for other statements."""
    names = statement.writes()
    if not isinstance(statement, Kernel) or len(names) != 1 or not names <= whole.keys():
        return None
    return next(iter(names))


def _contents(copies: tuple[Stmt, ...]) -> Hashable:
    """A key of what the copies of a buffer write, free of names; None if some are no copies."""
    found: list[Hashable] = []
    for kernel in copies:
        if not isinstance(kernel, Kernel) or kernel.reductions or kernel.guard is not None:
            return None
        if kernel.ordered or any(store.partial for store in kernel.stores):
            return None
        images: Map = {
            axis: Affine(0, ((Axis(str(number), axis.extent), 1),))
            for number, axis in enumerate(kernel.axes)
        }
        stores = substitute_stores(kernel.stores, images)
        extents = tuple(axis.extent for axis in kernel.axes)
        unnamed = (replace(s, access=replace(s.access, buffer="")) for s in stores)
        found.append((extents, tuple(unnamed)))
    return tuple(found)


def _renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel reading other buffers."""

    def change(load: Load) -> Load:
        name = load.access.buffer
        return replace(load, access=replace(load.access, buffer=names.get(name, name)))

    return map_loads(kernel, change) if not names.keys().isdisjoint(kernel.reads()) else kernel
