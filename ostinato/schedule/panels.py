"""Make a large copy that one product reads panel by panel, each read while it is in the cache.

    copy[g][k][v] = widened w       for g in any order:
    y[i][g][v] = sum_k x copy[g]  =>    copy[k][v] = widened w of the group g
                                        y[i][g][v] = sum_k x copy

The copy then takes the memory of a panel, and never leaves the second-level cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Expr, Load
from ostinato.program.kernel import Kernel, Store, map_expressions
from ostinato.program.nodes import Branch, Buffer, Loop, Program, Stmt, with_bodies


def by_panels(program: Program, machine: Machine) -> Program:
    """Make copies that exceed the second-level cache for one group of lanes at a time.

    The lanes are those of the only reader. Kernels in loops stay: copies before a loop serve all of
    its steps. So do copies that several kernels read, each of which needs all panels.
    """
    buffers = dict(program.buffers)
    readers = Counter(name for kernel in program.kernels() for name in kernel.reads())

    def inside(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for statement in body:
            before = result[-1] if result else None
            loop = None
            if isinstance(statement, Kernel) and isinstance(before, Kernel):
                is_alone = all(readers[name] == 1 for name in before.writes())
                loop = _looped(before, statement, machine, buffers) if is_alone else None
            if loop is not None:
                result[-1] = loop
            elif isinstance(statement, Branch):
                result.append(with_bodies(statement, inside))
            else:
                result.append(statement)
        return tuple(result)

    body = inside(program.body)
    return program.with_body(body, buffers)


def _looped(
    copy: Kernel, reader: Kernel, machine: Machine, buffers: dict[str, Buffer]
) -> Loop | None:
    """The loop over panels; None where the first kernel is no such copy for the second one."""
    tile = reader.tile
    if tile is None or tile.block is None or tile.limit is not None or len(copy.stores) != 1:
        return None
    (store,), axis = copy.stores, tile.block
    buffer, panel = buffers[store.access.buffer], store.access.stride(axis)
    if not buffer.is_copy or store.partial or not isinstance(axis.extent, int):
        return None
    item, loads = ITEM_BYTES[buffer.dtype], _of(reader, buffer.name)
    is_whole = isinstance(panel, int) and panel * axis.extent == buffer.size
    if not is_whole or not loads or not _is_outer(copy, axis) or not _is_outer(reader, axis):
        return None
    assert isinstance(panel, int) and isinstance(buffer.size, int)
    # A panel takes half of the cache at most: 64 rows by 768 x 3072 weights of 4 bits take 0.92 of
    # the time of a whole copy, by 2048 x 2048 0.99 (`benchmarks.versions --onnx`, MatMulNBits).
    if buffer.size * item <= machine.far_bytes or panel * item > machine.far_bytes:
        return None
    if any(load.access.stride(axis) != panel or load.index for load in loads):
        return None
    buffers[buffer.name] = replace(buffer, size=panel)
    moved: dict[Expr, Expr] = {
        load: replace(load, access=_without(load.access, axis)) for load in loads
    }
    reader = replace(
        map_expressions(reader, moved.get),
        axes=tuple(a for a in reader.axes if a != axis),
        tile=replace(tile, block=None, groups=1),
    )
    stored = Store(_without(store.access, axis), store.value)
    copy = replace(copy, axes=tuple(a for a in copy.axes if a != axis), stores=(stored,))
    return Loop(axis, (), (copy, reader), is_independent=True)


def _of(kernel: Kernel, buffer: str) -> Sequence[Load]:
    return [load for load in kernel.loads() if load.access.buffer == buffer]


def _is_outer(kernel: Kernel, axis: Axis) -> bool:
    """Whether a kernel is the same at each point of an axis but for its addresses."""
    tile = kernel.tile
    if tile is None or axis not in kernel.axes or kernel.guard is not None or kernel.ordered:
        return False
    others = (tile.lane, tile.row, tile.across, tile.other, *tile.inside)
    return axis not in others and tile.depth is None


def _without(access: Access, axis: Axis) -> Access:
    return replace(access, terms=tuple(term for term in access.terms if term[0] != axis))
