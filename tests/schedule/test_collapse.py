from __future__ import annotations

from dataclasses import replace

import pytest

from ostinato.program.expr import Axis, Index, Reduced, cast, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program
from ostinato.schedule.collapse import collapse
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import (
    assert_same_results,
    check,
    check_unchanged,
    pointwise,
    product,
)

N = symbol("N")
a, b, c = Axis("a", 2), Axis("b", 3), Axis("c", 4)
n, t = Axis("n", N), Axis("t", symbol("T"))


def one(kernel: Kernel, *shape, symbols=(), inputs=None) -> Program:
    return program(inputs or {"x": (24,)}, {"y": shape}, (kernel,), None, {}, symbols)


def test_dense_axes_become_one():
    kernel = pointwise("k", op("exp", at("x", (a, 12), (b, 4), (c, 1))), "y", a, b, c)
    check(
        collapse,
        one(kernel, 2, 3, 4),
        """
        kernel k [a < 2, b < 3, c < 4] from k
          y[12*a + 4*b + c] = exp(x[12*a + 4*b + c])
        """,
        """
        kernel k [c < 24] from k
          y[c] = exp(x[c])
        """,
    )


def test_rows_of_batch_and_time_are_the_rows_of_one_matrix():
    k, j = Axis("k", 4), Axis("j", 3)
    rows = at("x", (n, symbol("T") * 4), (t, 4), (k, 1))
    kernel = product("k", rows, at("w", (k, 3), (j, 1)), "y", k, n, t, j)
    inputs = {"x": (N, symbol("T"), 4), "w": (4, 3)}
    source = one(kernel, N, symbol("T"), 3, symbols=("N", "T"), inputs=inputs)
    check(
        collapse,
        source,
        """
        kernel k [n < N, t < T, j < 3] from k
          r0 = sum k < 4: fma(x[4*T*n + 4*t + k], w[3*k + j])
          y[3*T*n + 3*t + j] = r0
        """,
        """
        kernel k [t < N*T, j < 3] from k
          r0 = sum k < 4: fma(x[4*t + k], w[3*k + j])
          y[3*t + j] = r0
        """,
    )


def test_reduced_axes_become_one():
    reduce = Reduce((a, b), "sum", at("x", (a, 12), (b, 4), (c, 1)))
    kernel = Kernel("k", (c,), (reduce,), (store("y", Reduced(0, "float32"), (c, 1)),))
    check(
        collapse,
        one(kernel, 4),
        """
        kernel k [c < 4]
          r0 = sum a < 2, b < 3: x[12*a + 4*b + c]
          y[c] = r0
        """,
        """
        kernel k [c < 4]
          r0 = sum b < 6: x[4*b + c]
          y[c] = r0
        """,
    )


def test_axes_along_which_one_operand_does_not_change_become_one():
    kernel = pointwise(
        "k", op("mul", at("x", (a, 12), (b, 4), (c, 1)), at("w", (c, 1))), "y", a, b, c
    )
    check(
        collapse,
        one(kernel, 2, 3, 4, inputs={"x": (24,), "w": (4,)}),
        """
        kernel k [a < 2, b < 3, c < 4] from k
          y[12*a + 4*b + c] = x[12*a + 4*b + c] * w[c]
        """,
        """
        kernel k [b < 6, c < 4] from k
          y[4*b + c] = x[4*b + c] * w[c]
        """,
    )


def test_views_that_memory_can_tell_apart_stay():
    kernel = pointwise("k", at("x", (b, 8), (c, 1)), "y", b, c)
    check_unchanged(collapse, one(kernel, 3, 4))


def test_transposed_axes_stay():
    kernel = pointwise("k", at("x", (b, 1), (c, 3)), "y", b, c)
    check_unchanged(collapse, one(kernel, 3, 4))


@pytest.mark.parametrize("axis", [b, c], ids=str)
def test_axes_that_are_values_stay(axis):
    value = op("add", at("x", (b, 4), (c, 1)), cast(Index(axis), "float32"))
    check_unchanged(collapse, one(pointwise("k", value, "y", b, c), 3, 4))


def test_reductions_in_chains_stay():
    """Which chain an element goes to depends on its place on the last axis."""
    reduce = Reduce((b, c), "sum", at("x", (b, 4), (c, 1)), None, 4)
    kernel = Kernel("k", (), (reduce,), (store("y", Reduced(0, "float32")),))
    check_unchanged(collapse, one(kernel))


def test_reduced_axes_in_another_order_stay():
    """Their elements would be added in the order of memory, not in that of the program."""
    reduce = Reduce((c, b), "sum", at("x", (b, 4), (c, 1)))
    kernel = Kernel("k", (), (reduce,), (store("y", Reduced(0, "float32")),))
    check_unchanged(collapse, one(kernel))


def test_reduced_axes_that_one_operand_tells_apart_stay():
    reduce = Reduce((b, c), "sum", at("x", (b, 4), (c, 1)), at("w", (b, 1)))
    kernel = Kernel("k", (), (reduce,), (store("y", Reduced(0, "float32")),))
    check_unchanged(collapse, one(kernel, inputs={"x": (12,), "w": (3,)}))


def test_what_is_collapsed_stays_so():
    kernel = pointwise("k", op("exp", at("x", (a, 12), (b, 4), (c, 1))), "y", a, b, c)
    check_unchanged(collapse, collapse(one(kernel, 2, 3, 4)))


def test_axes_with_an_order_stay():
    kernel = pointwise("k", op("exp", at("x", (a, 12), (b, 4), (c, 1))), "y", a, b, c)
    kernel = replace(kernel, ordered=(a,))
    check(
        collapse,
        one(kernel, 2, 3, 4),
        """
        kernel k [a < 2, b < 3, c < 4] in order of a from k
          y[12*a + 4*b + c] = exp(x[12*a + 4*b + c])
        """,
        """
        kernel k [a < 2, c < 12] in order of a from k
          y[12*a + c] = exp(x[12*a + c])
        """,
    )


def test_sums_of_equally_many_products_run_in_one_loop():
    i, k, m, n = Axis("i", 2), Axis("k", 3), Axis("m", 3), Axis("n", 4)
    reductions = tuple(
        Reduce((axis,), "sum", at("x", (axis, 1)), at("w", (i, 4), (axis, 1), offset=start))
        for start, axis in enumerate((k, m, n))
    )
    plain = Reduce((Axis("p", 3),), "sum", at("x", (Axis("p", 3), 1)))
    total = op(
        "add", op("add", Reduced(0, "float32"), Reduced(1, "float32")), Reduced(3, "float32")
    )
    total = op("add", total, Reduced(2, "float32"))
    kernel = Kernel("sums", (i,), (*reductions, plain), (store("y", total, (i, 1)),))
    source = program({"x": (4,), "w": (10,)}, {"y": (2,)}, (kernel,))
    (changed,) = collapse(source).kernels()
    assert [r.axes for r in changed.reductions] == [(k,), (k,), (n,), plain.axes]
    assert_same_results(source, collapse(source))


def test_sums_with_a_factor_in_common_come_beside_each_other():
    d = Axis("d", 3)

    def term(vector, axis, offset):
        return Reduce(
            (axis,), "sum", at(vector, (axis, 1)), at("w", (axis, 4), (c, 1), offset=offset)
        )

    sums = (term("x", b, 0), term("z", d, 4), term("x", b, 8), term("z", d, 12))
    left, right = (op("sub", Reduced(i, "float32"), Reduced(i + 1, "float32")) for i in (0, 2))
    stores = (store("y", left, (c, 1)), store("v", right, (c, 1)))
    check(
        collapse,
        program(
            {"x": (3,), "z": (3,), "w": (24,)},
            {"y": (4,), "v": (4,)},
            (Kernel("k", (c,), sums, stores),),
            None,
            {},
            (),
        ),
        """
        kernel k [c < 4]
          r0 = sum b < 3: fma(x[b], w[4*b + c])
          r1 = sum d < 3: fma(z[d], w[4*d + c + 4])
          r2 = sum b < 3: fma(x[b], w[4*b + c + 8])
          r3 = sum d < 3: fma(z[d], w[4*d + c + 12])
          y[c] = r0 - r1
          v[c] = r2 - r3
        """,
        """
        kernel k [c < 4]
          r0 = sum b < 3: fma(x[b], w[4*b + c])
          r1 = sum b < 3: fma(x[b], w[4*b + c + 8])
          r2 = sum b < 3: fma(z[b], w[4*b + c + 4])
          r3 = sum b < 3: fma(z[b], w[4*b + c + 12])
          y[c] = r0 - r2
          v[c] = r1 - r3
        """,
    )
