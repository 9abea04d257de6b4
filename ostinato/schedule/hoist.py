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
from ostinato.program.expr import Axis, Index, walk
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Kernel,
    Loop,
    Program,
    Require,
    Stmt,
    map_kernels,
    statements,
)
from ostinato.schedule.steps import per_step, rewrite_loops, with_rows, written_once


def hoist(program: Program) -> Program:
    """Move state-independent kernels of every loop in front of it."""
    return rewrite_loops(program, _hoist_loop)


def _hoist_loop(loop: Loop, buffers: dict[str, Buffer], outside: set[str]) -> list[Stmt]:
    carried = {name for c in loop.carries for name in (c.state, c.next)}
    changing = set(carried)
    leaving: list[Kernel] = []
    staying: list[Stmt] = []
    rows: dict[str, Size] = {}
    local = written_once(loop) - outside
    conditions = {s.condition for s in statements(loop.body) if isinstance(s, Branch | Require)}
    for statement in loop.body:
        movable = (
            isinstance(statement, Kernel)
            and not statement.reads() & changing
            and not statement.writes() & carried
            and all(per_step(store, loop.axis, local) for store in statement.stores)
        )
        if not movable:
            changing |= statement.writes()
            staying.append(statement)
            continue
        assert isinstance(statement, Kernel)
        varies = _mentions(statement, loop.axis) or bool(statement.reads() & rows.keys())
        if varies and (loop.condition is not None or statement.writes() & conditions):
            # Either how many steps there will be is not known, or the loop's body asks for this
            # step's value by name: only what never varies can go first.
            changing |= statement.writes()
            staying.append(statement)
            continue
        for store in statement.stores:
            if varies and store.access.stride(loop.axis) == 0:
                rows[store.access.buffer] = buffers[store.access.buffer].size
        moved = with_rows(statement, loop.axis, rows)
        leaving.append(replace(moved, axes=(loop.axis, *moved.axes)) if varies else moved)
    if not leaving:
        return [loop]
    for name, size in rows.items():
        buffers[name] = replace(buffers[name], size=size * loop.axis.extent)
    kept = map_kernels(tuple(staying), lambda k: with_rows(k, loop.axis, rows))
    return [*leaving, replace(loop, body=kept)]


def _mentions(kernel: Kernel, axis: Axis) -> bool:
    accesses = [load.access for load in kernel.loads()] + [s.access for s in kernel.stores]
    if any(access.stride(axis) != 0 for access in accesses):
        return True
    return Index(axis) in set(walk(*kernel.expressions()))
