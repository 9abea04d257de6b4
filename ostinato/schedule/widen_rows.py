"""Rows of 16-bit floats are widened once for all lanes that read them.

    y[i, j] = sum_k wide(h[i, k]) w[k, j]     c[i, k] = wide(h[i, k])
                                        =>    y[i, j] = sum_k c[i, k] w[k, j]

Lanes along `j` take the elements of a row one by one: each is loaded, converted and broadcast
before it takes part in a few products, and again for the next lanes. A wide element is a memory
operand of the products. The copy converts a vector of elements at a time.
"""

from __future__ import annotations

import math

from ostinato.program.expr import HALVES, Access, Axis, Cast, Expr, Load
from ostinato.program.kernel import Kernel, Store, map_expressions
from ostinato.program.nodes import Buffer, Program, expand_kernels
from ostinato.schedule.operands import typical
from ostinato.sizes.dims import Size, is_nonnegative, product

_WIDE = "float32"
# This many lanes have to read each element. Steps of recurrent layers of 8 to 512 units take 0.54
# to 0.98 of the time, for one sequence and several, and products with 16 to 256 columns 0.45 to 1.0
# (`benchmarks.versions --onnx`, models of one layer of float16).
LEAST_LANES = 8


def widen_rows(program: Program) -> Program:
    """Copy operands of sums that lanes take one by one, where these are 16-bit floats."""
    buffers = dict(program.buffers)

    body = expand_kernels(program.body, lambda kernel: _widened(kernel, buffers))
    return program.with_body(body, buffers)


def _widened(kernel: Kernel, buffers: dict[str, Buffer]) -> list[Kernel]:
    """The copies for a kernel, and the kernel, which reads them."""
    copies: list[Kernel] = []
    moved: dict[Expr, Expr] = {}
    if not kernel.ordered and kernel.guard is None and not kernel.sizes:
        operands = dict.fromkeys(kernel.operands)
        for value in operands:
            load = _row(kernel, value, buffers)
            if load is not None:
                copy, moved[value] = _copied(kernel, load, len(copies), buffers)
                copies.append(copy)
    return [*copies, map_expressions(kernel, moved.get)] if copies else [kernel]


def _row(kernel: Kernel, value: Expr, buffers: dict[str, Buffer]) -> Load | None:
    """The load that an operand widens, if lanes take its elements singly; a copy is no larger."""
    if not isinstance(value, Cast) or value.dtype != _WIDE:
        return None
    load = value.value
    if not isinstance(load, Load) or load.dtype not in HALVES or load.mask is not None:
        return None
    buffer = buffers[load.access.buffer]
    if load.index or buffer.kind == "constant":
        return None
    size = product([axis.extent for axis in _axes(kernel, load)])
    if not is_nonnegative(buffer.size - size):
        return None
    across = [axis for axis in kernel.axes if load.access.stride(axis) == 0]
    stored = all(any(s.access.stride(axis) == 1 for axis in across) for s in kernel.stores)
    lanes = math.prod(typical(axis.extent) for axis in across)
    return load if stored and lanes >= LEAST_LANES else None


def _axes(kernel: Kernel, load: Load) -> tuple[Axis, ...]:
    """The axes of the kernel along which an operand changes, those of its sums innermost."""
    summed = (axis for reduce in kernel.reductions for axis in reduce.axes)
    axes = dict.fromkeys((*kernel.axes, *summed))
    return tuple(axis for axis in axes if load.access.stride(axis) != 0)


def _copied(
    kernel: Kernel, load: Load, number: int, buffers: dict[str, Buffer]
) -> tuple[Kernel, Load]:
    """The kernel that writes wide rows, and the load that reads their elements."""
    axes = _axes(kernel, load)
    terms: list[tuple[Axis, Size]] = []
    size: Size = 1
    for axis in reversed(axes):
        terms.insert(0, (axis, size))
        size = size * axis.extent
    name = f"wide.{kernel.name}.{number}"
    buffers[name] = Buffer(name, _WIDE, size, "arena")
    access = Access(name, 0, tuple(terms))
    copy = Kernel(name, axes, (), (Store(access, Cast(load, _WIDE)),), sources=kernel.sources)
    return copy, Load(access, _WIDE)
