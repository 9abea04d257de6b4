"""Constant operands of reductions are laid out once in the order in which their kernel reads them.

A kernel that accumulates `G` sums over `k` for groups of `L` lanes reads, for each group, for each
`k`, for each sum, `L` neighbouring elements:

    packed[group][k][sum][lane]        instead of  W[lane + L * group + N * sum][k]

so the whole operand is one stream, and pieces that are needed at the same time lie side by side.
Lanes beyond the end of the axis are filled with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ostinato.program.expr import Access, Axis, Expr, Load, rewrite, walk
from ostinato.program.nodes import Buffer, Kernel, Program, Reduce, map_kernels


@dataclass(frozen=True)
class Panel:
    """Constant operands that are read together: same axes around them, same element type."""

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
    by_loop: dict[tuple[tuple[Axis, ...], str], list[Load]] = {}
    for reduce in kernel.reductions:
        for node in walk(*reduce.operands):
            if not isinstance(node, Load) or buffers[node.access.buffer].kind != "constant":
                continue
            allowed = {tile.lane, tile.block, *reduce.axes}
            axes = [axis for axis, _ in node.access.terms]
            if (
                tile.lane in axes
                and node.mask is None
                and not node.index
                and set(axes) <= allowed
                and all(isinstance(axis.extent, int) for axis in (*axes, *reduce.axes))
            ):
                found = by_loop.setdefault((reduce.axes, node.dtype), [])
                if node not in found:
                    found.append(node)
    return [
        Panel(tile.block, tile.lane, inner, tuple(loads)) for (inner, _), loads in by_loop.items()
    ]


def _extents(panel: Panel) -> tuple[int, ...]:
    axes = ([panel.block] if panel.block else []) + [*panel.inner, panel.lane]
    return tuple(axis.extent for axis in axes)  # type: ignore[misc]


def _packed(panel: Panel, kernel: Kernel, constants: dict[str, np.ndarray]) -> np.ndarray:
    """The operands as `[block, inner.., load, lane]`."""
    assert kernel.tile is not None
    axes = ([panel.block] if panel.block else []) + [*panel.inner, panel.lane]
    extents = _extents(panel)
    shape = (*extents[:-1], len(panel.loads), extents[-1])
    result = np.zeros(shape, panel.loads[0].dtype)
    group = extents[-1]
    limit = kernel.tile.limit
    points = (extents[0] if panel.block else 1) * group if limit is None else limit
    assert isinstance(points, int)
    for number, load in enumerate(panel.loads):
        source = constants[load.access.buffer]
        strides = [load.access.stride(axis) for axis in axes]
        view = np.lib.stride_tricks.as_strided(
            source[load.access.offset :],
            (points, *extents[1 if panel.block else 0 : -1]),
            [s * source.itemsize for s in (strides[-1], *strides[1 if panel.block else 0 : -1])],  # type: ignore[misc]
        )
        padded = np.zeros(((extents[0] if panel.block else 1) * group, *view.shape[1:]), load.dtype)
        padded[:points] = view
        blocks = padded.reshape(-1, group, *view.shape[1:])
        lanes_last = np.moveaxis(blocks, 1, -1)
        result[..., number, :] = lanes_last if panel.block else lanes_last[0]
    return result


def _reading(kernel: Kernel, panel: Panel, name: str) -> Kernel:
    """The kernel reading the packed operands."""
    group = panel.lane.extent
    step = group * len(panel.loads)
    terms: list[tuple[Axis, int]] = [(panel.lane, 1)]
    for axis in reversed(panel.inner):
        terms.append((axis, step))  # type: ignore[arg-type]
        step = step * axis.extent
    if panel.block is not None:
        terms.append((panel.block, step))  # type: ignore[arg-type]
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
