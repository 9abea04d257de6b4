"""Operands that all groups of lanes read are read in chunks that stay in the cache.

    for group:  for row:  y[row, group] = sum_k x[row, k] * W[k, group]

reads all of `x` again for every group, and writes lines of `y` that lie apart. Where these exceed
the second-level cache beside `W`, and `W` does not,

    for chunk:  for group:  for row in chunk:  ...

reads `x` once from further away; the rows of `x` and `y` of a chunk stay in the cache with `W`.
Points are independent, so their order does not change results.

Windows of which each group of lanes reads its own part, such as the channels of an image stored
pixel by pixel, run in chunks as well: neighbouring lines are then read together, and still are in a
cache when the next row of windows needs them.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import ITEM_BYTES, Axis, Load, dtype_of
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program, map_kernels
from ostinato.schedule.operands import moves_windows
from ostinato.sizes.dims import exact_quotient, product

# Weights that leave the second-level cache are read again by each chunk. Windows of 4,000 to 32,000
# points with 3 MB of weights take 0.5 to 1.0 of the time in chunks of 182 points (wav2vec 2.0,
# HuBERT), products of 400 to 1500 rows up to 1.1.
_LEAST_POINTS = 128
_LONG_SIGNAL = 4
# Points along an axis whose extent only a run tells: more than any chunk. A shorter one is a chunk.
_LONG = 1 << 20


def chunk(program: Program, machine: Machine) -> Program:
    """Cut kernels into chunks whose groups of lanes share more than the cache holds."""
    return program.with_body(
        map_kernels(program.body, lambda kernel: _in_chunks(kernel, program, machine))
    )


def _in_chunks(kernel: Kernel, program: Program, machine: Machine) -> Kernel:
    tile = kernel.tile
    if tile is None or tile.block is None or tile.row is None or not kernel.reductions:
        return kernel
    if tile.depth is not None or tile.other is not None:
        return kernel
    axes = [axis for axis in tile.inside if axis not in (tile.row, tile.across)]
    passing = axes[0] if axes else tile.row
    groups = {tile.lane, tile.block}
    # Loops around the groups, such as a batch, read other elements.
    inside = {*groups, *tile.inside, tile.row, tile.across, passing}
    around = {axis for axis in kernel.axes if axis not in inside}
    bytes_shared: dict[str, int] = {}
    bytes_owned: dict[str, int] = {}
    bytes_beside: dict[str, int] = {}
    stored = [Load(store.access, dtype_of(store.value)) for store in kernel.stores]
    for load in (*kernel.loads(), *stored):
        size = _bytes(load, kernel, passing, around, program)
        if size is None:
            return kernel
        read = {axis for axis, _ in load.access.terms}
        differs, passes = bool(groups & read), passing in read
        found = bytes_shared if not differs else bytes_beside if passes else bytes_owned
        found[load.access.buffer] = max(found.get(load.access.buffer, 0), size)
    shared, own = sum(bytes_shared.values()), sum(bytes_owned.values())
    beside = sum(bytes_beside.values())
    blocks = tile.block.extent
    if not isinstance(blocks, int) or blocks == 1:
        return kernel
    windows = _bytes_of_windows(kernel, passing, groups, around, program)
    if windows > machine.panel_bytes:
        return _passing(kernel, passing, windows, machine.panel_bytes)
    if shared + own + beside <= machine.second_level_bytes:
        return kernel
    if own <= machine.second_level_bytes - machine.paired_bytes:
        return _passing(kernel, passing, shared + beside, machine.panel_bytes)
    is_long = shared >= _LONG_SIGNAL * machine.second_level_bytes
    if not is_long or not moves_windows(kernel, passing):
        return kernel
    return _passing(kernel, passing, shared, machine.paired_bytes, _LEAST_POINTS)


def _passing(kernel: Kernel, axis: Axis, size: int, most: int, least: int = 1) -> Kernel:
    """Cut the kernel into chunks along an axis whose points together read or write `size` bytes.

    A chunk has at most `most` bytes, if these are at least `least` points.
    """
    tile, extent = kernel.tile, _extent(axis)
    assert tile is not None
    # Whole tiles of rows: a chunk that ends within a tile would leave its rows to smaller tiles.
    unit = tile.rows if axis == tile.row else 1
    length = max(extent * most // size // unit, 1)
    if not isinstance(axis.extent, int):
        length = _rounded(length)
    length *= unit
    if length >= extent or length < least:
        return kernel
    return replace(kernel, tile=replace(tile, chunk=length))


def _rounded(count: int) -> int:
    """Round down to two significant bits: layers that differ in sizes then share functions."""
    shift = max(count.bit_length() - 2, 0)
    return count >> shift << shift


def _bytes_of_windows(
    kernel: Kernel, passing: Axis, groups: Set[Axis | None], around: Set[Axis], program: Program
) -> int:
    """Bytes that sums load by chunk and by group of lanes, for one point of the axes around."""
    assert kernel.tile is not None
    if passing not in kernel.tile.inside:
        return 0
    found = [0]
    for load in kernel.summed:
        read = {axis for axis, _ in load.access.terms}
        size = _bytes(load, kernel, passing, around, program)
        if size is not None and passing in read and groups & read:
            found.append(size)
    return max(found)


def _extent(axis: Axis) -> int:
    return axis.extent if isinstance(axis.extent, int) else _LONG


def _bytes(
    load: Load, kernel: Kernel, passing: Axis, around: Set[Axis], program: Program
) -> int | None:
    """Bytes that the kernel reads or writes at a point of the axes around, if that number is known.

    Where the number of points along `passing` is not known, it is taken to be large; an element
    between two points is met once.
    """
    own = kernel.own_axes - around
    met = [axis for axis, _ in load.access.terms if axis in own]
    read = product([axis.extent for axis in met if axis != passing])
    whole, step = program.buffers[load.access.buffer].size, load.access.stride(passing)
    points = product([axis.extent for axis, _ in load.access.terms if axis in around])
    each = exact_quotient(whole, points)
    whole = whole if each is None else each
    if passing in met:
        read = read * _extent(passing)
    if passing in met and not isinstance(passing.extent, int):
        # Elements that lie apart by a number that only a run tells, such as channels of a sequence,
        # are outside.
        lines = [
            axis.extent for axis, n in load.access.terms if axis in met and not isinstance(n, int)
        ]
        whole = step * _LONG * product(lines)
    if not isinstance(read, int):
        return None
    return (min(read, whole) if isinstance(whole, int) else read) * ITEM_BYTES[load.dtype]
