"""Sums read their operands forwards.

    for t:  y[t] = sum_k x[T - 1 - t, k] * W[k]
    =>
    for t:  y[T - 1 - t] = sum_k x[t, k] * W[k]

The product in front of a recurrence that runs backwards reads its rows from the last one on. A
machine fetches lines ahead of those that follow each other upwards in memory; what is stored waits
for nobody. Points are independent, so their order does not change results.
"""

from __future__ import annotations

from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program, map_kernels
from ostinato.schedule.index_maps import turned_round
from ostinato.sizes.dims import is_nonnegative


def forwards(program: Program) -> Program:
    """Reverse kernels along the axes along which their sums read nothing forwards."""
    return program.with_body(map_kernels(program.body, _forwards))


def _forwards(kernel: Kernel) -> Kernel:
    for axis in kernel.axes:
        if kernel.reductions and axis not in kernel.ordered and _is_backwards(kernel, axis):
            kernel = turned_round(kernel, axis)
    return kernel


def _is_backwards(kernel: Kernel, axis: Axis) -> bool:
    strides = [load.access.stride(axis) for load in kernel.summed]
    return any(stride != 0 for stride in strides) and all(
        is_nonnegative(-stride) for stride in strides
    )
