from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.program.evaluate import evaluate
from ostinato.program.expr import Access, Axis, Extent, Index, Reduced, constant, op, sized
from ostinato.program.kernel import Kernel
from ostinato.schedule.index_maps import (
    Affine,
    as_expr,
    shifter,
    solve,
    split_axis,
    substitute,
    substitute_access,
)
from ostinato.sizes.dims import symbol
from tests.program.programs import at, store

T = symbol("T")
i, j, k, t = Axis("i", 3), Axis("j", 4), Axis("k", 12), Axis("t", T)


def access(*terms, offset=0) -> Access:
    return Access("b", offset, tuple(terms))


def test_addresses_in_terms_of_other_axes():
    image = {k: Affine(5, ((i, 4), (j, 1)))}
    assert substitute_access(access((k, 2), offset=1), image) == access((i, 8), (j, 2), offset=11)
    assert substitute_access(access((t, 7)), image) == access((t, 7))
    # Strides of an axis add up, and an axis without any disappears.
    assert substitute_access(access((k, 2), (i, -8)), image) == access((j, 2), offset=10)


def test_index_maps_as_values():
    image = Affine(T, ((i, 4), (j, 1)))
    value = as_expr(image)
    assert value is op(
        "add", op("add", op("mul", Index(i), constant(4, "int64")), Index(j)), Extent(T)
    )
    assert as_expr(Affine(7, ())) is constant(7, "int64")
    assert as_expr(Affine(0, ((j, 1),))) is Index(j)
    assert sized(T + 1) is Extent(T + 1)


def test_expressions_in_terms_of_other_axes():
    image = {k: Affine(0, ((i, 4), (j, 1)))}
    changed = substitute(op("add", at("x", (k, 2)), at("x", (t, 1))), image)
    assert changed is op("add", at("x", (i, 8), (j, 2)), at("x", (t, 1)))
    assert substitute(Index(k), image) is as_expr(image[k])


def test_reductions_are_renumbered():
    value = op("add", Reduced(0, "float32"), Reduced(2, "float32"))
    assert shifter(3)(value) is op("add", Reduced(3, "float32"), Reduced(5, "float32"))
    assert shifter(0)(value) is value


def test_an_axis_is_split_everywhere():
    kernel = Kernel("k", (k,), (), (store("y", at("x", (k, 2), offset=1), (k, 1)),))
    block, lane = Axis("kb", 3), Axis("kl", 4)
    divided = split_axis(kernel, k, block, lane, None)
    assert divided.axes == (block, lane)
    assert divided.stores == (
        store("y", at("x", (block, 8), (lane, 2), offset=1), (block, 4), (lane, 1)),
    )


DENSE = access((i, 4), (j, 1))
A, B, C = Axis("A", 3), Axis("B", 4), Axis("C", 2)


@pytest.mark.parametrize(
    ("read", "images"),
    [
        (access((A, 4), (B, 1)), {i: Affine(0, ((A, 1),)), j: Affine(0, ((B, 1),))}),
        (access((B, 1), (A, 4)), {i: Affine(0, ((A, 1),)), j: Affine(0, ((B, 1),))}),
        (access(offset=6), {i: Affine(1, ()), j: Affine(2, ())}),
        (access((A, -4), offset=9), {i: Affine(2, ((A, -1),)), j: Affine(1, ())}),
        (access((C, 2), offset=4), {i: Affine(1, ()), j: Affine(0, ((C, 2),))}),
    ],
)  # fmt: skip
def test_the_point_that_wrote_what_is_read(read, images):
    assert solve(DENSE, (i, j), read) == images


@pytest.mark.parametrize(
    ("written", "axes", "read"),
    [
        # Beyond the ends of an axis, although inside the buffer.
        (DENSE, (i, j), access((B, 1), offset=1)),
        (DENSE, (i, j), access((Axis("C", 12), 1))),
        (DENSE, (i, j), access(offset=12)),
        (DENSE, (i, j), access(offset=-1)),
        # Between the elements that were written.
        (access((i, 4)), (i,), access((A, 4), offset=1)),
        (access((i, 4)), (i,), access((B, 2))),
        # All points of an axis wrote the element.
        (access((i, 4)), (i, j), access((A, 4))),
        # Another step of a loop around.
        (access((t, 4), (j, 1)), (j,), access((B, 1))),
        (access((t, 4), (j, 1)), (j,), access((t, 8), (B, 1))),
        # How far it reaches is only known at run time.
        (access((j, 1)), (j,), access((t, 1))),
    ],
)
def test_points_that_strides_cannot_tell(written, axes, read):
    assert solve(written, axes, read) is None


def test_the_same_step_of_a_loop_around():
    read = access((B, 1), (t, 4))
    assert solve(access((t, 4), (j, 1)), (j,), read) == {j: Affine(0, ((B, 1),))}


def test_run_time_strides():
    s, u = Axis("s", T), Axis("u", T)
    images = solve(access((i, T), (s, 1)), (i, s), access((u, 1), offset=T))
    assert images == {i: Affine(1, ()), s: Affine(0, ((u, 1),))}
    assert solve(access((i, T), (s, 1)), (i, s), access((u, 1), offset=3 * T)) is None
    assert solve(access((i, T), (s, 1)), (i, s), access((u, 1), offset=T + 1)) is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_solutions_are_points_of_the_writer_that_wrote_just_these_addresses(data):
    """Random dense stores and random reads: where there is a solution it is right everywhere."""
    extents = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    own = tuple(Axis(f"w{n}", extent) for n, extent in enumerate(extents))
    order = data.draw(st.permutations(range(len(own))))
    strides, step = {}, data.draw(st.integers(1, 2))
    for position in order:
        strides[own[position]] = step
        step *= own[position].extent
    written = access(*strides.items(), offset=data.draw(st.integers(0, 3)))
    readers = [
        Axis(f"r{n}", data.draw(st.integers(1, 4))) for n in range(data.draw(st.integers(0, 3)))
    ]
    terms = [(axis, data.draw(st.integers(-6, 12))) for axis in readers]
    read = access(*terms, offset=data.draw(st.integers(0, 30)))
    images = solve(written, own, read)
    if images is None:
        return
    grid = np.indices([axis.extent for axis in readers]).reshape(
        len(readers), np.prod([a.extent for a in readers], dtype=int)
    )
    index = dict(zip(readers, grid, strict=True))
    target = read.offset + sum((index[axis] * stride for axis, stride in read.terms), 0)
    point = {
        a: evaluate(as_expr(image), lambda leaf: index[leaf.axis]) for a, image in images.items()
    }
    for axis, value in point.items():
        assert (value >= 0).all() and (value < axis.extent).all()
    reached = written.offset + sum(point[axis] * stride for axis, stride in written.terms)
    np.testing.assert_array_equal(reached, target)
