"""A value that is copied elsewhere as a whole is written there in the first place.

    for t: a[t] = f(..)                  for t: y[2t] = f(..)
    for t: y[2t] = a[t]            =>

The copy kernel disappears, and every access to `a` becomes one to `y`. So the steps of a loop write
their part of an output directly, at whatever strides the output has.

A copy with a constant around it, as convolutions read it, is a copy into the inside of a buffer.
Its writer writes there, and what remains are kernels that fill the border.

Steps of a loop do the same with buffers that they fill and read alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from functools import partial

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

# Elements of a row of an image from which on vectors without masks save more than what fills the
# border takes. With registers for masks, images of 224 x 224 pixels are padded in a third of the
# time, and depthwise convolutions of rows of 14 to 56 pixels take a tenth longer; without, such of
# 28 to 56 pixels take 0.62 to 0.88 of the time, of 7 and 14 pixels as long
# (`benchmarks.versions`, row `conv2d depthwise 3x3 128ch 56x56`).
LONG_ROW = 64
LONG_ROW_WITHOUT_MASKS = 24


def elide_copies(program: Program, machine: Machine) -> Program:
    """Remove copies of arena buffers whose other accesses can all be redirected."""
    long_row = LONG_ROW if machine.merges_bits else LONG_ROW_WITHOUT_MASKS
    uses = count_own_uses(program.body)

    def inside(body: tuple[Stmt, ...], axes: frozenset[Axis]) -> tuple[Stmt, ...]:
        """The statements of a loop or branch, which alone know what is copied, and where to."""
        deeper = tuple(with_bodies(s, partial(inside, axes=axes | _axes(s))) for s in body)
        own = {name for name, count in count_own_uses(body).items() if count == uses[name]}
        # Others hold what an earlier step left there.
        own &= written_before_read(body, axes)
        return _elided(replace(program, body=deeper), own, long_row).body

    deeper = tuple(with_bodies(s, partial(inside, axes=_axes(s))) for s in program.body)
    return _elided(program.with_body(deeper), program.buffers.keys(), long_row)


def _axes(statement: Stmt) -> frozenset[Axis]:
    return frozenset((statement.axis,) if isinstance(statement, Loop) else ())


def _elided(program: Program, names: Set[str], long_row: int) -> Program:
    """The program without copies between these buffers that are statements of its body."""
    kernels = {s.name: s for s in program.body if isinstance(s, Kernel)}
    for name in list(kernels):
        kernel = kernels[name]
        if not kernel.reads() | kernel.writes() <= names:
            continue
        source = _copied(program, kernel)
        if source is None:
            changed = _bordered(program, kernel, long_row)
        else:
            changed = _redirect(program, kernel, source)
        if changed is not None:
            program = changed
            kernels = {s.name: s for s in program.body if isinstance(s, Kernel)}
    return program


def _bordered(program: Program, kernel: Kernel, long_row: int) -> Program | None:
    """The program with a padded copy written in place, border and inside; None if it is none.

    A copy of an input stays a kernel: a plain one for bytes, and where rows are long. Else elements
    are copied with a mask.
    """
    parts = padded_parts(kernel)
    if parts is None:
        return None
    inside, border = parts
    source = _copied(program, inside)
    target = kernel.stores[0].access.buffer
    alone = not any(target in k.writes() for k in program.kernels() if k is not kernel)
    if not alone or program.buffers[target].kind != "arena":
        return None
    body: list[Stmt] = []
    for statement in program.body:
        body += (*border, inside) if statement is kernel else (statement,)
    parted = program.with_body(tuple(body))
    redirected = None if source is None else _redirect(parted, inside, source, is_first=True)
    is_narrow = ITEM_BYTES[program.buffers[target].dtype] == 1
    has_long_rows = typical(inside.axes[-1].extent) >= long_row if inside.axes else False
    return redirected or (parted if is_narrow or has_long_rows else None)


def _copied(program: Program, kernel: Kernel) -> Load | None:
    """The load of a kernel that copies one whole arena buffer, or None."""
    if kernel.reductions or kernel.ordered or len(kernel.stores) != 1 or kernel.stores[0].partial:
        return None
    load = kernel.stores[0].value
    if not isinstance(load, Load) or load.mask is not None or load.index:
        return None
    buffer = program.buffers[load.access.buffer]
    whole = product([axis.extent for axis in kernel.axes]) == buffer.size
    return load if buffer.kind == "arena" and whole else None


def whole_buffers(program: Program) -> Iterator[str]:
    """Buffers that statements other than kernels use, by name and as a whole."""
    for statement in statements(program.body):
        if isinstance(statement, Loop):
            for carry in statement.carries:
                yield from (carry.state, carry.next)
        elif isinstance(statement, Branch | Require):
            yield statement.condition


def _redirect(
    program: Program, copy: Kernel, source: Load, is_first: bool = False
) -> Program | None:
    """The program without the copy; None where some access cannot be redirected.

    is_first: nothing is in the copied part of the target before, so nobody reads it.
    """
    name, target = source.access.buffer, copy.stores[0].access
    others = [k for k in program.kernels() if k is not copy]
    if {name, target.buffer} & set(whole_buffers(program)):
        return None
    if not is_first and not _is_ordered(program, copy, name, target.buffer):
        return None
    places_of = target.offset, set(target.terms)
    same_places = places_of == (source.access.offset, set(source.access.terms))
    sizes = computed(target.offset, *(stride for _, stride in target.terms))
    moved: dict[Access, Access] = {}
    for kernel in others:
        if name not in kernel.reads() | kernel.writes():
            continue
        if name in kernel.writes() and not sizes <= kernel.sizes:
            # Where the target lies may only be known behind the kernel.
            return None
        places: list[Load | Store] = [*kernel.loads(), *kernel.stores]
        for place in places:
            access = place.access
            if access.buffer != name:
                continue
            if same_places:
                moved[access] = replace(access, buffer=target.buffer)
                continue
            # Computed positions are multiples of the strides that the buffer has now.
            images = None if place.index else solve(source.access, copy.axes, access)
            if images is None:
                return None
            moved[access] = substitute_access(target, images)
    rest = tuple(s for s in program.body if s is not copy)
    return program.with_body(map_kernels(rest, lambda kernel: _moved(kernel, name, moved)))


def _is_ordered(program: Program, copy: Kernel, name: str, target: str) -> bool:
    """Whether the target is read behind the copy only, and nobody writes it while `name` is in use.

    Else a reader might find values too early, or those that somebody overwrites meanwhile.
    """
    places = [
        (number, kernel)
        for number, statement in enumerate(program.body)
        for kernel in statements((statement,))
        if isinstance(kernel, Kernel) and kernel is not copy
    ]
    if not any(target in kernel.reads() for _, kernel in places):
        return True
    end = program.body.index(copy)
    uses = [n for n, k in places if name in k.reads() | k.writes()]
    first, last = min(uses, default=end), max([end, *uses])
    return all(
        (target not in kernel.reads() or number > end)
        and (target not in kernel.writes() or number < first or number > last)
        and (name not in kernel.writes() or number < end)
        for number, kernel in places
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
