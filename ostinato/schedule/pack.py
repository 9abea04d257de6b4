"""Constant operands of reductions are laid out once in the order in which their kernel reads them.

A kernel that accumulates `G` sums over `k` for groups of `L` lanes reads, for each group, for each
`k`, for each sum, `L` neighbouring elements:

    packed[group][k][sum][lane]        instead of  W[lane + L * group + N * sum][k]

so the whole operand is one stream, and pieces that are needed at the same time lie side by side.
Other axes of the operand, groups of channels for instance, are the outermost. Lanes beyond the end
of the axis are filled with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ostinato.program.dims import is_nonnegative, product
from ostinato.program.expr import Access, Axis, Expr, Load, rewrite, walk
from ostinato.program.nodes import Buffer, Kernel, Program, Reduce, map_kernels


@dataclass(frozen=True)
class Panel:
    """Constant operands that are read together: same axes around them, same element type."""

    outer: tuple[Axis, ...]
    block: Axis | None
    lane: Axis
    inner: tuple[Axis, ...]
    loads: tuple[Load, ...]


def pack(program: Program) -> Program:
    """Repack the constant operands of every tiled reduction."""
    buffers = dict(program.buffers)
    constants = dict(program.constants)

    def change(kernel: Kernel) -> Kernel:
        for number, panel in enumerate(panels(kernel, buffers)):
            name = f"packed.{kernel.name}.{number}"
            data = _packed(panel, kernel, constants)
            sources = (s for one in panel.loads for s in buffers[one.access.buffer].sources)
            buffers[name] = Buffer(
                name,
                panel.loads[0].dtype,
                data.size,
                "constant",
                True,
                tuple(dict.fromkeys(sources)),
            )
            constants[name] = data.reshape(-1)
            kernel = _reading(kernel, panel, name)
        return kernel

    body = map_kernels(program.body, change)
    return replace(program, buffers=buffers, constants=constants).with_body(body)


def panels(kernel: Kernel, buffers: dict[str, Buffer]) -> list[Panel]:
    """The operands of a kernel that can be repacked, by the loop in which they are read."""
    tile = kernel.tile
    if tile is None or tile.lane is None:
        return []
    by_loop: dict[tuple[tuple[Axis, ...], tuple[Axis, ...], str], list[Load]] = {}
    for reduce in kernel.reductions:
        for node in walk(*reduce.operands):
            if not isinstance(node, Load) or buffers[node.access.buffer].kind != "constant":
                continue
            around = tuple(
                axis
                for axis in kernel.axes
                if axis not in (tile.lane, tile.block) and node.access.stride(axis) != 0
            )
            if _can_move(node, reduce, kernel, around, buffers[node.access.buffer]):
                found = by_loop.setdefault((around, reduce.axes, node.dtype), [])
                if node not in found:
                    found.append(node)
    return [
        Panel(around, tile.block, tile.lane, inner, tuple(loads))
        for (around, inner, _), loads in by_loop.items()
    ]


def _can_move(
    load: Load, reduce: Reduce, kernel: Kernel, around: tuple[Axis, ...], buffer: Buffer
) -> bool:
    """Whether a constant operand differs by lane, and copies of none of its elements are needed."""
    assert kernel.tile is not None and kernel.tile.lane is not None
    axes = [axis for axis, _ in load.access.terms]
    extents = [axis.extent for axis in (*axes, *reduce.axes)]
    if kernel.tile.lane not in axes or load.mask is not None or load.index:
        return False
    if not set(axes) <= {*kernel.axes, *reduce.axes}:
        return False
    if not all(isinstance(extent, int) for extent in extents) or kernel.tile.row in around:
        return False
    # Windows over a constant overlap: laying them all out would take more memory than they have.
    own = [a.extent for a in (*around, *reduce.axes)]
    limit = kernel.tile.limit
    lanes = kernel.tile.lane.extent * (kernel.tile.block.extent if kernel.tile.block else 1)
    points = product([*own, lanes if limit is None else limit])
    return not around or is_nonnegative(buffer.size - points)


def _extents(panel: Panel) -> tuple[int, ...]:
    axes = [*panel.outer, *([panel.block] if panel.block else []), *panel.inner, panel.lane]
    return tuple(axis.extent for axis in axes)  # type: ignore[misc]


def _packed(panel: Panel, kernel: Kernel, constants: dict[str, np.ndarray]) -> np.ndarray:
    """The operands as `[outer.., block, inner.., load, lane]`."""
    assert kernel.tile is not None
    extents = _extents(panel)
    result = np.zeros((*extents[:-1], len(panel.loads), extents[-1]), panel.loads[0].dtype)
    group = extents[-1]
    blocks = panel.block.extent if panel.block else 1
    points = blocks * group if kernel.tile.limit is None else kernel.tile.limit
    assert isinstance(points, int) and isinstance(blocks, int)
    others = (*panel.outer, *panel.inner)
    count = len(panel.outer)
    for number, load in enumerate(panel.loads):
        source = constants[load.access.buffer]
        strides = [load.access.stride(axis) for axis in (panel.lane, *others)]
        view = np.lib.stride_tricks.as_strided(
            source[load.access.offset :],
            (points, *(axis.extent for axis in others)),  # type: ignore[arg-type]
            [s * source.itemsize for s in strides],  # type: ignore[misc]
        )
        padded = np.zeros((blocks * group, *view.shape[1:]), load.dtype)
        padded[:points] = view
        # [block, lane, outer.., inner..] becomes [outer.., block, inner.., lane].
        split = padded.reshape(blocks, group, *view.shape[1:])
        moved = np.moveaxis(np.moveaxis(split, 1, -1), 0, count)
        result[..., number, :] = moved if panel.block else moved.squeeze(count)
    return result


def _reading(kernel: Kernel, panel: Panel, name: str) -> Kernel:
    """The kernel reading the packed operands."""
    group = panel.lane.extent
    step = group * len(panel.loads)
    terms: list[tuple[Axis, int]] = [(panel.lane, 1)]
    for axis in reversed(panel.inner):
        terms.append((axis, step))  # type: ignore[arg-type]
        step = step * axis.extent
    for axis in (*([panel.block] if panel.block else []), *reversed(panel.outer)):
        terms.append((axis, step))  # type: ignore[arg-type]
        step = step * axis.extent
    packed = {
        load: Load(Access(name, group * number, tuple(terms)), load.dtype)
        for number, load in enumerate(panel.loads)
    }

    def leaf(node: Expr) -> Expr | None:
        return packed.get(node) if isinstance(node, Load) else None

    def reduce(r: Reduce) -> Reduce:
        if r.axes != panel.inner:
            return r
        factor = None if r.factor is None else rewrite(r.factor, leaf)
        return replace(r, expr=rewrite(r.expr, leaf), factor=factor)

    return replace(kernel, reductions=tuple(reduce(r) for r in kernel.reductions))
