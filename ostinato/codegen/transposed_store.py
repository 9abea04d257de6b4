"""Store tiles whose rows, not lanes, are neighbours in memory: transposed in registers.

    rows a, b, c, d of lanes 0, 1, ..    ->    a0 b0 c0 d0 | a1 b1 c1 d1 | ..

Interleaving the even with the odd rows, recursively, brings the rows of each lane together; each
such piece is one store. A scatter writes element by element and takes several times as long. A row
may have several neighbours to store, as the positions that a convolution computes together.
"""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.codegen.expressions import Expressions
from ostinato.codegen.primitives import MEMORY
from ostinato.codegen.stores import Stores
from ostinato.codegen.writer import Value, Writer, vector
from ostinato.program.expr import ITEM_BYTES, Axis, dtype_of
from ostinato.program.kernel import Store, Tile

# Rows that a store can write at once beside sums, without spilling what is interleaved: the last
# height in `Machine.transposed_cycles`.
_MOST_ROWS = 8


def is_transposed(group: Sequence[Store], lane: Axis | None, row: Axis | None, width: int) -> bool:
    """Whether lanes are spread out in memory, and rows of these stores are neighbours."""
    if lane is None or row is None or width < 2 or any(store.partial for store in group):
        return False
    if dtype_of(group[0].value) == "bool":
        return False
    access = group[0].access
    return access.stride(lane) not in (0, 1) and access.stride(row) == len(group)


def neighbouring_rows(group: Sequence[Store], tile: Tile, rows: int) -> list[range]:
    """Group the rows of a tile into runs that are neighbours in memory."""
    assert tile.row is not None
    distance = group[0].access.stride(tile.row)
    if tile.across is None or distance == tile.breadth * len(group):
        return [range(rows)]
    return [range(n, n + tile.breadth) for n in range(0, rows, tile.breadth)]


def store_rows(
    w: Writer,
    x: Expressions,
    stores: Stores,
    group: Sequence[Store],
    rows: range,
    number: int,
    has_sums: bool,
) -> None:
    """Write vector `number` of neighbouring rows, in powers of two of neighbours.

    has_sums: whether registers hold sums, which leave less room for interleaving.
    If not all lanes of the vector exist, how many do must be known.
    """
    left = [(store, row) for row in rows for store in group]
    most = _MOST_ROWS if has_sums else len(left)
    while left:
        count = min(most, x.width, 1 << (len(left).bit_length() - 1))
        if count == 1:
            stores.store(*left[0], number)
        else:
            _store_neighbours(w, x, left[:count], number)
        left = left[count:]


def _store_neighbours(
    w: Writer, x: Expressions, neighbours: Sequence[tuple[Store, int]], number: int
) -> None:
    (first, row), count = neighbours[0], len(neighbours)
    dtype, width = dtype_of(first.value), x.width
    memory = MEMORY[dtype]
    vectors = _interleaved(w, [x.lanes(store.value, r, number) for store, r in neighbours])
    assert x.lane is not None
    step = x.size(first.access.stride(x.lane))
    place = x.addresses.of(first.access, row, number)
    piece = vector(memory, count)
    alive = width if x.masks is None else x.alive[number] or 0
    for lane in range(alive):
        source, start = divmod(lane * count, width)
        value = vectors[source]
        if count < width:
            picks = ", ".join(f"i32 {start + i}" for i in range(count))
            value = w.emit(
                piece,
                f"shufflevector {value.type} {value.text}, {value.type} poison, "
                f"<{count} x i32> <{picks}>",
            )
        w.store(value, place, ITEM_BYTES[dtype])
        place = w.pointer(place, step, memory)


def _interleaved(w: Writer, vectors: list[Value]) -> list[Value]:
    """Interleave vectors, the first lanes first: `v0[0] v1[0] .. v0[1] v1[1] ..`."""
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
