"""Inputs that may be one memory with an output, which they become but for some stores."""

from __future__ import annotations

from ostinato.program.expr import Access, Axis, constant, op
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Program, Require
from ostinato.schedule.replaced import replaced_inputs
from ostinato.sizes.dims import maximum, minimum, symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import pointwise

M = 6
i, half = Axis("i", M), Axis("half", 3)
copy = pointwise("copy", at("x", (i, 1)), "y", i)
put = Kernel(
    "put", (), (), (Store(Access("y", 2, ()), constant(1.0, "float32"), constant(True, "bool")),)
)
read_x = pointwise("read x", op("neg", at("x", (i, 1))), "z", i)
read_y = pointwise("read y", op("neg", at("y", (i, 1))), "z", i)
check = Require("ok", "no")


def found(*body) -> dict[str, tuple[int, int]]:
    source: Program = program(
        {"w": (M,), "x": (M,)}, {"z": (M,), "y": (M,)}, body, arena={"ok": 1, "a": M}
    )
    return replaced_inputs(source)


def test_a_copy_that_is_stored_into_may_be_its_original():
    assert found(read_x, check, copy, put, read_y) == {"copy": (1, 1)}
    assert found(copy, read_x, put) == {"copy": (1, 1)}
    assert found(copy) == {"copy": (1, 1)}


def test_an_original_that_is_read_behind_the_store_is_another_memory():
    assert found(copy, put, read_x) == {}


def test_a_check_behind_the_store_could_leave_it_half_done():
    assert found(copy, put, check) == {}


def test_the_rest_is_stored_behind_a_copy_of_a_part():
    part = pointwise("part", at("x", (half, 1)), "y", half)
    rest = pointwise("rest", at("w", (half, 1)), "y", half, offset=3)
    assert found(part, rest, put) == {"part": (1, 1)}
    assert found(rest, part, put) == {}


def test_elements_that_move_are_copied():
    moved = pointwise("moved", at("x", (i, -1), offset=M - 1), "y", i)
    assert found(moved, put) == {}


def test_sizes_that_may_be_others_are_taken_to_be_the_same():
    rows, least = symbol("rows"), symbol("least")
    longer = maximum(rows, least)
    n, r, k = Axis("n", 2), Axis("r", minimum(rows, least)), Axis("k", 3)
    for length, expected in ((longer, {"copy": (0, 0)}), (longer + 1, {})):
        terms = (n, 3 * length), (r, 3), (k, 1)
        load = at("x", (n, 3 * rows), (r, 3), (k, 1))
        source = program(
            {"x": (2, rows, 3), "w": (least,)},
            {"y": (2, length, 3)},
            (Kernel("copy", (n, r, k), (), (store("y", load, *terms),)),),
            symbols=("rows", "least"),
        )
        assert replaced_inputs(source) == expected


def test_what_is_written_before_would_be_lost():
    assert found(put, copy) == {}


def test_an_input_that_becomes_two_outputs_is_copied():
    other = pointwise("other", at("x", (i, 1)), "z", i)
    assert found(copy, other) == {}
    assert found(pointwise("inner", at("x", (i, 1)), "a", i)) == {}
