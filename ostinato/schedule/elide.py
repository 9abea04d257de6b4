"""A value that is only copied elsewhere is written there in the first place.

    for t: a[t] = f(..)                  for t: y[2t] = f(..)
    for t: y[2t] = a[t]            =>

The copy kernel disappears, and every access to `a` becomes one to `y`. So the steps of a loop write
their part of an output directly, at whatever strides the output has.

A copy with a constant around it, as convolutions read it, is a copy into the inside of a buffer.
The writer of the original writes there, and kernels that fill the border remain.

Steps of a loop do the same with buffers that they fill and read alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Expr, Load
from ostinato.program.kernel import Kernel, Store, map_loads
from ostinato.program.nodes import (
    Branch,
    Loop,
    Program,
    Require,
    Stmt,
    count_own_uses,
    map_kernels,
    statements,
    with_bodies,
)
from ostinato.schedule.borders import padded_parts
from ostinato.schedule.index_maps import solve, substitute_access
from ostinato.schedule.operands import typical
from ostinato.schedule.steps import written_before_read
from ostinato.sizes.dims import computed, product

# From this many elements in a row of an image, vectors without masks save more than filling the
# border costs. With mask registers, images of 224 x 224 pixels are padded in a third of the time,
# and depthwise convolutions of rows of 14 to 56 pixels take a tenth longer; without, those of 28 to
# 56 pixels take 0.62 to 0.88 of the time, of 7 and 14 pixels as long (`benchmarks.versions`, row
# `conv2d depthwise 3x3 128ch 56x56`).
LONG_ROW = 64
LONG_ROW_WITHOUT_MASKS = 24


def elide_copies(program: Program, machine: Machine) -> Program:
    """Remove copies of arena buffers whose other accesses can all be redirected."""
    long_row = LONG_ROW if machine.merges_bits else LONG_ROW_WITHOUT_MASKS
    uses = count_own_uses(program.body)

    def inside(body: tuple[Stmt, ...], axes: frozenset[Axis]) -> tuple[Stmt, ...]:
        """Remove copies inside a loop or branch, between buffers that nothing outside uses."""
        deeper = tuple(with_bodies(s, partial(inside, axes=axes | _axes(s))) for s in body)
        own = {name for name, count in count_own_uses(body).items() if count == uses[name]}
        # Other buffers hold values of an earlier step.
        own &= written_before_read(body, axes)
        return _elided(replace(program, body=deeper), own, long_row).body

    deeper = tuple(with_bodies(s, partial(inside, axes=_axes(s))) for s in program.body)
    return _elided(program.with_body(deeper), program.buffers.keys(), long_row)


def _axes(statement: Stmt) -> frozenset[Axis]:
    return frozenset((statement.axis,) if isinstance(statement, Loop) else ())


# The path of a statement: the number of the statement that contained it, and of the part.
_Place: TypeAlias = tuple[int, int]


class _Body:
    """The statements of a program while copies are removed, and who uses which buffer.

    So the work to remove a copy depends on the users of two buffers, not on all kernels.
    """

    def __init__(self, program: Program) -> None:
        self.buffers = program.buffers
        self.whole = set(whole_buffers(program))
        self.at: dict[_Place, Stmt] = {}
        self._users: dict[str, set[_Place]] = {}
        for number, statement in enumerate(program.body):
            self._add((number, 0), statement)

    def _add(self, place: _Place, statement: Stmt) -> None:
        self.at[place] = statement
        for name in statement.reads() | statement.writes():
            self._users.setdefault(name, set()).add(place)

    def replace(self, place: _Place, *parts: Stmt) -> None:
        """Replace a statement by others, or by none."""
        before = self.at.pop(place)
        for name in before.reads() | before.writes():
            self._users[name].discard(place)
        for part, statement in enumerate(parts, place[1]):
            self._add((place[0], part), statement)

    def users(self, *names: str) -> list[tuple[_Place, Kernel]]:
        """The kernels among the statements that use one of these buffers, in program order."""
        places = {place for name in names for place in self._users.get(name, ())}
        return [
            (place, kernel)
            for place in sorted(places)
            for kernel in statements((self.at[place],))
            if isinstance(kernel, Kernel)
        ]


def _elided(program: Program, names: Set[str], long_row: int) -> Program:
    """Remove copies between these buffers among the statements of the program's body."""
    body = _Body(program)
    is_changed = False
    for place in list(body.at):
        kernel = body.at[place]
        if not isinstance(kernel, Kernel) or not kernel.reads() | kernel.writes() <= names:
            continue
        source = _copied(body, kernel)
        if source is None:
            is_changed |= _bordered(body, place, kernel, long_row)
        else:
            is_changed |= _redirected(body, place, kernel, source)
    return program.with_body(tuple(body.at[p] for p in sorted(body.at))) if is_changed else program


def _bordered(body: _Body, place: _Place, kernel: Kernel, long_row: int) -> bool:
    """If this is a padded copy, write its inside and border in place.

    A copy of an input stays a kernel: a plain one for bytes, and where rows are long. Else elements
    are copied with a mask.
    """
    parts = padded_parts(kernel)
    if parts is None:
        return False
    inside, border = parts
    source = _copied(body, inside)
    target = kernel.stores[0].access.buffer
    alone = not any(target in k.writes() for _, k in body.users(target) if k is not kernel)
    if not alone or body.buffers[target].kind != "arena":
        return False
    if source is not None and _redirected(body, place, inside, source, border):
        return True
    is_narrow = ITEM_BYTES[body.buffers[target].dtype] == 1
    has_long_rows = typical(inside.axes[-1].extent) >= long_row if inside.axes else False
    if is_narrow or has_long_rows:
        body.replace(place, *border, inside)
    return is_narrow or has_long_rows


def _copied(body: _Body, kernel: Kernel) -> Load | None:
    """The load of a kernel that copies one whole arena buffer, or None."""
    if kernel.reductions or kernel.ordered or len(kernel.stores) != 1 or kernel.stores[0].partial:
        return None
    load = kernel.stores[0].value
    if not isinstance(load, Load) or load.mask is not None or load.index:
        return None
    buffer = body.buffers[load.access.buffer]
    whole = product([axis.extent for axis in kernel.axes]) == buffer.size
    return load if buffer.kind == "arena" and whole else None


def whole_buffers(program: Program) -> Iterator[str]:
    """Yield the buffers that statements other than kernels use, by name and as a whole."""
    for statement in statements(program.body):
        if isinstance(statement, Loop):
            for carry in statement.carries:
                yield from (carry.state, carry.next)
        elif isinstance(statement, Branch | Require):
            yield statement.condition


def _redirected(
    body: _Body, at: _Place, copy: Kernel, source: Load, border: Sequence[Kernel] | None = None
) -> bool:
    """Remove the copy at a place, unless some access cannot be redirected.

    border: kernels that stay there, around the copied part of the target; nothing is in the target
    before, so nobody reads it.
    """
    name, target = source.access.buffer, copy.stores[0].access
    if not body.whole.isdisjoint((name, target.buffer)):
        return False
    if border is None and not _is_ordered(body, at, name, target.buffer):
        return False
    places_of = target.offset, set(target.terms)
    same_places = places_of == (source.access.offset, set(source.access.terms))
    sizes = computed(target.offset, *(stride for _, stride in target.terms))
    moved: dict[Access, Access] = {}
    users = [(place, kernel) for place, kernel in body.users(name) if place != at]
    for _, kernel in users:
        if name in kernel.writes() and not sizes <= kernel.sizes:
            # Where the target lies may only be known behind the kernel.
            return False
        uses: list[Load | Store] = [*kernel.loads(), *kernel.stores]
        for use in uses:
            access = use.access
            if access.buffer != name:
                continue
            if same_places:
                moved[access] = replace(access, buffer=target.buffer)
                continue
            # Computed positions are multiples of the strides that the buffer has now.
            images = None if use.index else solve(source.access, copy.axes, access)
            if images is None:
                return False
            moved[access] = substitute_access(target, images)
    for place in dict.fromkeys(place for place, _ in users):
        body.replace(place, *map_kernels((body.at[place],), lambda k: _moved(k, name, moved)))
    body.replace(at, *(border or ()))
    return True


def _is_ordered(body: _Body, end: _Place, name: str, target: str) -> bool:
    """Whether the target is read only behind the copy, and not written while `name` is in use.

    Else a reader might find values too early, or values that were overwritten. end: where the copy
    is.
    """
    places = [(place, kernel) for place, kernel in body.users(name, target) if place != end]
    if not any(target in kernel.reads() for _, kernel in places):
        return True
    uses = [place for place, k in places if name in k.reads() | k.writes()]
    first, last = min(uses, default=end), max([end, *uses])
    return all(
        (target not in kernel.reads() or place > end)
        and (target not in kernel.writes() or place < first or place > last)
        and (name not in kernel.writes() or place < end)
        for place, kernel in places
    )


def _moved(kernel: Kernel, name: str, moved: dict[Access, Access]) -> Kernel:
    if name not in kernel.reads() | kernel.writes():
        return kernel

    def load(node: Load) -> Expr | None:
        there = moved.get(node.access)
        return None if there is None else replace(node, access=there)

    changed = map_loads(kernel, load)
    stores = tuple(replace(s, access=moved.get(s.access, s.access)) for s in changed.stores)
    return replace(changed, stores=stores)
