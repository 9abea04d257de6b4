"""Between which numbers all elements of an integer value lie, where the nodes before it prove that.

    table = [3, 0, 5]
    at    = Gather(table, ...)          0 .. 5
    next  = Add(at, Cast(x > y))        0 .. 6

Indices in a range that lies within an axis need no check while running, nor a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import Facts
from ostinato.ops.core.tensor import AnyValue, Joined, Tensor, Value
from ostinato.records import dataclass
from ostinato.sizes.dims import Size

# The least and the largest element, both included.
Range: TypeAlias = "tuple[int, int]"


@dataclass
class Trial:
    """A loop is lowered to find out between which numbers its states lie.

    has_found: whether a loop inside has found some that its steps do not know yet.
    """

    has_found: bool = False


def of_array(array: np.ndarray) -> Range | None:
    """The range of integers or booleans; None for other elements, or none."""
    if array.dtype.kind not in "iub" or not array.size:
        return None
    return int(array.min()), int(array.max())


def of_value(noted: Mapping[Value, Range], value: Value) -> Range | None:
    """The range of a value: what is noted, or that of elements which are known."""
    known = value.known
    if value in noted or known is None or known.dtype == object:
        return noted.get(value)
    return of_array(known)


def of_result(
    node: ir.Node, facts: Facts, operands: Sequence[AnyValue | None], given: Sequence[Range | None]
) -> Range | None:
    """The range of a node's first result.

    operands: as they are lowered. given: their ranges.
    """
    if facts.moves and not facts.fills:
        return union(facts.copied(given))
    if facts.casts:
        return given[0]
    if node.op_type in ("ArgMax", "ArgMin"):
        return _places(node, operands[0])
    is_monotone = facts.broadcasts and facts.computes and facts.total and not facts.tests
    if node.op_type in ("Div", "Mod"):
        return _parts(node, given[0], given[1])
    function, known = facts.arithmetic, [each for each in given if each is not None]
    if not is_monotone or function is None or len(known) != 2 or len(given) != 2:
        return None
    # Sums, products, the lesser and the larger of two: the extremes are at corners.
    corners = [int(function(a, b)) for a in known[0] for b in known[1]]
    return min(corners), max(corners)


def fits(found: Range | None, dtype: str) -> bool:
    """Whether numbers of this range are elements of an integer type, so that none wraps."""
    if found is None or not np.issubdtype(dtype, np.integer):
        return False
    about = np.iinfo(dtype)
    return about.min <= found[0] and found[1] <= about.max


def is_within(found: Range | None, extent: Size) -> bool:
    """Whether all are positions along an axis of this extent, counted from its start."""
    return found is not None and isinstance(extent, int) and found[0] >= 0 and found[1] < extent


def union(parts: Sequence[Range | None]) -> Range | None:
    """All numbers of some ranges; None where one of them is not known."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return min(least for least, _ in known), max(most for _, most in known)


def _parts(node: ir.Node, number: Range | None, divisor: Range | None) -> Range | None:
    """The range of quotients or remainders by positive divisors."""
    if divisor is None or divisor[0] <= 0:
        return None
    if number is not None and number[0] >= 0:
        if node.op_type == "Div":
            return number[0] // divisor[1], number[1] // divisor[0]
        return 0, min(number[1], divisor[1] - 1)
    # Otherwise remainders have the sign of the divisor, or with `fmod` of the number.
    attribute = node.attributes.get("fmod")
    has_sign = attribute is None or attribute.as_int() == 0
    return (0, divisor[1] - 1) if node.op_type == "Mod" and has_sign else None


def _places(node: ir.Node, data: AnyValue | None) -> Range | None:
    """The range of positions along an axis."""
    attribute = node.attributes.get("axis")
    if not isinstance(data, (Tensor, Joined)):
        return None
    axis = 0 if attribute is None else attribute.as_int()
    extent = data.shape[axis] if -len(data.shape) <= axis < len(data.shape) else None
    return (0, extent - 1) if isinstance(extent, int) and extent > 0 else None
