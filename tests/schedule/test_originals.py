from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.program.expr import Axis, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program
from ostinato.schedule.originals import read_originals
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged, pointwise

N = symbol("N")
i = Axis("i", N)


def copy(name: str, source: str, come_from, to) -> Kernel:
    return Kernel(
        name, (i,), (), (store("b", at(source, (i, 1), offset=come_from), (i, 1), offset=to),)
    )


FIRST, SECOND = copy("first", "w", N, 0), copy("second", "w", 0, N)


def reader(*ranges) -> Kernel:
    """The negative of what lies in these places of the joined buffer, which has 2 N."""
    stores = tuple(
        store("y", op("neg", at("b", (i, step), offset=start)), (i, 1), offset=number * N)
        for number, (start, step) in enumerate(ranges)
    )
    return Kernel("reader", (i,), (), stores)


def joined(*kernels: Kernel) -> Program:
    return program({"w": (2 * N,), "v": (N,)}, {"y": (2 * N,)}, kernels, None, {"b": 2 * N}, ("N",))


def test_parts_are_read_where_they_were():
    source = joined(FIRST, SECOND, reader((0, 1), (N, 1)))
    changed = read_originals(source)
    (kernel,) = changed.kernels()
    assert kernel.reads() == {"w"}
    assert_same_results(source, changed)


def test_a_part_may_be_read_backwards():
    source = joined(FIRST, SECOND, reader((N - 1, -1), (2 * N - 1, -1)))
    changed = read_originals(source)
    assert [k.name for k in changed.kernels()] == ["reader"]
    assert_same_results(source, changed)


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param((FIRST, SECOND, reader((0, 2))), id="a reader of both parts"),
        pytest.param((FIRST, reader((0, 1), (0, 1)), SECOND), id="a reader before the last copy"),
        pytest.param(
            (FIRST, copy("over", "w", 0, 0), reader((0, 1), (0, 1))), id="one over another"
        ),
        pytest.param((FIRST, reader((0, 1), (N, 1))), id="nobody writes the second part"),
        pytest.param(
            (FIRST, pointwise("more", op("exp", at("w", (i, 1))), "b", i), reader((0, 1), (0, 1))),
            id="other values beside copies",
        ),
    ],
)
def test_joined_buffers_stay(kernels):
    check_unchanged(read_originals, joined(*kernels))


def test_what_is_computed_is_copied():
    source = joined(copy("first", "v", 0, 0), SECOND, reader((0, 1), (N, 1)))
    change = Kernel("change", (i,), (), (store("a", op("exp", at("w", (i, 1))), (i, 1)),))
    arena = {**source.buffers, "a": replace(source.buffers["b"], name="a", size=N)}
    kernels = (change, copy("first", "a", 0, 0), SECOND, reader((0, 1), (N, 1)))
    check_unchanged(read_originals, replace(source, buffers=arena).with_body(kernels))
