"""Work that does not depend on a loop's state leaves the loop.

    for t: a = f(x[t]); s = g(a, s)        for all t: A[t] = f(x[t])
                                      =>   for t: s = g(A[t], s)

A kernel of the body that reads nothing which the rest of the body changes is run for all steps at
once: the loop's axis becomes one more parallel axis, and the buffers it writes get one row per
step. So the matrix-vector products of all steps become one matrix product. Each element is computed
by the same operations as before.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.dims import Size
from ostinato.program.expr import Access, Axis, Expr, Index, Load, rewrite, walk
from ostinato.program.nodes import Buffer, Kernel, Loop, Program, Reduce, Stmt, Store


def hoist(program: Program) -> Program:
    """Move state-independent kernels of every loop in front of it."""
    buffers = dict(program.buffers)
    body = _hoist_body(program.body, buffers)
    return replace(program, buffers=buffers).with_body(body)


def _hoist_body(body: tuple[Stmt, ...], buffers: dict[str, Buffer]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for statement in body:
        if isinstance(statement, Loop):
            inner = replace(statement, body=_hoist_body(statement.body, buffers))
            result += _hoist_loop(inner, buffers)
        else:
            result.append(statement)
    return tuple(result)


def _hoist_loop(loop: Loop, buffers: dict[str, Buffer]) -> list[Stmt]:
    changing = {name for c in loop.carries for name in (c.state, c.next)}
    leaving: list[Kernel] = []
    staying: list[Stmt] = []
    rows: dict[str, Size] = {}
    local = _written_once(loop)
    for statement in loop.body:
        movable = (
            isinstance(statement, Kernel)
            and not statement.reads() & changing
            and all(_per_step(store, loop.axis, local) for store in statement.stores)
        )
        if not movable:
            changing |= statement.writes()
            staying.append(statement)
            continue
        assert isinstance(statement, Kernel)
        varies = _mentions(statement, loop.axis) or bool(statement.reads() & rows.keys())
        for store in statement.stores:
            if varies and store.access.stride(loop.axis) == 0:
                rows[store.access.buffer] = buffers[store.access.buffer].size
        moved = _with_rows(statement, loop.axis, rows)
        assert isinstance(moved, Kernel)
        leaving.append(replace(moved, axes=(loop.axis, *moved.axes)) if varies else moved)
    if not leaving:
        return [loop]
    for name, size in rows.items():
        buffers[name] = replace(buffers[name], size=size * loop.axis.extent)
    kept = tuple(_with_rows(statement, loop.axis, rows) for statement in staying)
    return [*leaving, replace(loop, body=kept)]


def _written_once(loop: Loop) -> set[str]:
    """Buffers that a single statement of the body writes."""
    names = [name for statement in loop.body for name in statement.writes()]
    return {name for name in names if names.count(name) == 1}


def _per_step(store: Store, axis: Axis, local: set[str]) -> bool:
    """Whether the store has a place of its own for every step, or can be given one."""
    return store.access.stride(axis) != 0 or store.access.buffer in local


def _mentions(kernel: Kernel, axis: Axis) -> bool:
    accesses = [load.access for load in kernel.loads()] + [s.access for s in kernel.stores]
    if any(access.stride(axis) != 0 for access in accesses):
        return True
    return Index(axis) in set(walk(*kernel.expressions()))


def _with_rows(statement: Stmt, axis: Axis, rows: dict[str, Size]) -> Stmt:
    """The statement reading and writing one row per step of the widened buffers."""
    if isinstance(statement, Loop):
        return replace(statement, body=tuple(_with_rows(s, axis, rows) for s in statement.body))

    def widen(access: Access) -> Access:
        size = rows.get(access.buffer)
        if size is None or access.stride(axis) != 0:
            return access
        return replace(access, terms=(*access.terms, (axis, size)))

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.access.buffer in rows:
            return Load(widen(node.access), node.dtype, node.mask, node.other)
        return None

    def reduce(r: Reduce) -> Reduce:
        factor = None if r.factor is None else rewrite(r.factor, leaf)
        return replace(r, expr=rewrite(r.expr, leaf), factor=factor)

    return replace(
        statement,
        reductions=tuple(reduce(r) for r in statement.reductions),
        stores=tuple(Store(widen(s.access), rewrite(s.value, leaf)) for s in statement.stores),
    )
