"""Work that does not depend on a loop's state leaves the loop.

    for t: a = f(x[t]); s = g(a, s)        for all t: A[t] = f(x[t])
                                      =>   for t: s = g(A[t], s)

A kernel of the body that reads nothing that the rest of the body changes runs for all steps at
once: the loop's axis becomes one more parallel axis, and the buffers it writes get one row per
step. So the matrix-vector products of all steps become one matrix product. Each element is computed
by the same operations as before.

A kernel that only spreads values out stays, unless something that leaves reads it: the rows of an
outer product take longer to write and to read than to compute where they are used. So does a kernel
of a few operations on values that a step is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Axis, Index, Op, dtype_of, walk
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Loop,
    Program,
    Require,
    Stmt,
    map_kernels,
    statements,
)
from ostinato.schedule.operands import typical
from ostinato.schedule.steps import per_step, rewrite_loops, with_rows, written_before_read
from ostinato.sizes.dims import Size, is_polynomial, product, terms_of

# Operations of a single instruction, of which two start in a cycle: computing them again takes less
# time than writing a value and reading it from the second-level cache, one to three cycles each
# (`packed_cycles` of the record of the machine).
_LIGHT = frozenset(("add", "sub", "mul", "fma", "neg", "abs", "min", "max", "select"))


# Lines of results that leave the caches pass three times: a store reads the line before it.
_PASSES = 3
# Registers for the partial results of a step: four gates of as many rows as a tile of one product
# has. With fewer, four gates of 128 units over 64 rows take 1.13 of the time in steps (AVX2).
_REGISTERS = 4 * 6


def hoist(program: Program, machine: Machine) -> Program:
    """Move state-independent kernels of every loop in front of it."""

    def change(loop: Loop, buffers: dict[str, Buffer], outside: set[str]) -> list[Stmt]:
        return _hoist_loop(loop, buffers, outside, machine)

    return rewrite_loops(program, change)


def _hoist_loop(
    loop: Loop, buffers: dict[str, Buffer], outside: set[str], machine: Machine
) -> list[Stmt]:
    varies = _movable(loop, outside)
    for kernel in _of_many_rows(loop.axis, varies, buffers, machine):
        del varies[kernel]
    read: set[str] = set()
    light = _light(varies)
    for kernel in reversed(list(varies)):
        stays = varies[kernel] and (kernel in light or _spreads(kernel))
        if stays and not kernel.writes() & read:
            del varies[kernel]
        else:
            read |= kernel.reads()
    if not varies:
        return [loop]
    rows: dict[str, Size] = {}
    leaving: list[Kernel] = []
    for kernel, each_step in varies.items():
        for store in kernel.stores:
            if each_step and store.access.stride(loop.axis) == 0:
                rows[store.access.buffer] = buffers[store.access.buffer].size
        moved = with_rows(kernel, loop.axis, rows)
        leaving.append(replace(moved, axes=(loop.axis, *moved.axes)) if each_step else moved)
    for name, size in rows.items():
        buffers[name] = replace(buffers[name], size=size * loop.axis.extent)
    staying = tuple(s for s in loop.body if s not in varies)
    kept = map_kernels(staying, lambda k: with_rows(k, loop.axis, rows))
    return [*leaving, replace(loop, body=kept)]


def _movable(loop: Loop, outside: set[str]) -> dict[Kernel, bool]:
    """The kernels of the body that could run before it, and whether they differ between steps.

    Of kernels that write parts of one value, all or none; all in every step, or all once.
    """
    apart: set[str] = set()
    while True:
        movable = _movable_but(loop, outside | apart)
        ways: dict[str, set[bool | None]] = {}
        for statement in loop.body:
            way = movable.get(statement) if isinstance(statement, Kernel) else None
            for name in statement.writes():
                ways.setdefault(name, set()).add(way)
        mixed = {name for name, found in ways.items() if len(found) > 1} - outside - apart
        if not mixed:
            return movable
        apart |= mixed


def _movable_but(loop: Loop, outside: set[str]) -> dict[Kernel, bool]:
    """The same for each kernel by itself; `outside` also names buffers without a row per step."""
    carried = loop.carried
    local = written_before_read(loop.body, {loop.axis}) - outside
    # A buffer that the body reads before writing it holds the value of the step before.
    changing = carried | (loop.writes() & outside)
    varying: set[str] = set()
    movable: dict[Kernel, bool] = {}
    conditions = {s.condition for s in statements(loop.body) if isinstance(s, Branch | Require)}
    for statement in loop.body:
        if (
            not isinstance(statement, Kernel)
            or statement.reads() & changing
            or statement.writes() & carried
            or statement.sizes
            or not all(per_step(store, loop.axis, local) for store in statement.stores)
        ):
            changing |= statement.writes()
            continue
        varies = _mentions(statement, loop.axis) or bool(statement.reads() & varying)
        if varies and (loop.condition is not None or statement.writes() & conditions):
            # The number of steps is unknown, or the body needs this step's value under the buffer's
            # name: then only kernels that are the same in all steps can leave.
            changing |= statement.writes()
            continue
        movable[statement] = varies
        if varies:
            varying |= statement.writes()
    return movable


def _of_many_rows(
    steps: Axis, movable: Mapping[Kernel, bool], buffers: Mapping[str, Buffer], machine: Machine
) -> set[Kernel]:
    """Products that take no longer step by step, and what is computed of each of their results.

    Results for all steps that exceed the second-level cache leave it before they are read. Where a
    step has many rows, reading the weights again takes less time: four gates of 384 units over 257
    rows takes 0.86 of the time so, 256 units over 64 rows 0.91, 64 units over 64 rows 0.96, over 16
    rows the same (`ostinato bench --disable hoist`).
    """
    found: set[Kernel] = set()
    for kernel, varies in movable.items():
        if varies and kernel not in found and _has_many_rows(kernel, steps, buffers, machine):
            users, made = {kernel}, set(kernel.writes())
            for other in movable:
                if other.reads() & made:
                    users.add(other)
                    made |= other.writes()
            if not any(other.reductions for other in users - {kernel}):
                found |= users
    return found


def _has_many_rows(
    kernel: Kernel, steps: Axis, buffers: Mapping[str, Buffer], machine: Machine
) -> bool:
    """Whether a product has so many rows in each step that its weights are better read again."""
    products = all(len(r.axes) == 1 and r.chains == 1 for r in kernel.reductions)
    if not kernel.reductions or not products or machine.accumulators < _REGISTERS:
        return False
    points = _points_of_one_batch(product([axis.extent for axis in kernel.axes]))
    results = points * sum(ITEM_BYTES[dtype_of(store.value)] for store in kernel.stores)
    if results * typical(steps.extent) <= machine.second_level_bytes:
        return False
    loads = dict.fromkeys(load for load in kernel.summed if load.access.stride(steps) == 0)
    given = [load for load in kernel.summed if load not in loads]
    if any(load.access.stride(axis) not in (0, 1) for load in given for axis in kernel.summed_axes):
        # `relayout` copies rows whose terms lie apart, once for all steps.
        return False
    weights = 0
    for load in loads:
        elements = product([axis.extent for axis, _ in load.access.terms])
        if not isinstance(elements, int) or load.mask is not None or load.index:
            return False
        weights += elements * ITEM_BYTES[load.dtype]
    # The weights of a state's product, about as many, pass beside them.
    near = machine.packed_cycles[2 if 2 * weights > machine.second_level_bytes else 1]
    # Tiles read results of a few rows each, which lie apart.
    far = _PASSES * machine.packed_cycles[2] + machine.apart_cycles
    return bool(loads) and weights * near < results * far


def _points_of_one_batch(extent: Size) -> int:
    """The extent where sizes that only a run tells are 1, as that of a batch often is."""
    terms = terms_of(extent)
    is_plain = is_polynomial(extent) and all(count > 0 for _, count in terms)
    return sum(count for _, count in terms) if is_plain else 0


def _light(movable: Iterable[Kernel]) -> set[Kernel]:
    """Kernels cheaper to recompute than to store, of inputs that no costlier ones compute."""
    found: set[Kernel] = set()
    made: set[str] = set()
    for kernel in movable:
        loads = list(kernel.loads())
        plain = all(load.mask is None and not load.index for load in loads)
        operations = {n.name for n in walk(*kernel.expressions()) if isinstance(n, Op)}
        if kernel.reductions or not plain or not operations <= _LIGHT or kernel.reads() & made:
            made |= kernel.writes()
        elif loads:
            found.add(kernel)
    return found


def _spreads(kernel: Kernel) -> bool:
    """Whether every value the kernel loads is used at more than one of its points."""
    axes = {axis for axis in kernel.axes if axis.extent != 1}
    loads = [load.access for load in kernel.loads()]
    broadcast = all(any(load.stride(axis) == 0 for axis in axes) for load in loads)
    return not kernel.reductions and bool(loads) and broadcast


def _mentions(kernel: Kernel, axis: Axis) -> bool:
    accesses = kernel.accesses
    if any(access.stride(axis) != 0 for access in accesses):
        return True
    return Index(axis) in set(walk(*kernel.expressions()))
