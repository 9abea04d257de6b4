"""What is quantised and dequantised in one kernel stays a float: it is rounded, and no integer.

    y = float32(int32(uint8(bits(x + c) - (b - z))) - z) * s    =>    y = ((x + c) - c) * s

with `c` beside which floats lie 1 apart, and its bits `b` (`program.rounding`).
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.expr import Cast, Expr, rewriter
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program, map_kernels
from ostinato.program.rounding import uncounted


def stay_floats(program: Program) -> Program:
    """Round floats to whole ones where nothing but floats is made of the integers."""
    return program.with_body(map_kernels(program.body, _changed))


def _changed(kernel: Kernel) -> Kernel:
    change = rewriter(_rounded)
    reductions = tuple(reduce.map(change) for reduce in kernel.reductions)
    stores = tuple(store.map(change) for store in kernel.stores)
    if reductions == kernel.reductions and stores == kernel.stores:
        return kernel
    return replace(kernel, reductions=reductions, stores=stores)


def _rounded(node: Expr) -> Expr | None:
    is_float = isinstance(node, Cast) and node.dtype == "float32"
    return uncounted(node.value) if isinstance(node, Cast) and is_float else None
