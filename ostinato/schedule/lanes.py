"""The cost of running lanes along an axis: how full vectors are, how far apart lanes load."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import gcd

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import (
    ITEM_BYTES,
    Access,
    Axis,
    Expr,
    Index,
    Load,
    Reduced,
    children,
    dtype_of,
    walk,
)
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Buffer
from ostinato.schedule.operands import (
    accesses,
    filling_stores,
    is_packable,
    loaded_by_lanes,
    reads_rows,
    shared_axes,
    typical,
)
from ostinato.schedule.shapes import Shape
from ostinato.sizes.dims import Size, product

# The expected share of busy lanes where only a run tells the number of points: streams are stepped
# with few, often one.
_TYPICAL_USE = 0.5
# The cost of loads and stores whose lanes lie two apart, or backwards, in loads of neighbours: two
# vectors and a shuffle.
CLOSE = (-1, 2, -2)
_CLOSE_LOADS = 3
# The cost of one lane that is loaded from a place of its own, in vector loads, where another axis
# would load the lanes together. Trees over 1,000 rows take a fifth of the time along rows
# (`leaf_sums`, 62 nodes).
_MOVED_LOADS = 2
# Sums over windows with up to this many taps, whose lanes lie two elements apart, are unrolled.
# Depthwise 3 x 3 filters take 0.65 of the time so, 5 x 5 0.74 (`benchmarks.versions --onnx`).
MOST_TAPS = 7
# The ways of a second-level cache: how many lines it holds whose addresses differ by multiples of
# its size over this number. 16 on Sapphire Rapids, 20 on Ice Lake (`lscpu -C`); the least is taken.
_CACHE_WAYS = 16
# Wider elements have fewer lanes than floats.
_WORD_BYTES = 4


def lane_width(kernel: Kernel, lane: Axis, machine: Machine) -> int:
    """Lanes of a vector: a full register of the widest element type, less for short axes.

    An operand that all lanes share, such as the row that an index chooses, stays a scalar.
    """
    extent = lane.extent
    nodes: Iterable[Expr] = kernel.nodes
    if isinstance(extent, int) and kernel.axes:
        nodes = [node for node in nodes if not isinstance(node, Index)] or nodes
    widest = _widest(nodes)
    if widest > _WORD_BYTES:
        widest = _widest(_in_lanes(kernel, lane).intersection(nodes)) or widest
    width = max(1, machine.vector_bytes // max(widest, 1))
    while isinstance(extent, int) and width > 1 and width // 2 >= extent:
        width //= 2
    return width


def _widest(nodes: Iterable[Expr]) -> int:
    """Bytes of the largest elements; 0 where all are truth values."""
    dtypes = {dtype_of(node) for node in nodes}
    return max((ITEM_BYTES[d] for d in dtypes - {"bool"}), default=0)


def _in_lanes(kernel: Kernel, lane: Axis) -> set[Expr]:
    """The expressions with an element in each lane: varying ones, and operands spread over them."""
    own: set[Expr] = set()
    spread = {store.value for store in kernel.stores}
    for node in walk(*kernel.expressions()):
        axes: Iterable[Axis] = ()
        if isinstance(node, Load):
            axes = (axis for axis, _ in node.access.terms)
        elif isinstance(node, Index):
            axes = (node.axis,)
        if isinstance(node, Reduced) or lane in axes or not own.isdisjoint(children(node)):
            own.add(node)
            if not isinstance(node, Load):
                spread.update(children(node))
    return own | spread


def lane_score(
    kernel: Kernel, axis: Axis, machine: Machine, buffers: Mapping[str, Buffer]
) -> tuple[float, int]:
    """Higher is better for lanes: full vectors, few accesses whose lanes are not neighbours."""
    width = lane_width(kernel, axis, machine)
    full = max(1, machine.vector_bytes // 4)
    extent = typical(axis.extent)
    padded = -(-extent // width) * width
    used = max(extent, 1) / max(padded, 1) * min(width, full) / full
    if not isinstance(axis.extent, int):
        used *= _TYPICAL_USE
    cost, filling = 0.0, filling_stores(kernel, axis)
    moved = _moved_costs(kernel, axis, machine)
    for access, weight, load in accesses(kernel):
        packable = load is not None and is_packable(kernel, load, buffers)
        stride = access.stride(axis)
        if access in moved:
            cost += weight * moved[access]
        elif stride in (0, 1) or packable:
            cost += weight
        elif load is None and access in filling:
            cost += weight * loads_to_fill(filling[access])
        else:
            cost += weight * (_CLOSE_LOADS if stride in CLOSE else machine.gather_loads)
    return used / max(cost, 1e-9), kernel.axes.index(axis)


def _moved_costs(kernel: Kernel, axis: Axis, machine: Machine) -> dict[Access, float]:
    """The cost of loads whose lanes are loaded one by one, in loads of neighbours."""
    width, full = lane_width(kernel, axis, machine), max(1, machine.vector_bytes // 4)
    moved = [load for load in kernel.loads() if is_moved(load, axis)]
    costs = {load.access: machine.gather_loads * min(width, full) / full for load in moved}
    for other in kernel.axes if moved else ():
        if other != axis and _is_smooth(kernel, other):
            together = (load.access for load in moved if not is_moved(load, other))
            costs.update(dict.fromkeys(together, float(_MOVED_LOADS * width)))
    return costs


def _is_smooth(kernel: Kernel, axis: Axis) -> bool:
    """Whether all loads and stores along an axis access neighbours, or one element.

    Loads from computed places aside.
    """
    # That costs as many loads as there are points: rows of two numbers take 1.3 of the time so.
    if isinstance(axis.extent, int) and axis.extent <= _MOVED_LOADS:
        return False
    moved = {load.access for load in kernel.loads() if is_moved(load, axis)}
    found = (access for access, _, _ in accesses(kernel) if access not in moved)
    return all(access.stride(axis) in (0, 1) for access in found)


def is_moved(load: Load, axis: Axis) -> bool:
    """Whether the computed places of a load, or its mask, vary along an axis."""
    if not load.index:
        return False
    roots = [place for place, _ in load.index]
    return any(
        node.access.stride(axis) != 0 if isinstance(node, Load) else node == Index(axis)
        for node in walk(*roots, *([] if load.mask is None else [load.mask]))
        if isinstance(node, Load | Index)
    )


def loads_to_fill(count: int) -> int:
    """The cost in loads of one of 2^n stores that fill memory, with its n shuffles."""
    return count.bit_length()


def is_far(kernel: Kernel, lane: Axis, shared: Sequence[Axis], machine: Machine) -> bool:
    """Whether the weights are too large to stay in a cache until points along `shared` read them.

    Where it is known how many tiles read them, they are prefetched if the machine can, which pays
    for fewer.
    """
    is_known = bool(shared) and all(isinstance(axis.extent, int) for axis in shared)
    most = machine.panel_bytes if is_known and machine.fetches else machine.far_bytes
    size: Size = 0
    for load in loaded_by_lanes(kernel, lane):
        extents = [axis.extent for axis, _ in load.access.terms]
        size += product(extents) * ITEM_BYTES[load.dtype]
    return isinstance(size, int) and size > most


def cycles_apart(
    kernel: Kernel,
    lane: Axis,
    shape: Shape,
    width: int,
    machine: Machine,
    buffers: Mapping[str, Buffer],
) -> float:
    """Stall cycles of the sums where their loads alternate between too many pages to be prefetched.

    Such as channels whose neighbours are times, of a signal that is longer than a cache.
    """
    shared = shared_axes(kernel, lane)
    groups = -(-typical(lane.extent) // (width * shape.vectors))
    tiles = -(-typical(product([axis.extent for axis in shared])) // shape.rows)
    is_far_away = is_far(kernel, lane, shared, machine)
    in_pieces = reads_rows(kernel, lane)
    summed = kernel.summed_axes
    lines = 0.0
    for load in kernel.summed:
        if is_packable(kernel, load, buffers):
            continue
        item, again = ITEM_BYTES[load.dtype], 1
        if load.access.stride(lane) == 0:
            again = groups if is_far_away else 1
        elif not in_pieces and evict_each_other(load.access, item, summed, machine):
            again = tiles
        size = buffers[load.access.buffer].size
        lines += lines_apart(load.access, size, item, summed, machine) * again
    return lines * machine.apart_cycles


def evict_each_other(access: Access, item: int, summed: Collection[Axis], machine: Machine) -> bool:
    """Whether lines that a sum reads one after the other evict each other from a cache.

    Each tile then reads them from further away again, however few they are: 1600 rows of 4 KiB, of
    which lanes read two lines, take twice the time of a copy of these lines.
    """
    way = machine.second_level_bytes // _CACHE_WAYS
    return any(
        axis in summed
        and isinstance(stride, int)
        and isinstance(axis.extent, int)
        and axis.extent * gcd(stride * item, way) > machine.second_level_bytes
        for axis, stride in access.terms
    )


def lines_apart(
    access: Access, size: Size, item: int, by_turns: Collection[Axis], machine: Machine
) -> float:
    """Count the lines of an access that alternates between more pages than are prefetched; else 0.

    size: elements of the buffer, of `item` bytes. by_turns: the innermost axes.
    """
    reached = typical(product([axis.extent for axis, _ in access.terms]))
    count = min(reached, typical(size)) * item
    apart = [
        axis.extent
        for axis, step in access.terms
        if axis in by_turns and typical(step) * item >= machine.page_bytes
    ]
    is_near = count <= machine.second_level_bytes
    if is_near or typical(product(apart)) <= machine.followed_pages:
        return 0.0
    return count / LINE_BYTES


def cycles_of_lanes(stride: Size, machine: Machine) -> float:
    """Cycles to load a vector whose lanes lie `stride` elements apart."""
    if stride == 1:
        return machine.load_cycles
    close = _CLOSE_LOADS * machine.load_cycles
    return close if stride in CLOSE else dict(machine.transposed_cycles)[1]


def cycles_of_taps(load: Load, lane: Axis, taps: Axis, machine: Machine) -> float:
    """Cycles to load the lanes of one tap of a window, where taps share what they load.

    Lanes two elements apart take three vectors for all taps together, and a shuffle for each.
    """
    stride, count = load.access.stride(lane), taps.extent
    if stride != 2 or load.access.stride(taps) != 1 or not isinstance(count, int) or count < 2:
        return cycles_of_lanes(stride, machine)
    together = count if count <= MOST_TAPS else 2
    return machine.load_cycles * (1 + _CLOSE_LOADS / together)
