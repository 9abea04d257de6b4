"""Joined parts are copied once, and neighbours in memory stay neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.joined_parts import laid_out
from ostinato.ops.core.tensor import Joined, Tensor, insert_ones, transpose
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Stmt
from ostinato.sizes.dims import symbol

PAST, NEW = symbol("P"), symbol("T")
SWAPPED = (0, 2, 1)


@pytest.fixture
def builder() -> Builder:
    return Builder()


def joined(builder: Builder) -> Joined:
    """Two inputs `[2, .., 5]`, joined along the axis in the middle."""
    parts = tuple(builder.input(str(n), "float32", (2, n, 5)) for n in (PAST, NEW))
    return Joined("float32", (2, PAST + NEW, 5), 1, parts)


def buffer(value: Tensor) -> str:
    assert value.base is not None
    return value.base.buffer


def test_equal_parts_share_a_copy(builder: Builder) -> None:
    value = joined(builder)
    first = builder.strided(value)
    again = Joined(value.dtype, value.shape, value.axis, value.parts)
    assert buffer(builder.strided(again)) == buffer(first)
    other = Joined(value.dtype, value.shape, value.axis, value.parts[::-1])
    assert buffer(builder.strided(other)) != buffer(first)


def test_views_share_it_too(builder: Builder) -> None:
    value = joined(builder)
    first = builder.strided(value)
    view = transpose(value, SWAPPED)
    found = builder.strided(view)
    assert buffer(found) == buffer(first)
    assert found.shape == view.shape
    assert found.strides == tuple(first.strides[i] for i in SWAPPED)
    wide = builder.strided(insert_ones(value, (1,)))
    assert buffer(wide) == buffer(first)
    assert wide.shape == (2, 1, PAST + NEW, 5)


def test_neighbours_stay_neighbours(builder: Builder) -> None:
    view = transpose(joined(builder), SWAPPED)
    assert isinstance(view, Joined)
    assert laid_out(view).shape == (2, PAST + NEW, 5)
    assert builder.strided(view).strides == (5 * PAST + 5 * NEW, 1, 5)


def test_parts_that_disagree_are_copied_as_they_are(builder: Builder) -> None:
    left = builder.input("left", "float32", (3, 4))
    right = transpose(builder.input("right", "float32", (5, 3)), (1, 0))
    assert isinstance(right, Tensor)
    value = Joined("float32", (3, 9), 1, (left, right))
    assert builder.strided(value).strides == (9, 1)


def test_other_statements_make_their_own(builder: Builder) -> None:
    value = joined(builder)
    inside: list[Stmt] = []
    with builder.emit.block(inside):
        made = buffer(builder.strided(value))
    assert len(inside) == 2
    assert buffer(builder.strided(value)) != made


def test_what_is_taken_back_is_made_again(builder: Builder) -> None:
    value = joined(builder)
    mark = builder.checkpoint()
    builder.strided(value)
    builder.rollback(mark)
    builder.output("y", builder.strided(value))
    program = builder.draft.finish()
    assert len(program.body) == 3


def test_constants_without_memory_have_no_identity(builder: Builder) -> None:
    one, two = (builder.constant(np.full((1, 3), n, np.float32)) for n in (1, 2))
    first = builder.strided(Joined("float32", (2, 3), 0, (one, two)))
    second = builder.strided(Joined("float32", (2, 3), 0, (two, one)))
    assert buffer(first) != buffer(second)


def test_more_parts_are_laid_behind_a_copy_of_the_first(builder: Builder) -> None:
    value = joined(builder)
    first = builder.strided(value)
    behind = builder.input("behind", "float32", (2, 4, 5))
    longer = Joined("float32", (2, PAST + NEW + 4, 5), 1, (*value.parts, behind))
    before = len(builder.draft.body)
    builder.strided(transpose(longer, SWAPPED))
    copies = [kernel for kernel in builder.draft.body[before:] if isinstance(kernel, Kernel)]
    assert len(copies) == 2
    reads = {load.access.buffer for kernel in copies for load in kernel.loads()}
    assert reads == {buffer(first), buffer(behind)}
