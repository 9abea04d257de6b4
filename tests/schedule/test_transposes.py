from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Axis, cast, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program
from ostinato.schedule.tile import tile
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import REGISTERS, assert_same_results
from tests.schedule.test_tile import only

WIDE, NARROW = REGISTERS[0], REGISTERS[2]


def transposed(rows, columns, value=lambda x: x) -> Program:
    """`y[j, i] = value(x[i, j])`."""
    j, i = Axis("j", columns), Axis("i", rows)
    x = at("x", (i, columns), (j, 1))
    kernel = Kernel("k", (j, i), (), (store("y", value(x), (j, rows), (i, 1)),))
    symbols = tuple(str(n) for n in (rows, columns) if not isinstance(n, int))
    return program({"x": (rows, columns)}, {"y": (columns, rows)}, (kernel,), symbols=symbols)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(9, 32), (8, 21), (symbol("N"), 16), (32, symbol("N")), (symbol("N"), symbol("T"))],
    ids=str,
)
def test_transposes_load_along_lanes_and_store_along_rows(rows, columns):
    source = transposed(rows, columns, lambda x: op("neg", x))
    tiled = tile(source, WIDE)
    kernel = only(tiled)
    assert kernel.tile is not None and kernel.tile.row is not None
    assert (kernel.tile.row.name, kernel.tile.rows) == ("i", 8)
    (load,) = kernel.loads()
    assert load.access.stride(kernel.tile.lane) == 1
    assert_same_results(source, tiled)


def test_bytes_are_transposed_like_floats():
    source = transposed(16, 32, lambda x: cast(x, "uint8"))
    source = replace(
        source,
        buffers={**source.buffers, "y": replace(source.buffers["y"], dtype="uint8")},
        outputs=(replace(source.outputs[0], dtype="uint8"),),
    )
    tiled = tile(source, WIDE)
    chosen = only(tiled).tile
    assert chosen is not None and chosen.row is not None
    assert (chosen.row.name, chosen.rows) == ("i", 8)
    assert_same_results(source, tiled)


@pytest.mark.parametrize("shape", [(9, 4), (4, 32)], ids=str)
def test_short_axes_are_not_transposed_in_registers(shape):
    kernel = only(tile(transposed(*shape), WIDE))
    assert kernel.tile is not None and kernel.tile.row is None


@pytest.mark.parametrize(
    ("places", "channels", "rows", "vectors"), [(9, 32, 8, 2), (5, 24, 4, 1)], ids=str
)
def test_what_is_read_at_places_is_loaded_along_neighbours(places, channels, rows, vectors):
    """`y[c, i] = x[places[i], c]`: lanes along `i` would gather."""
    c, i = Axis("c", channels), Axis("i", places)
    index = at("places", (i, 1), dtype="int64")
    table = replace(at("x", (c, 1)), index=((index, channels),))
    kernel = Kernel("k", (c, i), (), (store("y", table, (c, places), (i, 1)),))
    numbers = {"places": np.arange(places) % 4}
    source = program({"x": (4, channels)}, {"y": (channels, places)}, (kernel,), numbers)
    tiled = tile(source, WIDE)
    chosen = only(tiled).tile
    assert chosen is not None and chosen.row is not None and chosen.lane is not None
    assert (chosen.row.name, chosen.rows, chosen.lane.name[0]) == ("i", rows, "c")
    assert chosen.vectors == vectors
    assert_same_results(source, tiled)


@pytest.mark.parametrize("rows", [4, 7, symbol("N")], ids=str)
def test_pairs_that_rows_store_are_transposed_together(rows):
    """`y[j, 2 * i + n] = x[i, j]` doubled or not."""
    j, i = Axis("j", 32), Axis("i", rows)
    x = at("x", (i, 32), (j, 1))
    values = (x, op("add", x, x))
    stores = [store("y", v, (j, rows * 2), (i, 2), offset=n) for n, v in enumerate(values)]
    symbols = () if isinstance(rows, int) else ("N",)
    kernel = Kernel("k", (j, i), (), tuple(stores))
    source = program({"x": (rows, 32)}, {"y": (32, rows * 2)}, (kernel,), symbols=symbols)
    tiled = tile(source, WIDE)
    found = only(tiled).tile
    assert found is not None and found.row is not None and found.lane is not None
    assert (found.row.name, found.rows) == ("i", 4)
    assert {load.access.stride(found.lane) for load in only(tiled).loads()} == {1}
    assert_same_results(source, tiled)
    alone = replace(kernel, stores=(stores[0],))
    assert only(tile(replace(source, body=(alone,)), WIDE)).tile.row is None
