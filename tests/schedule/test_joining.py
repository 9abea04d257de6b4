"""Which kernels run over the same points, and the kernel that both become."""

from __future__ import annotations

import pytest

from ostinato.program.expr import Axis, Expr, Reduced, cast, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.words import BYTES, word
from ostinato.schedule.joining import AS_WORDS, OTHER_ORDER, bijection, merged, points_read
from tests.program.programs import at, store
from tests.schedule.test_pipeline import pointwise

A, B = Axis("i", 4), Axis("j", 4)


def _writer(axis: Axis = A, stride: int = 1) -> Kernel:
    return Kernel("w", (axis,), (), (store("b", op("exp", at("x", (axis, 1))), (axis, stride)),))


def test_the_axis_of_the_writer_is_one_of_the_reader() -> None:
    images = bijection(_writer(), pointwise("r", at("b", (B, 1)), "y", B))
    assert not isinstance(images, str)
    assert [(axis, image.terms) for axis, image in images.items()] == [(A, ((B, 1),))]


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (pointwise("r", at("b", (B, 0)), "y", B), "several times"),
        (pointwise("r", at("b", (B, 2)), "y", B), OTHER_ORDER),
        (pointwise("r", at("b", (Axis("k", 2), 1)), "y", Axis("k", 2)), "only a part"),
    ],
)
def test_why_points_are_not_the_same(reader: Kernel, reason: str) -> None:
    found = bijection(_writer(stride=3) if reason == OTHER_ORDER else _writer(), reader)
    assert isinstance(found, str) and reason in found


def test_what_nobody_else_reads_is_not_stored() -> None:
    reader = pointwise("r", op("add", at("b", (B, 1)), at("b", (B, 1))), "y", B)
    images = bijection(_writer(), reader)
    assert not isinstance(images, str)
    alone, both = merged(_writer(), reader, images, {"b"}), merged(_writer(), reader, images, set())
    assert alone.writes() == {"y"} and both.writes() == {"b", "y"}
    assert alone.reads() == {"x"} and alone.axes == (B,)


@pytest.mark.parametrize("computed", [True, False])
def test_bytes_that_are_read_as_words_are_computed_before(computed: bool) -> None:
    """Where they are copies, the reader loads words of the original."""
    given = at("x", (A, 1), dtype="uint8")
    value: Expr = cast(op("add", cast(given, "int32"), cast(given, "int32")), "uint8")
    made = Kernel("w", (A,), (), (store("b", value if computed else given, (A, 1)),))
    k = Axis("k", A.extent // BYTES)
    words = word([at("b", (k, BYTES), offset=n, dtype="uint8") for n in range(BYTES)])
    total = Reduce((k,), "sum", words, at("v", (k, 1), dtype="int32"))
    reader = Kernel("r", (), (total,), (store("y", Reduced(0, "int32")),))
    assert points_read(made, reader) == (AS_WORDS if computed else A.extent)
