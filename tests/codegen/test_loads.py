from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Axis, Const, Index, Load, constant, op, sized
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program
from ostinato.sizes.dims import Size, symbol
from tests.codegen.test_module import Native, check
from tests.program.programs import at, program, store


def padded(places: int, elements: Size) -> Program:
    """`y[i] = x[i] if i < elements else 0`."""
    i = Axis("i", places)
    load = at("x", (i, 1))
    assert isinstance(load, Load)
    mask = op("lt", Index(i), sized(elements))
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


def test_rows_that_are_left_out_are_not_looked_for() -> None:
    """`y[r, i] = x[0, i] if r == p else 0`, whose address for other rows is anywhere."""
    r, i = Axis("r", 64), Axis("i", 32)
    row = op("sub", Index(r), at("c0", dtype="int64"))
    load = at("x", (r, 0), (i, 1))
    assert isinstance(load, Load)
    inside = op("eq", row, constant(0, "int64"))
    load = replace(load, index=((row, 32),), mask=inside, other=Const(0.0, "float32"))
    kernel = Kernel("k", (r, i), (), (store("y", load, (r, 32), (i, 1)),))
    source = program({"x": (1, 32)}, {"y": (64, 32)}, (kernel,), {"c0": np.array([5])})
    check(source, {"x": np.ones((1, 32), np.float32)})
    assert "ptr @nowhere" in Native(source).text
