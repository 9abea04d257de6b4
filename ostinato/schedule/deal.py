"""Deal out to threads the steps of loops whose steps are independent.

    loop h < 12 in any order             two threads run six steps each
      kernel scores -> s                 s: each thread has its own
      kernel values: s -> y[h]           y[h]: a place of its own for each step

A thread runs its steps alone and waits for nobody inside of them. Otherwise threads divide every
kernel, and wait before almost every one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Loop, Program, Stmt, count_own_uses, statements, with_bodies
from ostinato.schedule import share
from ostinato.schedule.share import gain_of, part_of, steps_time, time_of, use_of
from ostinato.sizes.dims import Size, computed


def deal(program: Program, threads: int) -> Program:
    """Choose the loops whose steps are dealt out, and their scratch buffers."""
    if threads == 1:
        return program
    uses = count_own_uses(program.body)

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_dealt(s, program, uses, threads) or with_bodies(s, change) for s in body)

    return program.with_body(change(program.body))


def _dealt(statement: Stmt, program: Program, uses: Counter[str], threads: int) -> Loop | None:
    """Return the loop with its scratch; None if its steps are not dealt out."""
    if not isinstance(statement, Loop) or not _pays(statement, threads):
        return None
    scratch, inside = _scratch(statement), count_own_uses(statement.body)
    arena = {name for name in scratch if program.buffers[name].kind == "arena"}
    if any(name not in arena or inside[name] != uses[name] for name in scratch):
        return None
    return replace(statement, scratch=scratch)


def _scratch(loop: Loop) -> frozenset[str]:
    """Buffers that every step writes at the same place."""
    kernels = (s for s in statements(loop.body) if isinstance(s, Kernel))
    accesses = (store.access for kernel in kernels for store in kernel.stores)
    return frozenset(access.buffer for access in accesses if access.stride(loop.axis) == 0)


def _pays(loop: Loop, threads: int) -> bool:
    """Whether dealing out the steps gains more than dividing the kernels in them."""
    extent = loop.axis.extent
    use = use_of(extent, threads)
    if not loop.is_independent or computed(extent) or use < max(_best_use(loop, threads), 1e-9):
        return False
    time = steps_time(loop.body)
    if not isinstance(extent, int) or not isinstance(time, int):
        return use >= share.TYPICAL_SHARE
    gain = gain_of(extent * time, use, threads)
    divided = extent * _divided(loop.body, threads)
    return isinstance(gain, int) and isinstance(divided, int) and gain >= max(share.LEAST, divided)


def _best_use(loop: Loop, threads: int) -> float:
    """The best use of the threads' time among the loops inside, if those are dealt out."""
    inner = (s for s in statements(loop.body) if isinstance(s, Loop) and s.is_independent)
    return max((use_of(one.axis.extent, threads) for one in inner), default=0.0)


def _divided(body: tuple[Stmt, ...], threads: int) -> Size:
    """An upper bound of the gain where threads divide each kernel, and wait before it."""
    total: Size = 0
    for statement in body:
        if isinstance(statement, Loop):
            total = total + statement.axis.extent * _divided(statement.body, threads)
        elif isinstance(statement, Kernel) and (part := part_of(statement, threads)) is not None:
            use = use_of(part.pieces, threads)
            total = total + gain_of(time_of(statement), use, threads) - share.WAIT
    return total
