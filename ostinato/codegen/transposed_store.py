"""Stores of a tile whose rows, not lanes, are neighbours in memory: transposed in registers.

    rows a, b, c, d of lanes 0, 1, ..    ->    a0 b0 c0 d0 | a1 b1 c1 d1 | ..

Interleaving the even with the odd rows, recursively, brings the rows of each lane together; each
such piece is one store. A scatter writes element by element and takes several times as long.
"""

from __future__ import annotations

from ostinato.codegen.expressions import Expressions
from ostinato.codegen.primitives import MEMORY
from ostinato.codegen.stores import Stores
from ostinato.codegen.writer import Value, Writer, vector
from ostinato.program.expr import ITEM_BYTES, Axis, dtype_of
from ostinato.program.nodes import Store, Tile

# As many rows as a store can write at once without spilling what is interleaved: the last height
# in `Machine.transposed_cycles`.
MOST_ROWS = 8


def is_transposed(store: Store, lane: Axis | None, row: Axis | None, width: int) -> bool:
    """Whether lanes are spread out in memory, and rows are neighbours."""
    if lane is None or row is None or width < 2 or store.partial:
        return False
    if dtype_of(store.value) == "bool":
        return False
    stride = store.access.stride(lane)
    return stride not in (0, 1) and store.access.stride(row) == 1


def neighbouring_rows(store: Store, tile: Tile, rows: int) -> list[range]:
    """The rows of a tile in runs that are neighbours in memory."""
    assert tile.row is not None
    if tile.across is None or store.access.stride(tile.row) == tile.breadth:
        return [range(rows)]
    return [range(n, n + tile.breadth) for n in range(0, rows, tile.breadth)]


def store_rows(
    w: Writer, x: Expressions, stores: Stores, store: Store, rows: range, number: int
) -> None:
    """Write vector `number` of neighbouring rows, in groups of powers of two."""
    while rows:
        count = min(MOST_ROWS, x.width, 1 << (len(rows).bit_length() - 1))
        if count == 1:
            stores.store(store, rows[0], number)
        else:
            _store_group(w, x, store, rows[:count], number)
        rows = rows[count:]


def _store_group(w: Writer, x: Expressions, store: Store, rows: range, number: int) -> None:
    dtype, width, count = dtype_of(store.value), x.width, len(rows)
    memory = MEMORY[dtype]
    vectors = _interleaved(w, [x.lanes(store.value, row, number) for row in rows])
    assert x.lane is not None
    step = x.size(store.access.stride(x.lane))
    place = x.address(store.access, rows[0], number)
    piece = vector(memory, count)
    for lane in range(width):
        source, start = divmod(lane * count, width)
        value = vectors[source]
        if count < width:
            picks = ", ".join(f"i32 {start + i}" for i in range(count))
            value = w.emit(
                piece,
                f"shufflevector {value.type} {value.text}, {value.type} poison, "
                f"<{count} x i32> <{picks}>",
            )
        w.line(f"store {piece} {value.text}, ptr {place.text}, align {ITEM_BYTES[dtype]}")
        place = w.pointer(place, step, memory)


def _interleaved(w: Writer, vectors: list[Value]) -> list[Value]:
    """All elements, those of the first lane first: `v0[0] v1[0] .. v0[1] v1[1] ..`."""
    if len(vectors) == 1:
        return vectors
    even, odd = _interleaved(w, vectors[::2]), _interleaved(w, vectors[1::2])
    return [half for a, b in zip(even, odd, strict=True) for half in _zipped(w, a, b)]


def _zipped(w: Writer, a: Value, b: Value) -> list[Value]:
    width = int(a.type.split()[0][1:])
    halves = []
    for start in (0, width // 2):
        picks = ", ".join(f"i32 {start + i // 2 + (i % 2) * width}" for i in range(width))
        text = f"shufflevector {a.type} {a.text}, {b.type} {b.text}, <{width} x i32> <{picks}>"
        halves.append(w.emit(a.type, text))
    return halves
