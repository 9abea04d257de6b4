"""Work that does not depend on a loop's state leaves the loop.

    for t: a = f(x[t]); s = g(a, s)        for all t: A[t] = f(x[t])
                                      =>   for t: s = g(A[t], s)

A kernel of the body that reads nothing that the rest of the body changes runs for all steps at
once: the loop's axis becomes one more parallel axis, and the buffers it writes get one row per
step. So the matrix-vector products of all steps become one matrix product. Each element is computed
by the same operations as before.

A kernel that only spreads values out stays, unless something that leaves reads it: the rows of an
outer product take longer to write and to read than to compute where they are used. So does a kernel
of a few operations on values that a step is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ostinato.program.expr import Axis, Index, Op, walk
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Loop,
    Program,
    Require,
    Stmt,
    map_kernels,
    statements,
)
from ostinato.schedule.steps import per_step, rewrite_loops, with_rows, written_before_read
from ostinato.sizes.dims import Size

# Operations of a single instruction, of which two start in a cycle: computing them again takes less
# time than writing a value and reading it from the second-level cache, one to three cycles each
# (`packed_cycles` of the record of the machine).
_LIGHT = frozenset(("add", "sub", "mul", "fma", "neg", "abs", "min", "max", "select"))


def hoist(program: Program) -> Program:
    """Move state-independent kernels of every loop in front of it."""
    return rewrite_loops(program, _hoist_loop)


def _hoist_loop(loop: Loop, buffers: dict[str, Buffer], outside: set[str]) -> list[Stmt]:
    varies = _movable(loop, outside)
    read: set[str] = set()
    light = _light(varies)
    for kernel in reversed(list(varies)):
        stays = varies[kernel] and (kernel in light or _spreads(kernel))
        if stays and not kernel.writes() & read:
            del varies[kernel]
        else:
            read |= kernel.reads()
    if not varies:
        return [loop]
    rows: dict[str, Size] = {}
    leaving: list[Kernel] = []
    for kernel, each_step in varies.items():
        for store in kernel.stores:
            if each_step and store.access.stride(loop.axis) == 0:
                rows[store.access.buffer] = buffers[store.access.buffer].size
        moved = with_rows(kernel, loop.axis, rows)
        leaving.append(replace(moved, axes=(loop.axis, *moved.axes)) if each_step else moved)
    for name, size in rows.items():
        buffers[name] = replace(buffers[name], size=size * loop.axis.extent)
    staying = tuple(s for s in loop.body if s not in varies)
    kept = map_kernels(staying, lambda k: with_rows(k, loop.axis, rows))
    return [*leaving, replace(loop, body=kept)]


def _movable(loop: Loop, outside: set[str]) -> dict[Kernel, bool]:
    """The kernels of the body that could run before it, and whether they differ between steps.

    Of kernels that write parts of one value, all or none; all in every step, or all once.
    """
    apart: set[str] = set()
    while True:
        movable = _movable_but(loop, outside | apart)
        ways: dict[str, set[bool | None]] = {}
        for statement in loop.body:
            way = movable.get(statement) if isinstance(statement, Kernel) else None
            for name in statement.writes():
                ways.setdefault(name, set()).add(way)
        mixed = {name for name, found in ways.items() if len(found) > 1} - outside - apart
        if not mixed:
            return movable
        apart |= mixed


def _movable_but(loop: Loop, outside: set[str]) -> dict[Kernel, bool]:
    """The same for each kernel by itself; `outside` also names buffers without a row per step."""
    carried = {name for c in loop.carries for name in (c.state, c.next)}
    local = written_before_read(loop.body, {loop.axis}) - outside
    # A buffer that the body reads before writing it holds the value of the step before.
    changing = carried | (loop.writes() & outside)
    varying: set[str] = set()
    movable: dict[Kernel, bool] = {}
    conditions = {s.condition for s in statements(loop.body) if isinstance(s, Branch | Require)}
    for statement in loop.body:
        if (
            not isinstance(statement, Kernel)
            or statement.reads() & changing
            or statement.writes() & carried
            or statement.sizes
            or not all(per_step(store, loop.axis, local) for store in statement.stores)
        ):
            changing |= statement.writes()
            continue
        varies = _mentions(statement, loop.axis) or bool(statement.reads() & varying)
        if varies and (loop.condition is not None or statement.writes() & conditions):
            # The number of steps is unknown, or the body needs this step's value under the buffer's
            # name: then only kernels that are the same in all steps can leave.
            changing |= statement.writes()
            continue
        movable[statement] = varies
        if varies:
            varying |= statement.writes()
    return movable


def _light(movable: Iterable[Kernel]) -> set[Kernel]:
    """Kernels cheaper to recompute than to store, of inputs that no costlier ones compute."""
    found: set[Kernel] = set()
    made: set[str] = set()
    for kernel in movable:
        loads = list(kernel.loads())
        plain = all(load.mask is None and not load.index for load in loads)
        operations = {n.name for n in walk(*kernel.expressions()) if isinstance(n, Op)}
        if kernel.reductions or not plain or not operations <= _LIGHT or kernel.reads() & made:
            made |= kernel.writes()
        elif loads:
            found.add(kernel)
    return found


def _spreads(kernel: Kernel) -> bool:
    """Whether every value the kernel loads is used at more than one of its points."""
    axes = {axis for axis in kernel.axes if axis.extent != 1}
    loads = [load.access for load in kernel.loads()]
    broadcast = all(any(load.stride(axis) == 0 for axis in axes) for load in loads)
    return not kernel.reductions and bool(loads) and broadcast


def _mentions(kernel: Kernel, axis: Axis) -> bool:
    accesses = [load.access for load in kernel.loads()] + [s.access for s in kernel.stores]
    if any(access.stride(axis) != 0 for access in accesses):
        return True
    return Index(axis) in set(walk(*kernel.expressions()))
