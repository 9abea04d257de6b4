"""Move kernels out of loops: buffers get a row for every step."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from ostinato.program.expr import Access, Axis
from ostinato.program.kernel import Kernel, Store, map_accesses
from ostinato.program.nodes import Buffer, Loop, Program, Stmt, bodies, statements, with_bodies
from ostinato.sizes.dims import Size

Rewrite = Callable[[Loop, dict[str, Buffer], set[str]], list[Stmt]]


def rewrite_loops(program: Program, rewrite: Rewrite) -> Program:
    """Replace every loop of a program, the innermost first, by statements.

    `rewrite(loop, buffers, outside)` may change the buffers; `outside` are the names of those that
    anything but the loop uses, or that cannot have a row for each step: sizes.
    """
    buffers = dict(program.buffers)
    sizes = set(program.bounds)

    def change(body: tuple[Stmt, ...], outside: set[str]) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        names = [statement.reads() | statement.writes() for statement in body]
        for position, statement in enumerate(body):
            if not bodies(statement):
                result.append(statement)
                continue
            others = outside.union(sizes, *names[:position], *names[position + 1 :])
            if isinstance(statement, Loop):
                carried = statement.carried
                inner = replace(statement, body=change(statement.body, others | carried))
                result += rewrite(inner, buffers, others)
            else:
                result.append(with_bodies(statement, lambda b, o=others: change(b, o)))  # type: ignore[misc]
        return tuple(result)

    # A size exists once as well, however many steps compute it.
    single = {i.buffer for i in (*program.inputs, *program.outputs)} | program.bounds.keys()
    body = change(program.body, single)
    return program.with_body(body, buffers)


def written_once(loop: Loop) -> set[str]:
    """Buffers that a single statement of the body writes."""
    names = [name for statement in loop.body for name in statement.writes()]
    return {name for name in names if names.count(name) == 1}


def written_before_read(body: tuple[Stmt, ...], axes: Set[Axis]) -> set[str]:
    """Buffers of one step: the body reads nothing of them before all of it is written.

    axes: those of the loops around the body.
    """
    last = {name: i for i, s in enumerate(body) for name in s.writes()}
    early = {n for i, s in enumerate(body) for n in s.reads() if i <= last.get(n, -1)}
    kernels = [s for s in statements(body) if isinstance(s, Kernel)]
    stores = [store.access for kernel in kernels for store in kernel.stores]
    apart = {a.buffer for a in stores if any(a.stride(axis) != 0 for axis in axes)}
    return set(last) - early - apart


def per_step(store: Store, axis: Axis, local: set[str]) -> bool:
    """Whether the store has a place of its own for every step, or can be given one."""
    return store.access.stride(axis) != 0 or store.access.buffer in local


def with_rows(kernel: Kernel, axis: Axis, rows: dict[str, Size], backward: bool = False) -> Kernel:
    """The kernel reading and writing one row per step of the widened buffers.

    backward: whether the row of the last step is the first one.
    """

    def widen(access: Access) -> Access:
        size = rows.get(access.buffer)
        if size is None or access.stride(axis) != 0:
            return access
        if not backward:
            return replace(access, terms=(*access.terms, (axis, size)))
        last = access.offset + size * (axis.extent - 1)
        return replace(access, offset=last, terms=(*access.terms, (axis, -size)))

    return map_accesses(kernel, widen)
