"""A value that is quantised and dequantised in one kernel is rounded as a float.

    y = float32(int32(uint8(bits(x + c) - (b - z))) - z) * s    =>    y = ((x + c) - c) * s

with `c` beside which floats lie 1 apart, and its bits `b` (`program.rounding`).
"""

from __future__ import annotations

from functools import partial

from ostinato.program.expr import Cast, Expr
from ostinato.program.kernel import map_expressions
from ostinato.program.nodes import Program, map_kernels
from ostinato.program.rounding import uncounted


def stay_floats(program: Program) -> Program:
    """Round floats to integers where the integers are only converted back to floats."""
    return program.with_body(map_kernels(program.body, partial(map_expressions, change=_rounded)))


def _rounded(node: Expr) -> Expr | None:
    if not isinstance(node, Cast) or node.dtype != "float32":
        return None
    return uncounted(node.value)
