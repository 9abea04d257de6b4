"""Products that only read what steps have computed run after the loop, for all steps at once.

    for t: s = g(s); y[t] = s . W            for t: s = g(s); S[t] = s
                                       =>    for all t: y[t] = S[t] . W

The mirror image of `hoist`: a reduction whose results no later step and no condition of the loop
needs moves behind the loop, with all that follows from it, and the values it reads are stored for
every step. Pointwise work stays: it is cheaper where its operands still are in registers.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.expr import Axis, Index
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
from ostinato.schedule.index_maps import turned_round
from ostinato.schedule.steps import per_step, rewrite_loops, with_rows, written_once
from ostinato.sizes.dims import Size, is_nonnegative


def sink(program: Program) -> Program:
    """Move reductions on the outputs of every loop behind it."""
    return rewrite_loops(program, _sink_loop)


def _sink_loop(loop: Loop, buffers: dict[str, Buffer], outside: set[str]) -> list[Stmt]:
    leaving = _following(_movable(loop, outside))
    if loop.condition is not None or not leaving:
        return [loop]
    staying = tuple(s for s in loop.body if s not in leaving)
    inside = set().union(*(s.writes() for s in staying)) if staying else set()
    made = set().union(*(s.writes() for s in leaving))
    rows: dict[str, Size] = {}
    for kernel in leaving:
        for name in (kernel.reads() & inside) | (kernel.writes() & made):
            if not _has_rows(loop, name):
                rows[name] = buffers[name].size
    for name, size in rows.items():
        buffers[name] = replace(buffers[name], size=size * loop.axis.extent)
    backward = all(_is_backward(kernel, loop.axis) for kernel in leaving)
    kept = map_kernels(staying, lambda k: with_rows(k, loop.axis, rows, backward))
    behind: list[Stmt] = []
    for kernel in leaving:
        widened = with_rows(kernel, loop.axis, rows, backward)
        widened = replace(widened, axes=(loop.axis, *kernel.axes))
        behind.append(turned_round(widened, loop.axis) if backward else widened)
    return [replace(loop, body=kept), *behind]


def _is_backward(kernel: Kernel, axis: Axis) -> bool:
    """Whether a kernel accesses the rows of all steps backwards, as a gradient does.

    Rows are then stored backwards too, so that all points form matrices that begin with the first
    one.
    """
    places = kernel.accesses
    backwards = [is_nonnegative(-access.stride(axis)) for access in places]
    return all(backwards) and Index(axis) not in kernel.nodes


def _has_rows(loop: Loop, name: str) -> bool:
    """Whether every store to the buffer already has a place of its own for each step."""
    return all(
        store.access.stride(loop.axis) != 0
        for statement in statements(loop.body)
        if isinstance(statement, Kernel)
        for store in statement.stores
        if store.access.buffer == name
    )


def _movable(loop: Loop, outside: set[str]) -> list[Kernel]:
    """Kernels of the body whose results only such kernels read, or nothing inside the loop."""
    carried = loop.carried
    once = written_once(loop)
    left = _left_by_earlier_steps(loop)
    local = {name for name in once if name not in outside or _has_rows(loop, name)} - left
    conditions = {s.condition for s in statements(loop.body) if isinstance(s, Branch | Require)}
    inner = [s for s in loop.body if not isinstance(s, Kernel)]
    needed = carried | conditions | left | set().union(*(s.reads() | s.writes() for s in inner))
    readable = local | (loop.reads() - loop.writes())
    movable: list[Kernel] = []
    for statement in reversed(loop.body):
        if not isinstance(statement, Kernel):
            continue
        free = not (statement.reads() & carried) and not (statement.writes() & needed)
        free = free and not statement.sizes
        kept = statement.reads() <= readable
        if free and kept and all(per_step(s, loop.axis, local) for s in statement.stores):
            movable.append(statement)
        else:
            needed |= statement.reads()
    return movable[::-1]


def _left_by_earlier_steps(loop: Loop) -> set[str]:
    """Buffers that a step reads before it writes them, such as rows of a state that grows."""
    written, found = set[str](), set[str]()
    for statement in reversed(loop.body):
        written |= statement.writes()
        found |= written & statement.reads()
    return found


def _following(movable: list[Kernel]) -> list[Kernel]:
    """The products among these kernels, and the kernels that use their results."""
    results: set[str] = set()
    leaving: list[Kernel] = []
    for kernel in movable:
        product = any(reduce.factor is not None for reduce in kernel.reductions)
        if product or kernel.reads() & results:
            leaving.append(kernel)
            results |= kernel.writes()
    return leaving
