"""Drop kernels whose results nothing reads, and states that only keep themselves alive."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Program, Require, Stmt, reduced, statements
from ostinato.sizes.dims import computed


def drop_dead(program: Program) -> Program:
    """Keep only what the outputs and the control flow of the program depend on."""
    live = {output.buffer for output in program.outputs}
    # Readers follow their writers, except for states: going backwards, few rounds find everything.
    backwards = tuple(statements(program.body))[::-1]
    before = -1
    while len(live) != before:
        before = len(live)
        for statement in backwards:
            live |= _needs(statement, live)
    return program.with_body(_kept(program.body, live))


def _needs(statement: Stmt, live: set[str]) -> Set[str]:
    """Buffers that a statement needs, given those that are needed of what it writes."""
    if isinstance(statement, Kernel):
        return statement.reads() if statement.writes() & live else set()
    if isinstance(statement, Branch | Require):
        return {statement.condition}
    pairs = [{c.state, c.next} for c in statement.carries]
    needed = set() if statement.condition is None else {statement.condition}
    if not statement.writes().isdisjoint(live):
        needed |= computed(statement.axis.extent)
    return needed.union(*(pair for pair in pairs if pair & (live | needed)))


def _kept(body: tuple[Stmt, ...], live: set[str]) -> tuple[Stmt, ...]:
    def kept(kernel: Kernel) -> Iterable[Stmt]:
        stores = tuple(s for s in kernel.stores if s.access.buffer in live)
        return (replace(kernel, stores=stores),) if stores else ()

    return reduced(body, kept, lambda carry: carry if carry.state in live else None)
