"""Which stores of a point are written together."""

from __future__ import annotations

from ostinato.codegen.points import _neighbours
from ostinato.program.expr import Axis
from ostinato.program.nodes import Kernel
from tests.program.programs import at, store

AXIS = Axis("i", 4)


def _groups(buffer: str, offsets: list[int], ordered: bool = False) -> list[list[int]]:
    stores = tuple(store("y", at(buffer, (AXIS, 1)), (AXIS, 4), offset=n) for n in offsets)
    kernel = Kernel("k", (AXIS,), (), stores, ordered=(AXIS,) if ordered else ())
    return [[s.access.offset for s in group] for group in _neighbours(kernel, stores)]


def test_stores_side_by_side_are_one_group() -> None:
    assert _groups("x", [0, 1, 2]) == [[0, 1, 2]]
    assert _groups("x", [0, 2, 1, 3]) == [[0, 1], [2, 3]]


def test_where_a_point_reads_what_it_writes_the_order_stays() -> None:
    assert _groups("y", [0, 1]) == [[0], [1]]
    assert _groups("x", [0, 1], ordered=True) == [[0], [1]]
