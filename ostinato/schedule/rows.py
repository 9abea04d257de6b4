"""Kernels that pass rows to each other run row by row, so that a row stays in the cache.

    for i, j: b[i, j] = f(x[i, j])           for i:
    for i:    s[i] = sum_j b[i, j]      =>       for j: b[j] = f(x[i, j])
    for i, j: y[i, j] = b[i, j] / s[i]           s = sum_j b[j]
                                                 for j: y[i, j] = b[j] / s

Values between the kernels then have one row. Short rows go together, a block at a time: calling a
kernel costs something too. What is computed for each element stays the same.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.dims import Size, is_nonnegative
from ostinato.program.expr import ITEM_BYTES, Access, Axis
from ostinato.program.nodes import Buffer, Kernel, Loop, Program, Stmt, map_loads
from ostinato.schedule.affine import Affine, Map, substitute_reduce, substitute_store

# Rows of a block together: a share of the first-level cache that leaves room for what they meet.
BLOCK_BYTES = 12 * 1024
# Values that fit the first-level cache as a whole gain nothing.
CACHE_BYTES = 40 * 1024
# A row of run-time numbers of rows must be worth the calls on its own.
LEAST_ROW_BYTES = 1024


def by_rows(program: Program) -> Program:
    """Turn runs of kernels over the same rows into loops over rows."""
    buffers = dict(program.buffers)
    body: list[Stmt] = []
    run: list[Kernel] = []
    for statement in (*program.body, None):
        if isinstance(statement, Kernel) and _joins(statement, run, buffers):
            run.append(statement)
            continue
        body += _looped(program, run, buffers)
        run = []
        if isinstance(statement, Kernel) and _joins(statement, [], buffers):
            run = [statement]
        elif statement is not None:
            body.append(statement)
    return replace(program, buffers=buffers).with_body(tuple(body))


def _joins(kernel: Kernel, run: list[Kernel], buffers: dict[str, Buffer]) -> bool:
    """Whether the kernel can run for each row right after those of `run`."""
    if not kernel.axes or kernel.ordered or kernel.guard is not None:
        return False
    if any(reduce.chains == 1 for reduce in kernel.reductions):
        return False
    if any(store.partial for store in kernel.stores):
        return False
    if not run:
        return True
    together = [*run, kernel]
    if len({k.axes[0].extent for k in together}) > 1:
        return False
    written = {name for k in together for name in k.writes()}
    return not any(name in written for name in kernel.reads()) or all(
        _row_bytes(name, together, buffers) is not None
        for name in written
        if any(name in k.reads() for k in together)
    )


def _accesses(kernel: Kernel, name: str) -> list[Access]:
    found = [load.access for load in kernel.loads()] + [s.access for s in kernel.stores]
    return [access for access in found if access.buffer == name]


def _row_bytes(name: str, run: list[Kernel], buffers: dict[str, Buffer]) -> Size | None:
    """Bytes of a row of a buffer, if every access of row `i` lies in the buffer's row `i`."""
    rows: set[Size] = set()
    for kernel in run:
        if any(load.index for load in kernel.loads() if load.access.buffer == name):
            return None
        for access in _accesses(kernel, name):
            stride = access.stride(kernel.axes[0])
            reach = access.offset
            for axis, step in access.terms:
                if axis == kernel.axes[0]:
                    continue
                if axis not in kernel.axes and not any(axis in r.axes for r in kernel.reductions):
                    return None
                if not is_nonnegative(step):
                    return None
                reach = reach + step * (axis.extent - 1)
            rows.add(stride)
            if not is_nonnegative(access.offset) or not is_nonnegative(stride - 1 - reach):
                return None
    if len(rows) != 1:
        return None
    return rows.pop() * ITEM_BYTES[buffers[name].dtype]


def _looped(program: Program, run: list[Kernel], buffers: dict[str, Buffer]) -> list[Stmt]:
    """The kernels of a run in a loop over rows, or as they are where that gains nothing."""
    written = {name for k in run for name in k.writes()}
    between = sorted(name for name in written if any(name in k.reads() for k in run))
    if not between or not any(k.reductions for k in run):
        return list(run)
    count = run[0].axes[0].extent
    sizes = [_row_bytes(name, run, buffers) for name in between]
    row = sum(size for size in sizes if isinstance(size, int))
    if len(between) == 0 or not all(isinstance(size, int) for size in sizes):
        return list(run)
    block = _block(count, row)
    if block is None:
        return list(run)
    used_elsewhere = {
        name
        for statement in program.body
        if statement not in run
        for name in statement.reads() | statement.writes()
    }
    local = {
        name for name in between if buffers[name].kind == "arena" and name not in used_elsewhere
    }
    assert not isinstance(count, int) or count % block == 0
    loop = Axis(f"{run[0].axes[0].name}b", count // block if isinstance(count, int) else count)
    body = tuple(_one_block(kernel, loop, block, local) for kernel in run)
    for name in local:
        size = _row_bytes(name, run, buffers)
        assert isinstance(size, int)
        buffers[name] = replace(buffers[name], size=block * size // ITEM_BYTES[buffers[name].dtype])
    return [Loop(loop, (), body)]


def _block(count: Size, row: int) -> int | None:
    """How many rows run together; None if it is not worth a loop."""
    if not isinstance(count, int):
        return 1 if row >= LEAST_ROW_BYTES else None
    if count * row <= CACHE_BYTES:
        return None
    block = max(n for n in range(1, max(1, BLOCK_BYTES // row) + 1) if count % n == 0)
    return block if block < count and block * row >= LEAST_ROW_BYTES else None


def _one_block(kernel: Kernel, loop: Axis, block: int, local: set[str]) -> Kernel:
    """The kernel for one step of the loop; local buffers have the rows of one step only."""
    row = kernel.axes[0]
    inner = Axis(row.name, block)
    terms = ((loop, block), (inner, 1)) if block > 1 else ((loop, 1),)
    image: Map = {row: Affine(0, terms)}
    axes = (inner, *kernel.axes[1:]) if block > 1 else kernel.axes[1:]
    moved = replace(
        kernel,
        axes=axes,
        reductions=tuple(substitute_reduce(r, image) for r in kernel.reductions),
        stores=tuple(substitute_store(s, image) for s in kernel.stores),
    )

    def inside(access: Access) -> Access:
        kept = tuple((axis, step) for axis, step in access.terms if axis != loop)
        return replace(access, terms=kept) if access.buffer in local else access

    changed = map_loads(moved, lambda load: replace(load, access=inside(load.access)))
    stores = tuple(replace(s, access=inside(s.access)) for s in changed.stores)
    return replace(changed, stores=stores)
