"""Which sizes become symbols of their own, and what is checked of them."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import ShapeError
from ostinato.ops.core.builder import Builder
from ostinato.program.expr import constant
from ostinato.program.nodes import Require
from ostinato.sizes.dims import Size, maximum, symbol

T = symbol("T")
VALUE = symbol("n[0]", signed=True)


@pytest.fixture
def builder() -> Builder:
    made = Builder()
    made.draft.node = "n"
    made.input("x", "float32", (T, 4))
    return made


def test_sizes_of_inputs_stay_expressions(builder: Builder) -> None:
    assert builder.sizes.defined(2 * T + 1, "size") == 2 * T + 1
    assert not builder.draft.definitions


def test_sizes_of_values_are_defined_once(builder: Builder) -> None:
    size = builder.sizes.defined(VALUE + 1, "size")
    assert builder.draft.definitions == [(str(size), maximum(VALUE + 1, 0))]
    assert [check.size for check in builder.draft.checks] == [VALUE + 1]
    assert builder.sizes.defined(VALUE + 1, "size") == size
    assert len(builder.draft.definitions) == 1
    assert builder.require.is_data_dependent(size)


def test_computed_sizes_have_bounds_and_are_checked_where_they_arise(builder: Builder) -> None:
    size = builder.sizes.computed(constant(3, "int64"), T, "count")
    assert builder.limits.upper(2 * size + 1) == 2 * T + 1
    assert builder.draft.buffers[str(size)].kind == "size"
    builder.require.equal(size, 5, "size")
    assert [type(s) for s in builder.draft.body].count(Require) == 2
    assert not builder.draft.checks
    again = builder.sizes.named(size * 2 + 1)
    assert again == builder.sizes.named(size * 2 + 1) != size
    with builder.emit.block([]) as inside:
        assert builder.sizes.named(size * 2 + 1) != again
    assert inside


@pytest.mark.parametrize(("size", "fails"), [(-1, True), (0, False), (T, False), (T - 1, None)])
def test_requirements_fail_now_or_in_a_run(
    builder: Builder, size: Size, fails: bool | None
) -> None:
    if fails:
        with pytest.raises(ShapeError, match=r"node 'n': an extent: -1 is negative"):
            builder.require.nonnegative(size, "an extent")
        return
    builder.require.nonnegative(size, "an extent")
    expected = [] if fails is False else [(size, f"node 'n': an extent: {size} is negative")]
    assert [(check.size, check.message) for check in builder.draft.checks] == expected


def test_what_an_attempt_added_is_forgotten(builder: Builder) -> None:
    mark = builder.checkpoint()
    builder.require.nonnegative(T - 1, "an extent")
    builder.empty("float32", (T, T, T, 1 << 30))
    builder.copy(builder.constant(np.zeros(3, np.float32)), builder.empty("float32", (3,)))
    assert builder.draft.checks and builder.draft.body
    builder.rollback(mark)
    assert not builder.draft.checks and not builder.draft.body
