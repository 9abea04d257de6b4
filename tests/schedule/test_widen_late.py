from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Axis, cast, op
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Carry, Loop, Program
from ostinato.schedule.widen_late import widen_late
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import (
    assert_same_results,
    check,
    check_unchanged,
    pointwise,
    product,
)

i, j, k = Axis("i", 4), Axis("j", 2), Axis("k", 4)
b, s, w = Axis("b", 2), Axis("s", 2), Axis("w", 2)
NARROW = np.arange(-4, 4, dtype=np.int8)
SCALED = op("mul", cast(at("q", (i, 2), (j, 1), dtype="int8"), "float32"), at("scale", (j, 1)))


def loop(*before: Kernel, scale=2, **arena) -> Program:
    """`h = h @ w`, three times, with weights that kernels before the loop make."""
    n, m = Axis("n", 2), Axis("m", 2)
    step = product("step", at("h", (n, 1)), at("w", (n, 2), (m, 1)), "g", n, m)
    return program(
        {"h0": (2,)},
        {"y": (2,)},
        (
            pointwise("begin", at("h0", (s, 1)), "h", s),
            *before,
            Loop(Axis("t", 3), (Carry("h", "g"),), (step,)),
            pointwise("end", at("h", (w, 1)), "y", w),
        ),
        {"q": NARROW, "scale": np.array([0.5, 3.0], np.float32)[:scale]},
        {"h": 2, "g": 2, "w": 8, **arena},
    )


def test_steps_of_a_loop_read_weights_as_they_are_stored():
    check(
        widen_late,
        loop(pointwise("widen", SCALED, "w", i, j)),
        """
        constant q: int8[8]
        constant scale: float32[2]
        arena h: float32[2]
        arena g: float32[2]
        arena w: float32[8]
        kernel begin [s < 2] from begin
          h[s] = h0[s]
        kernel widen [i < 4, j < 2] from widen
          w[2*i + j] = float32(q[2*i + j]) * scale[j]
        loop t < 3 carry h <-> g
          kernel step [m < 2] from step
            r0 = sum n < 2: fma(h[n], w[2*n + m])
            g[m] = r0
        kernel end [w < 2] from end
          y[w] = h[w]
        """,
        """
        constant q: int8[8]
        constant scale: float32[2]
        arena h: float32[2]
        arena g: float32[2]
        kernel begin [s < 2] from begin
          h[s] = h0[s]
        loop t < 3 carry h <-> g
          kernel step [m < 2] from widen, step
            r0 = sum n < 2: fma(h[n], float32(q[2*n + m]) * scale[m])
            g[m] = r0
        kernel end [w < 2] from end
          y[w] = h[w]
        """,
    )


def test_what_is_widened_in_several_kernels_is_widened_by_the_reader():
    wide = pointwise("widen", cast(at("q", (i, 2), (j, 1), dtype="int8"), "float32"), "v", i, j)
    a, c = Axis("a", 4), Axis("c", 2)
    scaled = op("mul", at("v", (a, 2), (c, 1)), at("scale", (c, 1)))
    changed = widen_late(loop(wide, pointwise("scale", scaled, "w", a, c), v=8))
    assert [kernel.name for kernel in changed.kernels()] == ["begin", "step", "end"]


def blocked(length: int, terms: int = 8) -> Program:
    """A product with weights that have a scale for every `length` rows."""
    rows, inside, column = Axis("rows", terms // length), Axis("inside", length), Axis("u", 2)
    weight = at("q", (rows, 2 * length), (inside, 2), (column, 1), dtype="int8")
    value = op("mul", cast(weight, "float32"), at("scale", (rows, 2), (column, 1)))
    r, out = Axis("r", terms), Axis("out", 2)
    return program(
        {"x": (terms,)},
        {"y": (2,)},
        (
            pointwise("widen", value, "w", rows, inside, column),
            product("product", at("x", (r, 1)), at("w", (r, 2), (out, 1)), "y", r, out),
        ),
        {
            "q": np.arange(2 * terms, dtype=np.int8),
            "scale": np.linspace(0.1, 1, 2 * terms // length, dtype="f"),
        },
        {"w": 2 * terms},
    )


def test_a_sum_over_blocks_with_a_scale_each_is_cut_at_their_ends():
    check(
        widen_late,
        blocked(4),
        """
        constant q: int8[16]
        constant scale: float32[4]
        arena w: float32[16]
        kernel widen [rows < 2, inside < 4, u < 2] from widen
          w[8*rows + 2*inside + u] = float32(q[8*rows + 2*inside + u]) * scale[2*rows + u]
        kernel product [out < 2] from product
          r0 = sum r < 8: fma(x[r], w[2*r + out])
          y[out] = r0
        """,
        """
        constant q: int8[16]
        constant scale: float32[4]
        kernel product [out < 2] from widen, product
          r0 = sum ro < 2, ri < 4: fma(x[4*ro + ri], float32(q[8*ro + 2*ri + out]) * scale[2*ro + out])
          y[out] = r0
        """,  # noqa: E501
    )


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, 1e-45])
def test_scales_may_be_any_number(value):
    source = blocked(4)
    scales = source.constants["scale"].copy()
    scales[1] = value
    source = replace(source, constants={**source.constants, "scale": scales})
    assert_same_results(source, widen_late(source))


def test_what_has_other_readers_than_kernels_or_is_no_narrower_stays():
    value = op("mul", at("scale", (j, 1)), at("scale", (j, 1)))
    check_unchanged(widen_late, loop(pointwise("square", value, "w", i, j)))
    shown = program(
        {"x": (8,)},
        {"y": (8,)},
        (pointwise("widen", cast(at("q", (k, 1), dtype="int8"), "float32"), "y", k),),
        {"q": NARROW},
    )
    check_unchanged(widen_late, shown)


def test_a_state_that_begins_as_a_widened_constant_is_written():
    n = Axis("n", 2)
    first = Kernel(
        "first", (s,), (), (store("h", cast(at("q", (s, 1), dtype="int8"), "float32"), (s, 1)),)
    )
    body = pointwise("step", op("neg", at("h", (n, 1))), "g", n)
    source = program(
        {"x": (1,)},
        {"y": (2,)},
        (
            first,
            Loop(Axis("t", 3), (Carry("h", "g"),), (body,)),
            pointwise("end", at("h", (w, 1)), "y", w),
        ),
        {"q": NARROW},
        {"h": 2, "g": 2},
    )
    check_unchanged(widen_late, source)
