"""Checks of indices move to the front, where nothing changes for what they move past."""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.expr import Axis, cast, constant, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program, Require
from ostinato.schedule.checks_first import checks_first
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, pointwise

M = 6
i = Axis("i", M)
CHECK = Require("ok", "it is large")


def is_small(source: str, target: str = "ok", dtype: str = "int64") -> Kernel:
    """Whether the first element is below 1,000."""
    found = op("lt", cast(at(source, dtype=dtype), "int64"), constant(1000, "int64"))
    return Kernel(f"{target} of {source}", (), (), (store(target, found),))


def checked(*body) -> Program:
    source = program({"x": (M,)}, {"y": (M,)}, body, arena={"a": M, "n": 1, "ok": 1})
    kinds = {"n": "int64", "ok": "bool"}
    buffers = {
        name: replace(b, dtype=kinds.get(name, b.dtype)) for name, b in source.buffers.items()
    }
    return replace(source, buffers=buffers)


double = pointwise("double", op("add", at("x", (i, 1)), at("x", (i, 1))), "a", i)
result = pointwise("result", at("a", (i, 1)), "y", i)
counted = Kernel("count", (), (), (store("n", constant(0, "int64")),))


def order(source: Program) -> list[str]:
    changed = checks_first(source)
    assert_same_results(source, changed)
    return [s.name if isinstance(s, Kernel) else "check" for s in changed.body]


def test_a_check_of_integers_comes_with_what_it_needs():
    source = checked(double, counted, result, is_small("n"), CHECK)
    assert order(source) == ["count", "ok of n", "check", "double", "result"]


def test_a_check_of_floats_stays_behind_what_computes_them():
    source = checked(double, is_small("a", dtype="float32"), CHECK, result)
    assert order(source) == ["double", "ok of a", "check", "result"]


def test_what_still_reads_the_value_before_comes_first():
    again = replace(counted, name="again")
    reader = pointwise("reader", cast(at("n", dtype="int64"), "float32"), "a", i)
    source = checked(counted, reader, again, is_small("n"), CHECK, result)
    assert order(source) == ["count", "reader", "again", "ok of n", "check", "result"]


def test_checks_keep_their_order():
    second = Require("ok", "another")
    source = checked(counted, is_small("n"), CHECK, double, result, second)
    changed = checks_first(source)
    assert [s for s in changed.body if isinstance(s, Require)] == [CHECK, second]
    assert changed.body[-2:] == (double, result)
