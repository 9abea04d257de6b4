"""Cuts kernels into registers: the axis the lanes run along, how many vectors and rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from ostinato.program.expr import (
    FLOATS,
    ITEM_BYTES,
    Access,
    Axis,
    Expr,
    Index,
    Load,
    constant,
    dtype_of,
    op,
    walk,
)
from ostinato.program.nodes import Kernel, Program, Tile, map_kernels
from ostinato.schedule.index_maps import (
    Affine,
    size_expr,
    split_axis,
    substitute_reduce,
    substitute_store,
)
from ostinato.sizes.dims import Size, ceildiv, exact_quotient, product


@dataclass(frozen=True)
class Registers:
    """What tiling needs to know of a machine: bytes of a vector, and how many vector registers."""

    vector_bytes: int
    count: int


# How many points an axis is taken to have when that is only known at run time, and the share of its
# lanes that is then expected to be busy: streams are stepped with few points, often one.
TYPICAL_EXTENT = 64
TYPICAL_USE = 0.5
# A load or store whose lanes are not neighbours costs about as much as this many that are.
GATHER_COST = 8
# Lanes that are spread out in memory cost less where rows are neighbours: cycles to store a vector
# of 1, 2, 4 or 8 rows that are transposed in registers first (measured).
TRANSPOSED_CYCLES = {1: 17.0, 2: 10.0, 4: 5.0, 8: 4.0}
TRANSPOSED_ROWS = max(TRANSPOSED_CYCLES)
# A panel of at most this many bytes stays in the first-level cache beside the rows it meets, or in
# the second-level cache.
PANEL_BYTES = 40 * 1024
LARGE_PANEL_BYTES = 256 * 1024
# How many rows a kernel of several sums is taken to have where only a run tells: a batch.
TYPICAL_BATCH = 16
# Several loops may compute this many times as many partial results as there are registers.
MOST_HELD = 2
# A known axis of this many rows fills the rows of a tile.
FILLING_ROWS = 4
# Weights of more bytes than this leave the second-level cache before they are read again.
CACHED_BYTES = 1 << 20
STEP_PANEL_BYTES = 32 * 1024
# Cycles to load a vector of a panel that is in the first-level cache, the second or neither: of one
# stream, and of lines that lie apart.
PACKED_CYCLES = (0.5, 1.0, 3.0)
STRIDED_CYCLES = (1.5, 2.5, 4.0)
ROW_CHOICES = (1, 2, 3, 4, 5, 6, 8)
# What the names of copies begin with that a single kernel reads.
COPY = "copy."
MORE_ROWS = (7, 10, 12, 14)
# Sums over rows of memory are added in pieces of so many, which stay in the second-level cache
# until all tiles have read them.
DEPTH = 128


def tile(program: Program, registers: Registers) -> Program:
    """Give every kernel a `Tile`, padding the axis of the lanes to whole vectors."""
    return _tiled(program, registers, lambda kernel: kernel.tile is None)


def tile_readers(program: Program, registers: Registers) -> Program:
    """Give a `Tile` to all kernels but copies, whose layout is still to follow their reader."""
    return _tiled(program, registers, lambda kernel: not kernel.name.startswith(COPY))


def _tiled(program: Program, registers: Registers, which: Callable[[Kernel], bool]) -> Program:
    def change(kernel: Kernel) -> Kernel:
        return tile_kernel(kernel, registers) if which(kernel) else kernel

    return program.with_body(map_kernels(program.body, change))


def tile_kernel(kernel: Kernel, registers: Registers) -> Kernel:
    """The kernel with its `Tile`."""
    chained = any(r.chains > 1 for r in kernel.reductions)
    candidates = _lane_axes(kernel)
    if chained or not candidates:
        return replace(kernel, tile=Tile(None, 1))
    transposition = _transposition(kernel)
    if transposition is not None:
        lane, stored = transposition
        width = lane_width(kernel, lane.extent, registers)
        return _split(kernel, lane, Tile(lane, width, row=stored, rows=TRANSPOSED_ROWS))
    lane = max(candidates, key=lambda axis: _lane_score(kernel, axis, registers))
    if _scattered(kernel, lane):
        return replace(kernel, tile=Tile(None, 1, row=lane, rows=max(ROW_CHOICES)))
    width = lane_width(kernel, lane.extent, registers)
    if kernel.reductions:
        shared = _shared_axes(kernel, lane)
        beside = _beside(kernel, lane)
        row, other = _row_axes(shared, beside)
        inside = shared if _is_large(kernel, lane) else ()
        vectors, rows, held = _block_shape(kernel, lane, row, width, registers)
    else:
        row, other, rows, inside, beside, held = None, None, 1, (), set(), None
        extent = lane.extent
        vectors = 2 if not isinstance(extent, int) or extent % (2 * width) == 0 else 1
    shape = Tile(lane, width, vectors, None, None, row, rows, None, other, inside, held=held)
    kept = _kept(kernel, lane) if row in beside and rows > 1 and width > 1 else ()
    if kept:
        shape = replace(shape, depth=DEPTH, kept=kept)
    return _split(kernel, lane, shape)


def _kept(kernel: Kernel, lane: Axis) -> tuple[int, ...]:
    """By sum, the store in whose place partial results can wait; none if there is no need.

    A place of the kernel's own that nothing else is kept in, and that is written last anyway.
    """
    loops = {reduce.axes for reduce in kernel.reductions}
    if len(loops) != 1 or any(r.combine != "sum" for r in kernel.reductions):
        return ()
    (axes,) = loops
    if len(axes) != 1 or (isinstance(axes[0].extent, int) and axes[0].extent <= DEPTH):
        return ()
    read = {load.access.buffer for load in kernel.loads()}
    found: list[int] = []
    for reduce in kernel.reductions:
        for number, store in enumerate(kernel.stores):
            plain = not store.partial and dtype_of(store.value) == reduce.dtype
            own = store.access.buffer not in read and store.access.stride(lane) == 1
            if plain and own and number not in found and reduce.dtype in FLOATS:
                found.append(number)
                break
        else:
            return ()
    return tuple(found)


def _transposition(kernel: Kernel) -> tuple[Axis, Axis] | None:
    """Lanes and rows of a kernel without sums that stores what it loads the other way round.

    Neighbours are loaded along the lanes and stored along the rows. None where some axis has
    neighbours on both sides, or where there is nothing to transpose.
    """
    long = [axis for axis in kernel.axes if typical(axis.extent) >= TRANSPOSED_ROWS]
    plain = all(dtype_of(s.value) in FLOATS and not s.partial for s in kernel.stores)
    if kernel.reductions or kernel.ordered or not plain:
        return None
    loads = [load for load in kernel.loads() if load.access.terms]
    if any(load.mask is not None or load.index for load in loads):
        return None
    loaded = [a for a in long if all(load.access.stride(a) in (0, 1) for load in loads)]
    stored = [a for a in long if all(store.access.stride(a) == 1 for store in kernel.stores)]
    lanes = [a for a in loaded if any(load.access.stride(a) == 1 for load in loads)]
    if not lanes or not stored or set(loaded) & set(stored):
        return None
    return lanes[-1], stored[-1]


def _lane_axes(kernel: Kernel) -> list[Axis]:
    """Axes that lanes may run along; where points have an order, only along neighbours in memory.

    Otherwise the steps, which wait for each other, would wait for scattered elements.
    """
    if not kernel.ordered:
        return list(kernel.axes)
    accesses = [access for access, _, _ in _accesses(kernel)]
    return [
        axis
        for axis in kernel.axes
        if axis not in kernel.ordered and all(access.stride(axis) in (0, 1) for access in accesses)
    ]


def _scattered(kernel: Kernel, lane: Axis) -> bool:
    """Whether sums over an unknown number of points would gather every element they add.

    Scalars of several rows take no longer then, and no lane is idle where there are few points.
    """
    if not kernel.reductions or isinstance(lane.extent, int) or kernel.ordered:
        return False
    inner = [a for a, weight, _ in _accesses(kernel) if weight > 1 and a.stride(lane) != 0]
    return bool(inner) and all(access.stride(lane) != 1 for access in inner)


def sums_at_once(sums: int, vectors: int, held: int | None) -> int:
    """How many of some sums, each of so many vectors, a loop computes; `held` as in `Tile`."""
    if held is None:
        return sums
    loops = -(-sums // max(1, held // vectors))
    return -(-sums // loops)


def typical(size: Size) -> int:
    """The size, or what is assumed of one that only a run tells."""
    return size if isinstance(size, int) else TYPICAL_EXTENT


def lane_width(kernel: Kernel, extent: Size, registers: Registers) -> int:
    """Lanes of a vector: a full register of the widest element type, less for short axes."""
    dtypes = {dtype_of(node) for node in walk(*kernel.expressions())}
    widest = max((ITEM_BYTES[d] for d in dtypes - {"bool"}), default=1)
    if isinstance(extent, int) and kernel.axes:
        addresses = {dtype_of(n) for n in walk(*kernel.expressions()) if not isinstance(n, Index)}
        widest = max((ITEM_BYTES[d] for d in addresses - {"bool"}), default=widest)
    width = max(1, registers.vector_bytes // max(widest, 1))
    while isinstance(extent, int) and width > 1 and width // 2 >= extent:
        width //= 2
    return width


def _accesses(kernel: Kernel) -> Iterator[tuple[Access, float, bool]]:
    """Every access with how often it happens beside one point, and whether it can be repacked."""
    inner: dict[Load, float] = {}
    for reduce in kernel.reductions:
        trips = 1.0
        for axis in reduce.axes:
            trips *= typical(axis.extent)
        for node in walk(*reduce.operands):
            if isinstance(node, Load):
                inner[node] = trips
    for load in kernel.loads():
        yield load.access, inner.get(load, 1.0), load in inner and is_packable(kernel, load)
    for store in kernel.stores:
        yield store.access, 1.0, False


def is_packable(kernel: Kernel, load: Load) -> bool:
    """Whether a reduction's operand can be laid out in the order in which it is read."""
    name = load.access.buffer
    own = {*kernel.axes, *(axis for r in kernel.reductions for axis in r.axes)}
    axes = [axis for axis, _ in load.access.terms]
    if load.mask is not None or load.index or not own.issuperset(axes):
        return False
    if name.startswith(COPY):
        return True
    return name.startswith("c") and all(isinstance(axis.extent, int) for axis in axes)


def _lane_score(kernel: Kernel, axis: Axis, registers: Registers) -> tuple[float, int]:
    """Higher is better: full vectors, and few accesses whose lanes are not neighbours."""
    width = lane_width(kernel, axis.extent, registers)
    full = max(1, registers.vector_bytes // 4)
    extent = typical(axis.extent)
    padded = -(-extent // width) * width
    used = max(extent, 1) / max(padded, 1) * min(width, full) / full
    if not isinstance(axis.extent, int):
        used *= TYPICAL_USE
    cost = 0.0
    for access, weight, packable in _accesses(kernel):
        stride = access.stride(axis)
        neighbours = stride in (0, 1) or packable
        cost += weight * (1 if neighbours else GATHER_COST)
    return used / max(cost, 1e-9), kernel.axes.index(axis)


def _loaded_by_lanes(kernel: Kernel, lane: Axis) -> dict[Load, None]:
    """What the sums load along the lanes: weights, mostly."""
    operands = [operand for r in kernel.reductions for operand in r.operands]
    loads = [node for node in walk(*operands) if isinstance(node, Load)]
    return dict.fromkeys(load for load in loads if load.access.stride(lane) != 0)


def _is_large(kernel: Kernel, lane: Axis) -> bool:
    """Whether the weights are too many to stay in a cache until they are read again."""
    size: Size = 0
    for load in _loaded_by_lanes(kernel, lane):
        extents = [axis.extent for axis, _ in load.access.terms]
        size += product(extents) * ITEM_BYTES[load.dtype]
    return isinstance(size, int) and size > CACHED_BYTES


def _shared_axes(kernel: Kernel, lane: Axis) -> tuple[Axis, ...]:
    """The parallel axes along which what is loaded by lanes does not change."""
    loads = _loaded_by_lanes(kernel, lane)
    return tuple(
        axis
        for axis in kernel.axes
        if axis != lane and loads and all(load.access.stride(axis) == 0 for load in loads)
    )


def _beside(kernel: Kernel, lane: Axis) -> set[Axis]:
    """The axes whose points read neighbours in the sums, those of the lanes aside."""
    operands = [operand for r in kernel.reductions for operand in r.operands]
    loads = [node for node in walk(*operands) if isinstance(node, Load)]
    return {a for load in loads for a in kernel.axes if a != lane and load.access.stride(a) == 1}


def _row_axes(shared: Sequence[Axis], beside: Set[Axis]) -> tuple[Axis | None, Axis | None]:
    """The longest of these axes, and the second longest if the two are only known at run time.

    beside: those along which neighbours are read come first.
    """

    # A known axis of a few rows fills tiles even where there is one point along the others.
    def preference(axis: Axis) -> tuple[bool, bool, int]:
        known = isinstance(axis.extent, int) and axis.extent >= FILLING_ROWS
        return known, axis in beside, typical(axis.extent)

    best = [*sorted(reversed(shared), key=preference, reverse=True), None, None]
    row, other = best[:2]
    if row is None or other is None or isinstance(row.extent, int) or isinstance(other.extent, int):
        return row, None
    return row, other


def _block_shape(
    kernel: Kernel, lane: Axis, row: Axis | None, width: int, registers: Registers
) -> tuple[int, int, int | None]:
    """Vectors along the lanes, rows, and `held` of a `Tile`.

    By estimated cycles for each accumulated vector.
    """
    groups: dict[tuple[Axis, ...], int] = {}
    for reduce in kernel.reductions:
        groups[reduce.axes] = groups.get(reduce.axes, 0) + 1
    total, largest = len(kernel.reductions), max(groups.values())
    depth = max(typical(product([axis.extent for axis in axes])) for axes in groups)
    in_pieces = row is not None and row in _beside(kernel, lane) and bool(_kept(kernel, lane))
    depth = DEPTH if in_pieces else depth
    budget = registers.count * 3 // 4
    needed = -(-typical(lane.extent) // width)
    row_limit = typical(row.extent) if row is not None else 1
    known = row is not None and isinstance(row.extent, int)
    load_cycles = PACKED_CYCLES if _reads_one_stream(kernel, lane) else STRIDED_CYCLES
    shared = 1 if row is None else _row_loads(kernel, lane, row)
    slides = row is not None and _slides(kernel, row)
    # A scatter keeps its addresses in two vectors.
    scatters = row is not None and any(
        s.access.stride(lane) not in (0, 1) and s.access.stride(row) != 1 for s in kernel.stores
    )
    addresses = 2 if scatters else 0

    def cycles(rows: int, vectors: int, held: int | None) -> float:
        """For each step of the sums of one tile."""
        panel = largest * vectors * registers.vector_bytes * depth
        level = max(in_pieces, (panel > PANEL_BYTES) + (panel > LARGE_PANEL_BYTES))
        vector_cost = 0.5 if row_limit == 1 else load_cycles[level]
        sums = sums_at_once(largest, rows * vectors, held)
        loops = -(-largest // sums)
        loads = sums * vectors * vector_cost + rows * -(-shared // loops) * 0.5
        products = sums * vectors * rows
        stores = vectors * _store_cycles(kernel, lane, row, rows)
        return loops * (max(products / 2, loads, 4.0) + 0.25 * loads) + stores / max(depth, 1)

    def fits(rows: int, vectors: int, held: int | None) -> bool:
        """Whether what a loop computes stays in registers."""
        accumulators = total * rows * vectors
        if held is not None:
            sums = sums_at_once(total, rows * vectors, held)
            few = accumulators <= MOST_HELD * registers.count
            return few and sums < total and sums * rows * vectors <= held
        # Elements of rows that lie beside each other need no registers for their addresses.
        if accumulators > max(registers.count - 4 if in_pieces else budget, total):
            return False
        # Several sums of a row read its elements several times: they stay in registers.
        if total > 1 and rows > 1 and accumulators + largest * vectors + rows > registers.count:
            return False
        # What neighbouring rows share stays in registers beside the accumulators.
        taken = rows * vectors + vectors + rows + addresses
        return not slides or taken <= registers.count or rows * vectors == 1

    several = row is not None and total > 1 and len(groups) == 1
    # Where only a run tells, a step of several sums is that of a batch.
    batch = row_limit if known else min(row_limit, TYPICAL_BATCH)
    best: tuple[int, int, int | None] = (1, 1, None)
    best_cost = float("inf")
    for rows, vectors, held in itertools.product(
        (*ROW_CHOICES, *(MORE_ROWS if known and total == 1 else ())),
        range(1, min(needed, budget) + 1),
        (None, registers.count // 2) if several else (None,),
    ):
        if rows > row_limit or not fits(rows, vectors, held):
            continue
        each = cycles(rows, vectors, held) / rows
        if known or several:
            tiles = _row_tiles(batch, rows, known)
            each = sum(count * cycles(size, vectors, held) for count, size in tiles) / batch
        padding = -(-needed // vectors) * vectors / needed
        # A single row meets each panel once in a step: panels that fit the cache can still be
        # there in the next one.
        panel = largest * vectors * registers.vector_bytes * depth
        excess = panel / STEP_PANEL_BYTES - 1 if row_limit == 1 else 0.0
        evicted = 1 + min(0.75 * max(excess, 0.0), 1.0)
        cost = each / vectors * padding * evicted
        if cost < best_cost - 1e-9:
            best, best_cost = (vectors, rows, held), cost
    return best


def _row_tiles(extent: int, rows: int, known: bool) -> list[tuple[int, int]]:
    """How many tiles of how many rows; what is left of a known extent is one tile."""
    found: list[tuple[int, int]] = []
    for size in (rows,) if known else (rows, *(n for n in (4, 2, 1) if n < rows)):
        found.append((extent // size, size))
        extent %= size
    return [*found, (1, extent)] if extent else found


def _row_loads(kernel: Kernel, lane: Axis, row: Axis) -> int:
    """How many elements each row loads in a step of the sums that run together, for all lanes."""
    counts: dict[tuple[Axis, ...], dict[Load, None]] = {}
    for reduce in kernel.reductions:
        for node in walk(*reduce.operands):
            if isinstance(node, Load) and node.access.stride(lane) == 0 != node.access.stride(row):
                counts.setdefault(reduce.axes, {})[node] = None
    return max((len(loads) for loads in counts.values()), default=1)


def _reads_one_stream(kernel: Kernel, lane: Axis) -> bool:
    """Whether all that lanes load in the sums can be packed."""
    inner = [n for r in kernel.reductions for n in walk(*r.operands) if isinstance(n, Load)]
    return all(is_packable(kernel, n) for n in inner if n.access.stride(lane) != 0)


def _slides(kernel: Kernel, row: Axis) -> bool:
    """Whether a row reads what the next one reads some steps later: a window that moves."""
    for reduce in kernel.reductions:
        last = reduce.axes[-1]
        for node in walk(*reduce.operands):
            if not isinstance(node, Load):
                continue
            moved = exact_quotient(node.access.stride(row), node.access.stride(last))
            known = isinstance(moved, int) and isinstance(last.extent, int)
            if known and 0 < abs(moved) < last.extent:  # type: ignore[arg-type, operator]
                return True
    return False


def _store_cycles(kernel: Kernel, lane: Axis, row: Axis | None, rows: int) -> float:
    """Cycles beyond one store each, for one vector of every row."""
    total = 0.0
    for store in kernel.stores:
        if store.access.stride(lane) in (0, 1):
            continue
        left = rows
        while left:
            count = min(8, 1 << (left.bit_length() - 1))
            beside = row is not None and store.access.stride(row) == 1
            total += count * TRANSPOSED_CYCLES[count if beside else 1]
            left -= count
    return total


def _split(kernel: Kernel, lane: Axis, shape: Tile) -> Kernel:
    """Split the lanes off their axis, and guard the points that padding adds."""
    group = shape.width * shape.vectors
    extent = lane.extent
    if extent == group:
        return replace(kernel, tile=replace(shape, lane=lane))
    inner = Axis(f"{lane.name}v", group)
    exact = isinstance(extent, int) and extent > 0 and extent % group == 0
    limit = None if exact else extent
    if isinstance(extent, int) and extent < group:
        return _padded(kernel, lane, inner, replace(shape, lane=inner, limit=limit))
    outer = Axis(f"{lane.name}o", ceildiv(extent, group))
    point: Expr = op("mul", Index(outer), constant(group, "int64"))
    guard = None if exact else op("lt", op("add", point, Index(inner)), size_expr(extent))
    divided = split_axis(kernel, lane, outer, inner, guard)
    return replace(divided, tile=replace(shape, lane=inner, block=outer, limit=limit))


def _padded(kernel: Kernel, lane: Axis, inner: Axis, shape: Tile) -> Kernel:
    image = {lane: Affine(0, ((inner, 1),))}
    return replace(
        kernel,
        axes=tuple(inner if axis == lane else axis for axis in kernel.axes),
        reductions=tuple(substitute_reduce(r, image) for r in kernel.reductions),
        stores=tuple(substitute_store(s, image) for s in kernel.stores),
        guard=op("lt", Index(inner), size_expr(lane.extent)),
        tile=shape,
    )
