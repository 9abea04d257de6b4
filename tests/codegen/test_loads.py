from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Axis, Const, Index, Load, op
from ostinato.program.nodes import Kernel, Program
from ostinato.schedule.index_maps import size_expr
from ostinato.sizes.dims import Size, symbol
from tests.codegen.test_module import Native, check
from tests.program.programs import at, program, store


def padded(places: int, elements: Size) -> Program:
    """`y[i] = x[i] if i < elements else 0`."""
    i = Axis("i", places)
    load = at("x", (i, 1))
    assert isinstance(load, Load)
    mask = op("lt", Index(i), size_expr(elements))
    load = replace(load, mask=mask, other=Const(0.0, "float32"))
    kernel = Kernel("k", (i,), (), (store("y", load, (i, 1)),))
    symbols = ("N",) if not isinstance(elements, int) else ()
    return program({"x": (elements,)}, {"y": (places,)}, (kernel,), symbols=symbols)


@pytest.mark.parametrize(
    ("places", "elements", "looks"),
    [(4800, symbol("N"), True), (4800, 3000, True), (4800, 4700, False)],
    ids=str,
)
def test_padding_that_is_long_is_not_read_where_it_is_not(
    places: int, elements: Size, looks: bool
) -> None:
    source = padded(places, elements)
    x = np.arange(elements if isinstance(elements, int) else 1600, dtype=np.float32)
    check(source, {"x": x})
    assert ("ptr @nowhere" in Native(source).text) == looks
