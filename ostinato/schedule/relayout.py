"""Copy operands first that lanes of a sum would gather, or that many rows share.

    y[i, j] = sum_k q[i, k] b[j, k]           c[k, j] = b[j, k]
                                        =>    y[i, j] = sum_k q[i, k] c[k, j]

Lanes along `j` would gather each element of `b` once for each `i`. The copy gathers it once. Where
only a run tells how many `i` there are, it decides by their number. Operands that the steps of a
loop do not change are copied once before it. Only its kernel reads such a copy, so `pack` can give
it any layout: so a copy may pay even where lanes find neighbours, if every row would read them from
places far apart. Constants of narrow types that many rows would widen again are widened in such a
copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import replace

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Expr, Load, dtype_of, walk
from ostinato.program.kernel import Kernel, Store, map_expressions
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Loop,
    Program,
    Stmt,
    bodies,
    map_kernels,
    with_bodies,
)
from ostinato.records import dataclass
from ostinato.schedule.decisions import decided
from ostinato.schedule.operands import DEPTH, is_packable, typical
from ostinato.schedule.transposes import MOST_TURNED_ROWS, is_turned
from ostinato.sizes.dims import Size, is_nonnegative, minimum, product

# Half of a vector of the longest registers: lanes along shorter axes are mostly idle.
_LEAST_LANES = 8
# A copy pays if each of its elements is read at least so often: where lanes gather, which then
# takes as long as the copy, where they transpose what they load in registers (two tiles of rows
# take 0.96 of the time without one), and where they find neighbours and only lines are saved. These
# are more where the operand stays in the second-level cache, and more again where its rows are so
# near that several lie in a page. The products of `benchmarks.bench_micro` with weights that are
# inputs, made longer and shorter, say so, and its convolutions of one place.
LEAST_USES = 4
LEAST_TURNED_USES = 2 * MOST_TURNED_ROWS + 1
LEAST_FAR_USES, LEAST_SHARED_USES, LEAST_NEAR_USES = 64, 128, 512
_NEAR_BYTES = 1024
# The same where terms lie whole pages apart: all of them have one place in each way of the
# first-level cache, and are gone when the next rows read them. Filters of 1 x 1 over 16 to 256
# channels of 32 x 32 to 128 x 128 pixels take 0.65 to 0.99 of the time with AVX2, with 16 of them
# or more, 8 of them 1.07 (models of one layer, with and without the copy in turns, and row
# `conv2d_64to64_k1x1_32x32` of `benchmarks.versions`).
LEAST_EVICTED_USES = 16
# The same where terms begin anywhere in a line, so that half of the vectors lie in two of them, as
# those of 16 bytes do not: 64 filters over 64 channels of 31 x 31, 50 x 50, 57 x 57 and 75 x 75
# pixels take 0.76 to 0.97 of the time with AVX2, 16 of them over 31 x 31 1.13 (likewise).
LEAST_CROSSING_USES = 64
# Where pieces of a long sum take rows of an input as they are, which begin anywhere, vectors lie in
# two lines. A copy pays if this many rows read each element, and these have this many lanes:
# gradients of 128 x 128, 512 x 128 and 128 x 512 weights take 0.7 to 0.9 of the time with one, over
# 100 steps and over 1600; of 64 x 256 weights 1.05, of 128 x 64 weights 1.1.
LEAST_SPLIT_USES = LEAST_SPLIT_LANES = 128
# Vectors of lanes in tiles of such sums.
_LANE_VECTORS = 2
# A copy of widened weights, a panel of it where the whole does not fit the cache, pays if this many
# rows save the widening: bytes and fields, the same where the copy leaves the second-level cache,
# and 16-bit floats, which take one instruction. Products of 128 x 128 to 1024 x 1024 weights
# (`benchmarks.versions --onnx`, files of `ostinato quantize`) with 36 to 63 rows of bytes run 1.07
# to 1.2 times as fast with AVX-512, 1.1 to 1.25 with AVX2, and with 64 to 100 rows of 16-bit floats
# 0.8 to 1.0 times as fast.
LEAST_WIDENED_USES, LEAST_FAR_WIDENED_USES, LEAST_CONVERTED_USES = 32, 64, 128
# How far apart rows of an operand may lie that a sum reads one after the other: those that lanes
# run along, and others. `DEPTH` rows of this length still leave room for each other in a
# second-level cache of 16 ways; fitted to the gradients of weights in `benchmarks.bench_training`.
# A copy of longer rows pays if this many lanes read each element: a gradient of 4096 x 64 weights
# over 1600 rows takes half of the time without.
_LANES_APART_BYTES = 3 * 1024
_ROWS_APART_BYTES = 2 * 1024
_LEAST_TRANSPOSED_USES = 256


@dataclass(frozen=True)
class _Operands:
    """Operands of sums to be copied for lanes along an axis: loads, or widened constants.

    uses: how often each element is read at least; `least`: how often it must be.
    """

    lane: Axis
    values: tuple[Expr, ...]
    uses: Size
    least: int


def relayout(program: Program, machine: Machine) -> Program:
    """Copy operands that lanes of reductions would gather, or rows read from places far apart."""
    buffers = dict(program.buffers)
    body = _Relayout(buffers, machine).body(program.body)
    return program.with_body(body, buffers)


class _Relayout:
    """Replaces kernels by copies and the kernels that read them; `buffers` gets those of copies."""

    def __init__(self, buffers: dict[str, Buffer], machine: Machine) -> None:
        self._buffers, self._machine = buffers, machine

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for statement in body:
            if isinstance(statement, Branch):
                result.append(with_bodies(statement, self.body))
            elif isinstance(statement, Kernel):
                result += self._alone(statement)
            elif isinstance(statement, Loop):
                result += self._steps(statement)
            else:
                result.append(statement)
        return tuple(result)

    def _alone(self, kernel: Kernel, around: tuple[Axis, ...] = ()) -> list[Stmt]:
        """The copies for a kernel, and the kernel; a run may decide between the two ways.

        around: the axes of the loops around it, in whose steps the copies are made again.
        """
        found = self._operands(kernel, around=around)
        if found is None:
            return self._before(kernel, self._widened(kernel))
        *before, reader = self._before(kernel, found)
        if isinstance(reader, Kernel):
            return [*before, *self._before(reader, self._widened(reader))]
        return [*before, reader]

    def _before(self, kernel: Kernel, found: _Operands | None) -> list[Stmt]:
        """Copies of the operands found, and the kernel, which reads them; a run may decide."""
        if found is None:
            return [kernel]
        copies, reader = _copied(kernel, found, self._buffers)
        if is_nonnegative(found.uses - found.least):
            return [*copies, reader]
        many = (*copies, reader)
        return decided(kernel, "copies", found.uses, found.least, many, self._buffers)

    def _steps(self, loop: Loop, around: tuple[Axis, ...] = ()) -> list[Stmt]:
        """Copies of operands that no step changes, and the loop, which reads them.

        around: the axes of the loops around it, which have one point each.
        """
        before: list[Stmt] = []
        changing = loop.writes()

        def change(kernel: Kernel) -> Kernel:
            found = self._operands(kernel, changing, loop.axis.extent, around)
            if found is None and kernel.sizes.isdisjoint(changing):
                # Only the rows of one step count: steps of a single row are bound by narrow
                # weights.
                found = self._widened(kernel)
                few = found is not None and not is_nonnegative(found.uses - found.least)
                found = None if few else found
            if found is None:
                return kernel
            copies, reader = _copied(kernel, found, self._buffers)
            before.extend(copies)
            return reader

        def inside(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            result: list[Stmt] = []
            for statement in body:
                if isinstance(statement, Loop):
                    result += self._steps(statement, (*around, loop.axis))
                elif isinstance(statement, Kernel) and loop.is_independent:
                    result += self._alone(statement, (*around, loop.axis))
                else:
                    result.append(
                        with_bodies(statement, inside) if bodies(statement) else statement
                    )
            return tuple(result)

        body = inside(map_kernels(loop.body, change))
        return [*before, replace(loop, body=body)]

    def _operands(
        self,
        kernel: Kernel,
        changing: Set[str] | None = None,
        trips: Size = 1,
        around: tuple[Axis, ...] = (),
    ) -> _Operands | None:
        """Choose what to copy for a kernel; None where nothing pays.

        changing, trips: of a kernel in a loop, what the steps change, and how many there are.
        around: the axes of the loops around that one.
        """
        if (
            kernel.ordered
            or kernel.guard is not None
            or any(r.chains > 1 for r in kernel.reductions)
        ):
            return None
        if changing is not None and not kernel.sizes.isdisjoint(changing):
            return None
        inner = [x for x in kernel.summed if not is_packable(kernel, x, self._buffers)]
        crosswise: tuple[Axis, tuple[Load, ...]] | None = None
        suited = False
        for lane in kernel.axes:
            if typical(lane.extent) < _LEAST_LANES:
                continue
            across = tuple(load for load in inner if load.access.stride(lane) not in (0, 1))
            stored = all(store.access.stride(lane) in (0, 1) for store in kernel.stores)
            if across:
                if stored and all(
                    _is_movable(kernel, x, self._buffers, changing, around) for x in across
                ):
                    crosswise = lane, across
                continue
            movable = [
                x
                for x in inner
                if stored and _is_movable(kernel, x, self._buffers, changing, around)
            ]
            found = self._shared(kernel, lane, movable, trips)
            if found is not None:
                return found
            suited = True
        if suited or crosswise is None:
            return None
        uses = least_uses(kernel, crosswise[1]) * trips
        # Rows of a tile share what is transposed; steps of a loop do not.
        turned = trips == 1 and is_turned(kernel, crosswise[0], self._machine, self._buffers)
        least = LEAST_TURNED_USES if turned else LEAST_USES
        few = isinstance(uses, int) and uses < least
        return None if few else _Operands(*crosswise, uses, least)

    def _is_split(self, kernel: Kernel, load: Load) -> bool:
        """Whether vectors of rows lie in two lines, or lines evict each other and tiles wait.

        Only what a caller gives need not begin at a line. A term takes lines of both operands from
        the second-level cache, which tiles of few registers do not hide: a gradient of 512 x 128
        weights over 1600 rows takes 0.82 of the time with a copy on Zen 3.
        """
        if self._buffers[load.access.buffer].kind == "input":
            return True
        (summed,) = kernel.reductions[0].axes
        apart = load.access.stride(summed)
        if not isinstance(apart, int):
            return False
        machine, item = self._machine, ITEM_BYTES[load.dtype]
        lines = (1 + _LANE_VECTORS) * machine.strided_cycles[1]
        waits = lines > machine.accumulators * machine.fma_cycles
        return waits and not machine.lines_stay(DEPTH, apart * item)

    def _widened(self, kernel: Kernel) -> _Operands | None:
        """Constants that the rows of a sum would widen often, one operand of each product."""
        if kernel.ordered or kernel.guard is not None:
            return None
        own = kernel.own_axes
        found: list[Expr] = []
        for value in dict.fromkeys(kernel.operands):
            loads = [node for node in walk(value) if isinstance(node, Load)]
            constants = [self._buffers[load.access.buffer].kind == "constant" for load in loads]
            plain = all(load.mask is None and not load.index for load in loads)
            widens = any(ITEM_BYTES[x.dtype] < ITEM_BYTES[dtype_of(value)] for x in loads)
            if loads and all(constants) and plain and widens and own.issuperset(_axes(value)):
                found.append(value)
        lanes = [axis for axis in kernel.axes if any(axis in _axes(value) for value in found)]
        if not found or not lanes or any(r.chains > 1 for r in kernel.reductions):
            return None
        uses = least_uses(kernel, found)
        least = max(_least_widened_uses(value, self._machine) for value in found)
        lane = max(lanes, key=lambda axis: typical(axis.extent))
        few = isinstance(uses, int) and uses < least
        return None if few else _Operands(lane, tuple(found), uses, least)

    def _shared(
        self, kernel: Kernel, lane: Axis, loads: Sequence[Load], trips: Size
    ) -> _Operands | None:
        """Operands that are read often, line by line from places far apart, if they are large.

        Along axes other than the lanes' they do not change, or are neighbours along one of them,
        forwards or backwards, and not along the sum: in the copy the sum then runs along
        neighbours.
        """
        found: list[Load] = []
        reads_rows = _reads_rows(kernel, lane, loads, self._machine)
        if reads_rows:
            is_long = typical(lane.extent) >= LEAST_SPLIT_LANES
            loads = [
                load
                for load in loads
                if is_long and load.access.stride(lane) == 1 and self._is_split(kernel, load)
            ]
        for load in loads:
            size = _bytes(kernel, load)
            varied = [axis for axis in kernel.axes if load.access.stride(axis) != 0]
            panel = varied == [lane]
            row = len(varied) == 1 and not panel and load.access.stride(varied[0]) in (1, -1)
            if (panel or row) and not is_nonnegative(self._machine.resident_bytes - 1 - size):
                found.append(load)
        if not found:
            return None
        uses = least_uses(kernel, found) * trips
        # Operands of several sums share the cache.
        total = sum((_bytes(kernel, load) for load in found), start=0)
        is_far = not is_nonnegative(self._machine.second_level_bytes - 1 - total)
        least = min(_least_shared_uses(kernel, lane, load, is_far, self._machine) for load in found)
        least = LEAST_SPLIT_USES if reads_rows else least
        few = isinstance(uses, int) and uses < least
        return None if few else _Operands(lane, tuple(found), uses, least)


def _least_shared_uses(
    kernel: Kernel, lane: Axis, load: Load, is_far: bool, machine: Machine
) -> int:
    """How often each element must be read so that a copy pays that only saves lines.

    is_far: whether the copied operand exceeds the second-level cache.
    """
    item = ITEM_BYTES[load.dtype]
    terms = [
        (axis, stride * item) for axis, stride in load.access.terms if axis in kernel.summed_axes
    ]
    apart = [stride for _, stride in terms]
    places = machine.first_level_bytes // machine.page_bytes
    is_long = is_nonnegative(product([axis.extent for axis, _ in terms]) - 1 - places)
    if is_long and all(isinstance(n, int) and n % machine.page_bytes == 0 for n in apart):
        return LEAST_EVICTED_USES
    crosses = any(isinstance(n, int) and n > _NEAR_BYTES and n % LINE_BYTES for n in apart)
    if crosses and 2 * machine.vector_bytes >= LINE_BYTES:
        return LEAST_CROSSING_USES
    if is_far or load.access.stride(lane) == 0:
        return LEAST_FAR_USES
    is_near = all(isinstance(n, int) and abs(n) <= _NEAR_BYTES for n in apart)
    return LEAST_NEAR_USES if is_near else LEAST_SHARED_USES


def _least_widened_uses(value: Expr, machine: Machine) -> int:
    """How often each element must be read so that a copy of widened constants pays."""
    loads = [node for node in walk(value) if isinstance(node, Load)]
    converted = {"bfloat16", "float16"} if machine.converts_halves else {"bfloat16"}
    if all(load.dtype in converted for load in loads):
        return LEAST_CONVERTED_USES
    size = product([axis.extent for axis in _axes(value)]) * ITEM_BYTES[dtype_of(value)]
    stays = is_nonnegative(machine.second_level_bytes - 1 - size)
    return LEAST_WIDENED_USES if stays else LEAST_FAR_WIDENED_USES


def _bytes(kernel: Kernel, load: Load) -> Size:
    """Bytes of an operand that points and sums of the kernel read."""
    own = kernel.own_axes
    read = [axis.extent for axis, _ in load.access.terms if axis in own]
    return product(read) * ITEM_BYTES[load.dtype]


def _reads_rows(kernel: Kernel, lane: Axis, loads: Sequence[Load], machine: Machine) -> bool:
    """Whether a long sum reads one short row of each operand after the other.

    Pieces of such sums find shared operands in a cache without a copy, if their partial results
    stay there too. Rows further apart evict each other. Only arrays of a caller may begin within a
    line.
    """
    axes = kernel.summed_axes
    if len(kernel.reductions) != 1 or len(axes) != 1 or len(loads) != 2:
        return False
    (summed,) = axes
    if isinstance(summed.extent, int) and summed.extent <= 2 * DEPTH:
        return False
    is_often = typical(lane.extent) >= _LEAST_TRANSPOSED_USES
    for load in loads:
        distance = load.access.stride(summed) * ITEM_BYTES[load.dtype]
        neighbours = [a for a in kernel.axes if load.access.stride(a) == 1]
        most = _LANES_APART_BYTES if neighbours == [lane] else _ROWS_APART_BYTES
        if len(neighbours) != 1 or not isinstance(distance, int):
            return False
        if distance > most and (neighbours == [lane] or is_often):
            return False
    results = product([a.extent for a in kernel.axes]) * ITEM_BYTES[kernel.reductions[0].dtype]
    return isinstance(results, int) and results <= machine.far_bytes


def _axes(value: Expr) -> tuple[Axis, ...]:
    """The axes along which a value changes, outermost first."""
    loads = [node for node in walk(value) if isinstance(node, Load)]
    return tuple(dict.fromkeys(axis for load in loads for axis, _ in load.access.terms))


def least_uses(kernel: Kernel, values: Sequence[Expr]) -> Size:
    """The least number of times that an element is read."""
    least: Size | None = None
    for value in values:
        around = product([a.extent for a in kernel.axes if a not in _axes(value)])
        least = around if least is None else minimum(least, around)
    assert least is not None
    return least


def _is_movable(
    kernel: Kernel,
    load: Load,
    buffers: dict[str, Buffer],
    changing: Set[str] | None,
    around: tuple[Axis, ...],
) -> bool:
    """Whether a copy, for a loop one made before it, holds the same and needs no more space."""
    own = {*kernel.own_axes, *around}
    access = load.access
    axes = [axis for axis, _ in access.terms]
    if load.mask is not None or load.index or not own.issuperset(axes):
        return False
    size = buffers[access.buffer].size
    if not is_nonnegative(size - product([axis.extent for axis in axes])):
        return False
    if changing is None:
        return True
    # Before the loop nothing says that there will be a step that may read it.
    last = access.offset
    for axis, stride in access.terms:
        last = last + stride * (axis.extent - 1)
    inside = [access.offset, size - 1 - last, *(stride for _, stride in access.terms)]
    return access.buffer not in changing and all(is_nonnegative(n) for n in inside)


def _copied(
    kernel: Kernel, found: _Operands, buffers: dict[str, Buffer]
) -> tuple[list[Kernel], Kernel]:
    """Kernels that write the operands with the lanes innermost, and the kernel reading these.

    Of operands without lanes the axes of the sum are innermost.
    """
    copies: list[Kernel] = []
    moved: dict[Expr, Expr] = {}
    names = (f"copy.{kernel.name}.{number}" for number in itertools.count())
    for value in found.values:
        varied = [axis for axis in _axes(value) if axis in kernel.own_axes]
        axes = [a for a in kernel.axes if a != found.lane and a in varied]
        axes += [a for a in varied if a not in kernel.axes]
        axes += [found.lane] if found.lane in varied else []
        name, dtype = next(name for name in names if name not in buffers), dtype_of(value)
        size: Size = 1
        terms: list[tuple[Axis, Size]] = []
        for axis in reversed(axes):
            terms.insert(0, (axis, size))
            size = size * axis.extent
        buffers[name] = Buffer(name, dtype, size, "arena", is_copy=True)
        access = Access(name, 0, tuple(terms))
        store = Store(access, value)
        copies.append(Kernel(name, tuple(axes), (), (store,), sources=kernel.sources))
        moved[value] = Load(access, dtype)
    return copies, map_expressions(kernel, moved.get)
