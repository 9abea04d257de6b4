"""A value that is only copied elsewhere is written there in the first place.

    for t: a[t] = f(..)                  for t: y[2t] = f(..)
    for t: y[2t] = a[t]            =>

The copy kernel disappears, and every access to `a` becomes one to `y`. So the steps of a loop write
their part of an output directly, at whatever strides the output has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ostinato.program.dims import product
from ostinato.program.expr import Access, Expr, Load, rewrite
from ostinato.program.nodes import Kernel, Loop, Program, Reduce, Stmt, Store
from ostinato.schedule.affine import solve, substitute_access


def elide_copies(program: Program) -> Program:
    """Remove copies of arena buffers whose other accesses can all be redirected."""
    for kernel in [s for s in program.body if isinstance(s, Kernel)]:
        source = _copied(program, kernel)
        if source is None:
            continue
        redirected = _redirect(program, kernel, source)
        if redirected is not None:
            program = redirected
    return program


def _copied(program: Program, kernel: Kernel) -> Load | None:
    """The load of a kernel that copies one whole arena buffer, or None."""
    if kernel.reductions or len(kernel.stores) != 1:
        return None
    load = kernel.stores[0].value
    if not isinstance(load, Load) or load.mask is not None:
        return None
    buffer = program.buffers[load.access.buffer]
    whole = product([axis.extent for axis in kernel.axes]) == buffer.size
    return load if buffer.kind == "arena" and whole else None


def _swapped(body: tuple[Stmt, ...]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Loop):
            for carry in statement.carries:
                yield from (carry.state, carry.next)
            yield from _swapped(statement.body)


def _redirect(program: Program, copy: Kernel, source: Load) -> Program | None:
    name, target = source.access.buffer, copy.stores[0].access
    others = [k for k in program.kernels() if k is not copy]
    if {name, target.buffer} & set(_swapped(program.body)):
        return None
    # A reader before the copy may not see a target that others overwrite meanwhile.
    if any(target.buffer in k.reads() for k in others):
        return None
    moved: dict[Access, Access] = {}
    for kernel in others:
        accesses = [load.access for load in kernel.loads()] + [s.access for s in kernel.stores]
        for access in accesses:
            if access.buffer == name:
                images = solve(source.access, copy.axes, access)
                if images is None:
                    return None
                moved[access] = substitute_access(target, images)
    body = tuple(_moved(s, moved) for s in program.body if s is not copy)
    return program.with_body(body)


def _moved(statement: Stmt, moved: dict[Access, Access]) -> Stmt:
    if isinstance(statement, Loop):
        return replace(statement, body=tuple(_moved(s, moved) for s in statement.body))

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.access in moved:
            return Load(moved[node.access], node.dtype, node.mask, node.other)
        return None

    def reduce(r: Reduce) -> Reduce:
        factor = None if r.factor is None else rewrite(r.factor, leaf)
        return replace(r, expr=rewrite(r.expr, leaf), factor=factor)

    return replace(
        statement,
        reductions=tuple(reduce(r) for r in statement.reductions),
        stores=tuple(
            Store(moved.get(s.access, s.access), rewrite(s.value, leaf)) for s in statement.stores
        ),
    )
