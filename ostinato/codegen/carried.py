"""Keep in a register what a point stores and the next point reads.

    for i, in order: y[i] = (y[i - 1] if i > 0 else 0) + x[i]

A load from memory would wait for the store before, several times as long as a sum takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ostinato.program.expr import Axis, Load
from ostinato.program.kernel import Kernel, Store, Tile
from ostinato.program.nodes import Buffer


def carried_loads(
    kernel: Kernel, axis: Axis, tile: Tile, buffer_of: Mapping[str, Buffer]
) -> list[tuple[Load, Store]]:
    """Find loads of what the previous point along a kernel's innermost axis stored.

    With the stores. Points are scalars, one after the other, and nothing else stores to these
    buffers.
    """
    if axis not in kernel.ordered or tile != Tile(None, 1):
        return []
    found: list[tuple[Load, Store]] = []
    for load in kernel.loads():
        stores = [s for s in kernel.stores if s.access.buffer == load.access.buffer]
        if load.index or len(stores) != 1 or stores[0].partial:
            continue
        (store,) = stores
        step = store.access.stride(axis)
        is_before = load.access.offset - store.access.offset + step == 0
        same = {*load.access.terms} == {*store.access.terms}
        # The first point's load is made even where there is no point: it must be masked or within
        # the buffer.
        size = buffer_of[load.access.buffer].size
        is_there = load.mask is not None or (step == 0 and isinstance(size, int) and size > 0)
        if same and is_before and is_there:
            found.append((load, store))
    return found


def stored_last(kernel: Kernel, axis: Axis, kept: Sequence[tuple[Load, Store]]) -> list[Store]:
    """Stores of `kept` to the same place at all points along the axis: the last one is enough.

    Nothing reads the others: all loads of the buffer are kept in registers.
    """
    known = {load for load, _ in kept}

    def is_last(store: Store) -> bool:
        buffer = store.access.buffer
        loads = [load for load in kernel.loads() if load.access.buffer == buffer]
        alone = store.mask is None and not store.index and store.access.stride(axis) == 0
        return alone and known.issuperset(loads)

    return [store for _, store in kept if is_last(store)]
