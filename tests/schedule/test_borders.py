"""Padded copies: the inside and the border, and writers that write inside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.machine.record import AVX2, AVX512
from ostinato.program.expr import Access, Axis, Extent, Index, Load, constant, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Program
from ostinato.schedule.borders import padded_parts
from ostinato.schedule.elide import LONG_ROW, LONG_ROW_WITHOUT_MASKS, elide_copies
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results


def padded(height, breadth, before: tuple[int, int], after: tuple[int, int]) -> Kernel:
    """`p[y, x]` is `b[y - before, x - before]` inside, -1 around it."""
    total = height + before[0] + after[0], breadth + before[1] + after[1]
    y, x = Axis("py", total[0]), Axis("px", total[1])
    mask = None
    for axis, first, extent in ((y, before[0], height), (x, before[1], breadth)):
        for name, bound in (("ge", first), ("lt", first + extent)):
            test = op(name, Index(axis), Extent(bound))
            mask = test if mask is None else op("and", mask, test)
    offset = -before[0] * breadth - before[1]
    value = Load(
        Access("b", offset, ((y, breadth), (x, 1))), "float32", mask, constant(-1, "float32")
    )
    return Kernel("pad", (y, x), (), (store("p", value, (y, total[1]), (x, 1)),))


def network(height, breadth, before: tuple[int, int], after: tuple[int, int]) -> Program:
    """`b = -a`, padded; `z = p`, `w = b * b`: the value is also read without its border."""
    y, x = Axis("y", height), Axis("x", breadth)
    kernel = padded(height, breadth, before, after)
    v, u = Axis("v", kernel.axes[0].extent), Axis("u", kernel.axes[1].extent)
    here, there = ((y, breadth), (x, 1)), ((v, u.extent), (u, 1))
    twice = op("mul", at("b", *here), at("b", *here))
    body = (
        Kernel("b", (y, x), (), (store("b", op("neg", at("a", *here)), *here),)),
        kernel,
        Kernel("z", (v, u), (), (store("z", op("neg", at("p", *there)), *there),)),
        Kernel("w", (y, x), (), (store("w", twice, *here),)),
    )
    return program(
        {"a": (height, breadth)},
        {"z": (v.extent, u.extent), "w": (height, breadth)},
        body,
        arena={"b": height * breadth, "p": v.extent * u.extent},
        symbols=tuple(s for n, s in ((height, "H"), (breadth, "W")) if not isinstance(n, int)),
    )


@pytest.mark.parametrize(
    ("before", "after"), [((1, 1), (1, 1)), ((2, 0), (1, 0)), ((0, 3), (0, 3)), ((0, 1), (2, 0))]
)
@pytest.mark.parametrize(("height", "breadth"), [(4, 5), (1, 6), (3, 1)])
def test_the_writer_writes_inside_a_border(height, breadth, before, after):
    source = network(height, breadth, before, after)
    changed = elide_copies(source, AVX512)
    assert_same_results(source, changed)
    assert "b" not in changed.buffers
    assert "pad" not in [kernel.name for kernel in changed.kernels()]


def test_sizes_that_only_a_run_tells():
    source = network(symbol("H"), symbol("W"), (1, 1), (1, 1))
    assert_same_results(source, elide_copies(source, AVX512))


@pytest.mark.parametrize(
    ("breadth", "machine", "is_masked"),
    [
        (5, AVX512, True),
        (LONG_ROW - 1, AVX512, True),
        (LONG_ROW, AVX512, False),
        (LONG_ROW_WITHOUT_MASKS - 1, AVX2, True),
        (LONG_ROW_WITHOUT_MASKS, AVX2, False),
    ],
)
def test_a_value_of_the_caller_stays_a_copy(breadth, machine, is_masked):
    """A masked one where rows are short."""
    source = network(4, breadth, (1, 1), (1, 1))
    buffers = {**source.buffers, "b": replace(source.buffers["b"], kind="output")}
    changed = elide_copies(replace(source, buffers=buffers), machine)
    (copy,) = (kernel for kernel in changed.kernels() if kernel.name == "pad")
    assert any(load.mask is not None for load in copy.loads()) == is_masked
    assert_same_results(source, elide_copies(source, machine))


def test_sides_of_one_thickness_share_a_kernel():
    parts = padded_parts(padded(4, 5, (1, 2), (1, 3)))
    assert parts is not None
    inside, border = parts
    assert [axis.extent for axis in inside.axes] == [4, 5]
    assert [len(kernel.stores) for kernel in border] == [2, 1, 1]


def test_what_is_computed_of_a_padded_value_has_a_border():
    source = network(4, 5, (1, 2), (0, 1))
    pad = source.body[1]
    assert isinstance(pad, Kernel)
    (found,) = pad.stores
    _, x = pad.axes
    value = op("mul", op("neg", found.value), at("a", (x, 1)))
    changed = replace(pad, stores=(replace(found, value=value),))
    parts = padded_parts(changed)
    assert parts is not None
    inside, border = parts
    assert not any(load.mask is not None for k in (inside, *border) for load in k.loads())
    before, behind = ((source.body[0],), source.body[2:])
    assert_same_results(
        source.with_body((*before, changed, *behind)),
        source.with_body((*before, *border, inside, *behind)),
    )


def test_other_kernels_have_no_border():
    kernel = padded(4, 5, (1, 1), (1, 1))
    (found,) = kernel.stores
    assert isinstance(found.value, Load) and found.value.mask is not None
    y, x = kernel.axes
    diagonal = op("lt", op("add", Index(y), Index(x)), Extent(4))
    for value in (
        replace(found.value, mask=None, other=None),
        replace(found.value, mask=diagonal),
        replace(found.value, mask=op("or", *found.value.mask.args)),
        op("add", found.value, replace(found.value, mask=diagonal)),
    ):
        assert padded_parts(replace(kernel, stores=(replace(found, value=value),))) is None
    negative = padded(4, 5, (-1, 0), (0, 0))
    assert padded_parts(negative) is None
