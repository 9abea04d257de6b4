"""Tiles that are transposed in registers: what kernels move across, and operands of sums.

A kernel stores along one axis the neighbours that it loads along another, or its sums find
neighbours along their terms and not along the lanes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ostinato.machine.record import LINE_BYTES, Machine
from ostinato.program.expr import ITEM_BYTES, Axis, dtype_of
from ostinato.program.kernel import Kernel, Store, Tile
from ostinato.program.nodes import Buffer
from ostinato.program.words import first_of_word
from ostinato.schedule.lanes import CLOSE, is_moved, lane_width, lines_apart
from ostinato.schedule.operands import (
    TERMS_ACROSS,
    accesses,
    is_turnable,
    loads_across,
    neighbouring_stores,
    row_axes_of_windows,
    shared_axes,
    typical,
)
from ostinato.schedule.shapes import FILLING_ROWS, row_axes

# Rows of a tile that share what is transposed. Where there are more than two tiles of them,
# `relayout` copies the operand.
MOST_TURNED_ROWS = 4


def transposition(kernel: Kernel, machine: Machine) -> tuple[Axis, Axis] | None:
    """Lanes and rows of a kernel without sums that stores what it loads transposed.

    Neighbours are loaded along the lanes, at computed places if all lanes have these in common, and
    stored along the rows, each of which may have several neighbours. None where some axis has
    neighbours on both sides, or where there is nothing to transpose.
    """
    plain = all(dtype_of(s.value) != "bool" and not s.partial for s in kernel.stores)
    placed = any(s.index or s.mask is not None for s in kernel.stores)
    if kernel.reductions or kernel.ordered or not plain or placed:
        return None
    loads = [load for load in kernel.loads() if load.access.terms]
    if any(load.mask is not None and not load.index for load in loads):
        return None
    at_places = any(load.index for load in loads)
    long = [axis for axis in kernel.axes if typical(axis.extent) >= machine.transposed_rows]
    loaded = [
        a
        for a in long
        if all(load.access.stride(a) in (0, 1) and not is_moved(load, a) for load in loads)
    ]
    groups = neighbouring_stores(kernel)
    count = len(groups[0])
    if any(len(group) != count for group in groups) or machine.transposed_rows % count:
        return None
    # Lanes along the places would gather, which takes longer than stores of a few rows.
    least = FILLING_ROWS if at_places else machine.transposed_rows
    rows = [a for a in kernel.axes if typical(a.extent) * count >= least]
    stored = [a for a in rows if all(store.access.stride(a) == count for store in kernel.stores)]
    lanes = [a for a in loaded if any(load.access.stride(a) == 1 for load in loads)]
    if not lanes or not stored or set(loaded) & set(stored):
        return None
    return lanes[-1], stored[-1]


def transposed_rows(kernel: Kernel, lane: Axis, row: Axis, machine: Machine) -> int:
    """Rows of a tile that are transposed in registers.

    Twice as many where lines of lanes evict each other from the first-level cache before the next
    rows fill them, and registers hold this many: a transpose of 9216 x 64 floats takes 0.6 of the
    time (`benchmarks.versions --onnx`).
    """
    count = len(neighbouring_stores(kernel)[0])
    rows = machine.transposed_rows // count
    if typical(row.extent) < rows:
        return 1 << (typical(row.extent).bit_length() - 1)
    evicted = all(_evicts_its_lines(store, lane, 2 * rows, machine) for store in kernel.stores)
    held = 4 * rows * count <= machine.vector_registers
    return 2 * rows if evicted and held and typical(row.extent) >= 2 * rows else rows


def _evicts_its_lines(store: Store, lane: Axis, rows: int, machine: Machine) -> bool:
    """Whether all lanes store to one set of the first-level cache, at most a line of these rows.

    A way of that cache is as large as a page.
    """
    stride, item = store.access.stride(lane), ITEM_BYTES[dtype_of(store.value)]
    if not isinstance(stride, int):
        return False
    return stride * item % machine.page_bytes == 0 and rows * item <= LINE_BYTES


def turned_lines(
    kernel: Kernel, row: Axis, machine: Machine, buffers: Mapping[str, Buffer]
) -> float:
    """Lines in other pages that a kernel reads that stores what it loads transposed.

    Rows are the inner loop, and each of them loads from a page of its own.
    """
    return sum(
        lines_apart(x.access, buffers[x.access.buffer].size, ITEM_BYTES[x.dtype], (row,), machine)
        for x in dict.fromkeys(kernel.loads())
    )


def is_turned(kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]) -> bool:
    """Whether lanes of sums would gather neighbours along the terms, such as keys of attention.

    `TERMS_ACROSS` terms are then loaded at once for each lane, and transposed in registers.
    """
    across = loads_across(kernel, lane, buffers)
    if not across or row_axes_of_windows(kernel, lane) or kernel.ordered:
        return False
    if lane_width(kernel, lane, machine) % TERMS_ACROSS:
        return False
    inner = {reduce.axes[-1] for reduce in kernel.reductions if reduce.axes}
    is_long = all(isinstance(a.extent, int) and a.extent >= TERMS_ACROSS for a in inner)
    if not is_long or any(r.chains > 1 or not r.axes for r in kernel.reductions):
        return False
    words = [first_of_word(node) for reduce in kernel.reductions for node in reduce.nodes]
    return all(
        (load.dtype == "float32" or load in words)
        and load.access.stride(lane) not in CLOSE
        and any(is_turnable(load, axis) for axis in inner)
        for load in across
    )


def turned_tile(kernel: Kernel, lane: Axis, machine: Machine) -> Tile:
    """A tile of one vector, and rows that share what is transposed.

    A single row has two vectors, or two groups of lanes where only a run tells that it is one: it
    would wait for each multiply-add. Not so where the lines of their lanes evict each other: one
    row and 500 x 300 weights take 0.63 of the time so, 512 x 512 would take 1.08 and 1024 x 1024
    1.6.
    """
    width = lane_width(kernel, lane, machine)
    row, _ = row_axes(kernel, lane, shared_axes(kernel, lane), set())
    rows = 1 if row is None else min(MOST_TURNED_ROWS, typical(row.extent))
    alone = 2 if _lines_stay(kernel, lane, 2 * width, machine) else 1
    if rows == 1:
        return Tile(lane, width, alone, row=row, turned=True)
    is_known = row is None or isinstance(row.extent, int)
    return Tile(lane, width, row=row, rows=rows, groups=1 if is_known else alone, turned=True)


def _lines_stay(kernel: Kernel, lane: Axis, lanes: int, machine: Machine) -> bool:
    """Whether lines that this many lanes load stay in the first-level cache for the next terms."""
    strides = [(load.access.stride(lane), ITEM_BYTES[load.dtype]) for load in kernel.summed]
    return typical(lane.extent) >= lanes and all(
        isinstance(stride, int) and machine.lines_stay(lanes, stride * item)
        for stride, item in strides
        if stride != 0
    )


def turned_cycles(
    kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]
) -> float:
    """Cycles of a vector of points; rows of a tile share what is transposed."""
    rows, across = turned_tile(kernel, lane, machine).rows, loads_across(kernel, lane, buffers)
    each = dict(machine.transposed_cycles)[TERMS_ACROSS] / rows
    return sum(
        weight * (each if load in across else machine.load_cycles)
        for _, weight, load in accesses(kernel)
    )
