from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ostinato.program.expr import Access, Axis, Index, Load, Reduced, cast, constant, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Carry, Loop, Program
from ostinato.schedule.fuse import IN_BETWEEN, Refusal, fuse
from ostinato.schedule.joining import (
    APART,
    COMPUTED_INDEX,
    MAX_REDUCTIONS,
    OTHER_LANES,
    PADDED,
    READ_AGAIN,
    TOO_MANY_SUMS,
)
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program, store
from tests.schedule.test_pipeline import assert_same_results, check, pointwise, product

N = 4
A, B, C = (Axis(name, N) for name in "uvo")


def joined(*body, outputs=None, **sizes) -> Program:
    """Kernels between the inputs x [12] and w [12] and the outputs, by default y [4]."""
    source = program(
        {"x": (12,), "w": (12,)},
        outputs or {"y": (N,)},
        body,
        {"R": np.arange(144, dtype=np.float32)},
        sizes,
    )
    return source.with_body(source.body)


def exp(buffer: str, axis: Axis, offset: int = 0):
    return op("exp", at(buffer, (axis, 1), offset=offset))


def test_reader_and_writer_of_the_same_points_become_one():
    first = pointwise("first", exp("x", A), "b", A)
    second = pointwise("second", op("add", at("b", (B, 1)), at("w", (B, 1))), "y", B)
    check(
        fuse,
        joined(first, second, b=N),
        """
        arena b: float32[4]
        kernel first [u < 4] from first
          b[u] = exp(x[u])
        kernel second [v < 4] from second
          y[v] = b[v] + w[v]
        """,
        """
        kernel second [v < 4] from first, second
          y[v] = exp(x[v]) + w[v]
        """,
    )


def test_readers_of_windows_leave_the_writer_its_points():
    """There are as many points as values, some of which are read twice and others never."""
    i, j, c = Axis("i", 3), Axis("j", 2), Axis("c", 6)
    first = pointwise("first", exp("x", c), "b", c)
    windows = pointwise("windows", op("neg", at("b", (i, 1), (j, 1))), "y", i, j)
    others = pointwise("others", at("b", (c, 1)), "z", c)
    source = joined(first, windows, others, outputs={"y": (6,), "z": (6,)}, b=6)
    assert_same_results(source, fuse(source))


def test_values_that_others_read_are_stored_too():
    first = pointwise("first", exp("x", A), "b", A)
    second = pointwise("second", op("neg", at("b", (B, 1))), "y", B)
    check(
        fuse,
        joined(first, second, outputs={"y": (N,), "b": (N,)}),
        """
        kernel first [u < 4] from first
          b[u] = exp(x[u])
        kernel second [v < 4] from second
          y[v] = neg(b[v])
        """,
        """
        kernel second [v < 4] from first, second
          v0 = exp(x[v])
          b[v] = v0
          y[v] = neg(v0)
        """,
    )


def test_gates_that_read_a_product_in_pieces_compute_it():
    """Each of 12 sums is read once, at one of three offsets: none is computed more often."""
    k, i = Axis("k", N), Axis("i", 12)
    sums = product("sums", at("x", (k, 1)), at("R", (k, 12), (i, 1)), "g", k, i)
    z, r, n = (at("g", (B, 1), offset=4 * gate) for gate in range(3))
    new = op("mul", op("tanh", op("add", z, r)), op("sigmoid", n))
    check(
        fuse,
        joined(sums, pointwise("gates", new, "y", B), g=12),
        """
        constant R: float32[144]
        arena g: float32[12]
        kernel sums [i < 12] from sums
          r0 = sum k < 4: fma(x[k], R[12*k + i])
          g[i] = r0
        kernel gates [v < 4] from gates
          y[v] = tanh(g[v] + g[v + 4]) * sigmoid(g[v + 8])
        """,
        """
        constant R: float32[144]
        kernel gates [v < 4] from sums, gates
          r0 = sum k < 4: fma(x[k], R[12*k + v + 8])
          r1 = sum k < 4: fma(x[k], R[12*k + v + 4])
          r2 = sum k < 4: fma(x[k], R[12*k + v])
          y[v] = tanh(r2 + r1) * sigmoid(r0)
        """,
    )


def test_readers_of_disjoint_pieces_compute_their_own():
    k, i = Axis("k", N), Axis("i", 8)
    sums = product("sums", at("x", (k, 1)), at("R", (k, 8), (i, 1)), "g", k, i)
    one = pointwise("one", exp("g", A), "y", A)
    other = pointwise("other", op("neg", at("g", (B, 1), offset=4)), "z", B)
    check(
        fuse,
        joined(sums, one, other, outputs={"y": (N,), "z": (N,)}, g=8),
        """
        constant R: float32[144]
        arena g: float32[8]
        kernel sums [i < 8] from sums
          r0 = sum k < 4: fma(x[k], R[8*k + i])
          g[i] = r0
        kernel one [u < 4] from one
          y[u] = exp(g[u])
        kernel other [v < 4] from other
          z[v] = neg(g[v + 4])
        """,
        """
        constant R: float32[144]
        kernel one [u < 4] from sums, one
          r0 = sum k < 4: fma(x[k], R[8*k + u])
          y[u] = exp(r0)
        kernel other [v < 4] from sums, other
          r0 = sum k < 4: fma(x[k], R[8*k + v + 4])
          z[v] = neg(r0)
        """,
    )


def test_readers_of_rows_do_not_each_load_the_weights():
    """The steps of a loop that was written out leave one product of many rows in front."""
    k, row, i = Axis("k", 8), Axis("t", 2), Axis("i", N)
    sums = Reduce((k,), "sum", at("x", (row, N), (k, 1)), at("R", (k, N), (i, 1)))
    rows = Kernel("rows", (row, i), (sums,), (store("g", Reduced(0, "float32"), (row, N), (i, 1)),))
    one = pointwise("one", exp("g", A), "y", A)
    other = pointwise("other", op("neg", at("g", (B, 1), offset=N)), "z", B)
    source = joined(rows, one, other, outputs={"y": (N,), "z": (N,)}, g=8)
    assert fuse(source) == source
    assert {r.reason.split(": ")[-1] for r in refusals(source)} == {READ_AGAIN}


def test_readers_of_interleaved_parts_store_in_parts():
    pair = Axis("p", 2)
    parts = Kernel("parts", (pair,), (), (
        store("b", op("exp", at("x", (pair, 1))), (pair, 2)),
        store("b", op("neg", at("x", (pair, 1))), (pair, 2), offset=1),
    ))  # fmt: skip
    reader = pointwise("reader", op("add", at("b", (B, 1)), at("w", (B, 1))), "y", B)
    check(
        fuse,
        joined(parts, reader, b=N),
        """
        arena b: float32[4]
        kernel parts [p < 2]
          v0 = x[p]
          b[2*p] = exp(v0)
          b[2*p + 1] = neg(v0)
        kernel reader [v < 4] from reader
          y[v] = b[v] + w[v]
        """,
        """
        kernel reader [vp < 2] from reader
          v0 = x[vp]
          y[2*vp] = exp(v0) + w[2*vp]
          y[2*vp + 1] = neg(v0) + w[2*vp + 1]
        """,
    )


def test_long_sums_with_nothing_in_common_stay_apart():
    k, i, j = Axis("k", 128), Axis("i", 1024), Axis("j", 3)
    left, right = at("x", (j, 128), (k, 1)), at("w", (j, 1024 * 128), (k, 1024), (i, 1))
    sums = store("b", Reduced(0, "float32"), (j, 1024), (i, 1))
    p = Kernel("p", (j, i), (Reduce((k,), "sum", left, right),), (sums,))
    first, second, third = (at("b", (i, 1), offset=1024 * n) for n in range(3))
    c = pointwise("c", op("add", op("add", first, second), third), "y", i)
    shapes = {"x": (3, 128), "w": (3, 128, 1024)}
    source = program(shapes, {"y": (1024,)}, (p, c), arena={"b": 3 * 1024})
    assert [r.reason.rpartition(": ")[2] for r in refusals(source)] == [APART]


def test_equal_reductions_are_computed_once():
    k = Axis("k", N)
    one = product("one", at("x", (k, 1)), at("R", (k, 4), (A, 1)), "b", k, A)
    same = Reduce((k,), "sum", at("x", (k, 1)), at("R", (k, 4), (B, 1)))
    both = op("add", Reduced(0, "float32"), at("b", (B, 1)))
    two = Kernel("two", (B,), (same,), (store("y", both, (B, 1)),))
    check(
        fuse,
        joined(one, two, b=N),
        """
        constant R: float32[144]
        arena b: float32[4]
        kernel one [u < 4] from one
          r0 = sum k < 4: fma(x[k], R[4*k + u])
          b[u] = r0
        kernel two [v < 4]
          r0 = sum k < 4: fma(x[k], R[4*k + v])
          y[v] = r0 + b[v]
        """,
        """
        constant R: float32[144]
        kernel two [v < 4] from one
          r0 = sum k < 4: fma(x[k], R[4*k + v])
          y[v] = r0 + r0
        """,
    )


def test_copies_are_computed_wherever_they_are_read():
    """Loading again costs what loading the copy would, so reading it repeatedly is no reason."""
    copy = pointwise("copy", at("x", (A, 1), offset=2), "b", A)
    k = Axis("k", N)
    sums = product("sums", at("b", (k, 1)), at("R", (k, 4), (B, 1)), "y", k, B)
    check(
        fuse,
        joined(copy, sums, b=N),
        """
        constant R: float32[144]
        arena b: float32[4]
        kernel copy [u < 4] from copy
          b[u] = x[u + 2]
        kernel sums [v < 4] from sums
          r0 = sum k < 4: fma(b[k], R[4*k + v])
          y[v] = r0
        """,
        """
        constant R: float32[144]
        kernel sums [v < 4] from copy, sums
          r0 = sum k < 4: fma(x[k + 2], R[4*k + v])
          y[v] = r0
        """,
    )


def test_masks_of_readers_protect_what_a_copy_reads():
    copy = pointwise("copy", at("x", (A, 1), offset=2), "b", A)
    i = Axis("i", 4)
    inside = op("lt", Index(i), constant(2, "int64"))
    padded = Load(Access("b", 0, ((i, 1),)), "float32", inside, constant(0.0, "float32"))
    kernel = Kernel("pad", (i,), (), (store("y", padded, (i, 1)),))
    check(
        fuse,
        joined(copy, kernel, b=N),
        """
        arena b: float32[4]
        kernel copy [u < 4] from copy
          b[u] = x[u + 2]
        kernel pad [i < 4]
          y[i] = (b[i] if i < 2 else 0.0)
        """,
        """
        kernel pad [i < 4] from copy
          y[i] = (x[i + 2] if i < 2 else 0.0)
        """,
    )


def test_kernels_of_a_loop_are_joined():
    t, k = Axis("t", 3), Axis("k", N)
    sums = product("sums", at("h", (k, 1)), at("R", (k, 4), (A, 1)), "r", k, A)
    new = op("tanh", op("add", at("x", (t, 4), (B, 1)), at("r", (B, 1))))
    body = (sums, pointwise("step", new, "g", B))
    source = joined(
        pointwise("begin", at("w", (C, 1)), "h", C),
        Loop(t, (Carry("h", "g"),), body),
        pointwise("end", at("h", (C, 1)), "y", C),
        r=N, h=N, g=N,
    )  # fmt: skip
    check(
        fuse,
        source,
        """
        constant R: float32[144]
        arena r: float32[4]
        arena h: float32[4]
        arena g: float32[4]
        kernel begin [o < 4] from begin
          h[o] = w[o]
        loop t < 3 carry h <-> g
          kernel sums [u < 4] from sums
            r0 = sum k < 4: fma(h[k], R[4*k + u])
            r[u] = r0
          kernel step [v < 4] from step
            g[v] = tanh(x[4*t + v] + r[v])
        kernel end [o < 4] from end
          y[o] = h[o]
        """,
        """
        constant R: float32[144]
        arena h: float32[4]
        arena g: float32[4]
        kernel begin [o < 4] from begin
          h[o] = w[o]
        loop t < 3 carry h <-> g
          kernel step [v < 4] from sums, step
            r0 = sum k < 4: fma(h[k], R[4*k + v])
            g[v] = tanh(x[4*t + v] + r0)
        kernel end [o < 4] from end
          y[o] = h[o]
        """,
    )


def test_products_in_a_state_are_not_read_before_they_are_complete():
    """The halves of a state are read outside of what the loop's body shows."""
    t, k = Axis("t", 3), Axis("k", N)
    sums = product("sums", at("h", (k, 1)), at("R", (k, 4), (A, 1)), "g", k, A)
    source = joined(
        pointwise("begin", at("w", (C, 1)), "h", C),
        Loop(t, (Carry("h", "g"),), (sums, pointwise("row", at("g", (B, 1)), "s", B))),
        pointwise("end", op("add", at("h", (C, 1)), at("s", (C, 1))), "y", C),
        h=N, g=N, s=N,
    )  # fmt: skip
    fused = fuse(source)
    assert_same_results(source, fused)
    (loop,) = (s for s in fused.body if isinstance(s, Loop))
    (kernel,) = loop.body
    assert kernel.writes() == {"g", "s"}


def test_addresses_with_terms_in_another_order_are_the_same():
    i, j, p, q = Axis("i", 2), Axis("j", 2), Axis("p", 2), Axis("q", 2)
    first = Kernel(
        "first", (i, j), (), (store("b", op("exp", at("x", (i, 2), (j, 1))), (i, 2), (j, 1)),)
    )
    value = op("add", at("b", (q, 1), (p, 2)), at("b", (p, 2), (q, 1)))
    second = Kernel("second", (p, q), (), (store("y", value, (p, 2), (q, 1)),))
    source = joined(first, second, b=4)
    fused = fuse(source)
    (kernel,) = fused.body
    assert kernel.reads() == {"x"}
    assert_same_results(source, fused)


def refusals(source: Program) -> list[Refusal]:
    found: list[Refusal] = []
    fused = fuse(source, found)
    assert_same_results(source, fused)
    return found


def sums(target: str, axis: Axis, *, chains: int = 1, name: str = "p", count: int = 1) -> Kernel:
    """`count` sums of products for each point, one store of their total."""
    k = Axis("k", N)
    reductions = tuple(
        Reduce((k,), "sum", at("x", (k, 1)), at("R", (k, 4), (axis, 1), offset=16 * n), chains)
        for n in range(count)
    )
    total = Reduced(0, "float32")
    for n in range(1, count):
        total = op("add", total, Reduced(n, "float32"))
    return Kernel(name, (axis,), reductions, (store(target, total, (axis, 1)),))


def reader(value, axis: Axis = B, target: str = "y") -> Kernel:
    return pointwise("c", value, target, axis)


def writer() -> Kernel:
    """b = exp(x), which is too dear to be computed twice."""
    return pointwise("p", exp("x", A), "b", A)


def over(element, chains: int = 1) -> Kernel:
    """A kernel that needs all elements for each of its points."""
    reduce = Reduce((Axis("m", N),), "sum", element(Axis("m", N)), None, chains)
    return Kernel(
        "c",
        (B,),
        (reduce,),
        (store("y", op("mul", Reduced(0, "float32"), at("w", (B, 1))), (B, 1)),),
    )


def _masked(axis: Axis) -> Load:
    inside = op("lt", Index(axis), constant(2, "int64"))
    return Load(Access("b", 0, ((axis, 1),)), "float32", inside, constant(0.0, "float32"))


def _parts() -> tuple[Kernel, ...]:
    h = Axis("h", 2)
    return tuple(
        Kernel(f"p{n}", (h,), (), (store("b", exp("x", h, 2 * n), (h, 1), offset=2 * n),))
        for n in (0, 1)
    )


def both(merge: str, inline: str) -> str:
    return f"no common loop: {merge}; not computed by the reader: {inline}"


TWO = Kernel("p", (A,), (), (store("b", exp("x", A), (A, 1)), store("d", exp("w", A), (A, 1))))
HALF = Axis("half", 2)
ALL = "the reader sums or compares many values for each of its own"
OFTEN = "readers would compute values more than once"
REASONS: dict[str, tuple[Callable[[], Program], str]] = {
    "a product of products": (
        lambda: joined(sums("b", A), over(lambda m: at("b", (m, 1))), b=N),
        both(ALL, "the reader sums over values that are sums themselves"),
    ),
    "a sum of functions": (
        lambda: joined(writer(), over(lambda m: at("b", (m, 1))), b=N),
        both(ALL, OFTEN),
    ),
    "functions in two buffers": (
        lambda: joined(TWO, over(lambda m: op("add", at("b", (m, 1)), at("d", (m, 1)))), b=N, d=N),
        both(ALL, "the writer makes several values at once"),
    ),
    "different lanes": (
        lambda: joined(
            sums("b", A),
            replace(
                over(lambda m: at("x", (m, 1)), chains=4),
                stores=(store("y", op("mul", Reduced(0, "float32"), at("b", (B, 1))), (B, 1)),),
            ),
            b=N,
        ),
        OTHER_LANES,
    ),
    "too many sums": (
        lambda: joined(
            sums("b", A, count=MAX_REDUCTIONS),
            replace(
                over(lambda m: at("x", (m, 1))),
                stores=(store("y", op("mul", Reduced(0, "float32"), at("b", (B, 1))), (B, 1)),),
            ),
            b=N,
        ),
        TOO_MANY_SUMS,
    ),
    "two values for each": (
        lambda: joined(
            writer(), reader(op("add", at("b", (B, 1)), at("b", (B, -1), offset=3))), b=N
        ),
        both("the reader needs several values for each of its own", OFTEN),
    ),
    "repeated": (
        lambda: joined(
            sums("b", A),
            pointwise("c", at("b", (B, 1)), "y", Axis("rows", 3), B),
            outputs={"y": (3, N)}, b=N,
        ),
        both("the reader uses each value several times", OFTEN),
    ),
    "a part": (
        lambda: joined(
            writer(), reader(exp("b", HALF, 1), HALF),
            outputs={"y": (2,), "b": (N,)},
        ),
        both(
            "the reader uses only a part of the values",
            "the value is also an output, or needed outside of this loop or branch",
        ),
    ),
    "no map": (
        lambda: joined(
            writer(),
            reader(Load(Access("b", 0, ()), "float32", None, None, ((Index(B), 1),))), b=N,
        ),
        COMPUTED_INDEX,
    ),
    "padding": (
        lambda: joined(sums("b", A), reader(_masked(B)), b=N),
        PADDED,
    ),
    "another reader between": (
        lambda: joined(
            writer(),
            replace(over(lambda m: at("b", (m, 1))), name="between"),
            replace(
                over(lambda m: at("y", (m, 1))),
                stores=(store("z", op("mul", Reduced(0, "float32"), at("b", (B, 1))), (B, 1)),),
            ),
            outputs={"y": (N,), "z": (N,)}, b=N,
        ),
        both(IN_BETWEEN, OFTEN),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_refusals_have_a_reason(name):
    make, reason = REASONS[name]
    source = make()
    found = [r for r in refusals(source) if (r.producer, r.consumer) == ("p", "c")]
    assert found == [Refusal("p", "c", reason)]


def test_values_in_parts_are_read_where_they_are():
    source = joined(*_parts(), reader(exp("b", B)), b=N)
    assert refusals(source) == []
    assert fuse(source) == source


def test_a_loop_that_reads_keeps_its_writer_outside():
    t = Axis("t", 3)
    rows = Kernel("c", (B,), (), (store("y", op("neg", at("b", (B, 1))), (t, 4), (B, 1)),))
    source = joined(writer(), Loop(t, (), (rows,)), outputs={"y": (3, N)}, b=N)
    assert fuse(source) == source


def test_writers_behind_are_no_producers():
    """What is read was there before: the buffer changes later."""
    t = Axis("t", 2)
    late = Loop(t, (Carry("h", "g"),), (
        pointwise("reads", op("neg", at("h", (A, 1))), "g", A),
        pointwise("writes", exp("x", B), "b", B),
    ))  # fmt: skip
    source = joined(
        pointwise("begin", at("x", (A, 1)), "h", A), late,
        pointwise("end", op("add", at("h", (C, 1)), at("b", (C, 1))), "y", C), h=N, g=N, b=N,
    )  # fmt: skip
    assert_same_results(source, fuse(source))


def test_run_time_sizes():
    t = symbol("T")
    i, j, k = Axis("i", t), Axis("j", 3 * t), Axis("k", N)
    sums = product("sums", at("x", (j, 4), (k, 1)), at("R", (k, 1)), "b", k, j)
    gates = op("mul", at("b", (i, 1), offset=t), op("tanh", at("b", (i, 1))))
    total = op("add", gates, at("b", (i, 1), offset=2 * t))
    source = program(
        {"x": (3, t, N)}, {"y": (t,)}, (sums, pointwise("gates", total, "y", i)),
        {"R": np.arange(4, dtype=np.float32)}, {"b": 3 * t}, ("T",),
    )  # fmt: skip
    fused = fuse(source)
    (kernel,) = fused.body
    assert len(kernel.reductions) == 3
    assert_same_results(source, fused)


def running(name: str, source, buffer: str, axis: Axis) -> Kernel:
    """`buffer[i] = buffer[i - 1] + source[i]`."""
    first = op("eq", Index(axis), constant(0, "int64"))
    zero = constant(0.0, "float32")
    before = Load(Access(buffer, -1, ((axis, 1),)), "float32", op("not", first), zero)
    kernel = pointwise(name, op("add", before, source), buffer, axis)
    return replace(kernel, ordered=(axis,))


def test_a_reader_in_order_computes_what_it_reads():
    first = pointwise("first", exp("x", A), "b", A)
    check(
        fuse,
        joined(first, running("sums", at("b", (B, 1)), "y", B), b=N),
        """
        arena b: float32[4]
        kernel first [u < 4] from first
          b[u] = exp(x[u])
        kernel sums [v < 4] in order of v from sums
          y[v] = (y[v - 1] if not(v == 0) else 0.0) + b[v]
        """,
        """
        kernel sums [v < 4] in order of v from first, sums
          y[v] = (y[v - 1] if not(v == 0) else 0.0) + exp(x[v])
        """,
    )


def test_writers_in_order_stay_apart():
    lost: list[Refusal] = []
    second = pointwise("second", exp("b", B), "y", B)
    source = joined(running("sums", at("x", (A, 1)), "b", A), second, b=N)
    assert fuse(source, lost) == source
    assert [r.reason for r in lost] == ["the writer's steps depend on each other"]


def test_writers_at_computed_positions_stay_apart():
    lost: list[Refusal] = []
    first = pointwise("first", exp("x", A), "b", A)
    (target,) = first.stores
    place = op("sub", constant(3, "int64"), Index(A))
    moved = replace(target, access=Access("b", 0, ()), index=((place, 1),))
    source = joined(replace(first, stores=(moved,)), pointwise("second", exp("b", B), "y", B), b=N)
    assert fuse(source, lost) == source
    reason = "the writer picks places by indices that are computed while running"
    assert [r.reason for r in lost] == [reason]


def test_a_value_is_not_computed_again_where_it_has_changed():
    """The copy is read before and after an update in place: it must not move behind the update."""
    source_copy = pointwise("copy", exp("x", A), "b", A)
    (target,) = pointwise("update", at("w", (B, 1)), "b", B).stores
    place = op("sub", constant(3, "int64"), Index(B))
    moved = replace(target, access=Access("b", 0, ()), index=((place, 1),))
    update = Kernel("update", (B,), (), (moved,))
    after = pointwise("after", op("neg", at("b", (C, 1))), "y", C)
    source = joined(source_copy, update, after, b=N)
    assert_same_results(source, fuse(source))


def test_a_writer_may_write_parts_of_what_others_read():
    """Only what the reader itself reads must be one store's."""
    values = tuple(store("b", exp("x", A, 4 * n), (A, 1), offset=4 * n) for n in range(2))
    first = Kernel("first", (A,), (), (*values, store("a", exp("w", A), (A, 1))))
    second = pointwise("second", op("neg", at("a", (B, 1))), "y", B)
    n = Axis("n", 8)
    third = pointwise("third", op("abs", at("b", (n, 1))), "z", n)
    source = joined(first, second, third, outputs={"y": (N,), "z": (8,)}, a=N, b=8)
    fused = fuse(source)
    assert [kernel.name for kernel in fused.kernels()] == ["second", "third"]
    assert_same_results(source, fused)


def blocks(*, terms: int = 2, read_by: str = "sum") -> Program:
    """`y[o] = sum_u x[u] * part[u, o]`, where `part` is a sum of products of words."""
    t, other = Axis("t", terms), Axis("b", N)
    words = (
        at("q", (A, terms), (t, 1), dtype="int32"),
        at("W", (A, terms * N), (t, N), (C, 1), dtype="int32"),
    )
    part = Kernel(
        "part",
        (A, C),
        (Reduce((t,), "sum", *words),),
        (store("p", cast(Reduced(0, "int32"), "float32"), (A, N), (C, 1)),),
        sources=("part",),
    )
    value = at("p", (other, N), (B, 1))
    expr, factor = (at("x", (other, 1)), value) if read_by == "product" else (value, None)
    reduce = Reduce((other,), "sum", expr, factor)
    whole = Kernel("whole", (B,), (reduce,), (store("y", Reduced(0, "float32"), (B, 1)),))
    weights = np.random.default_rng(0).integers(-(2**31), 2**31, N * terms * N, np.int64)
    source = program(
        {"x": (N,), "q": (N * terms,)},
        {"y": (N,)},
        (part, replace(whole, sources=("whole",))),
        {"W": weights.astype(np.int32)},
        {"p": N * N},
        dtypes={"q": "int32"},
    )
    return source


def test_few_products_of_words_are_written_out_in_a_sum_of_products():
    check(
        fuse,
        blocks(read_by="product"),
        """
        constant W: int32[32]
        arena p: float32[16]
        kernel part [u < 4, o < 4] from part
          r0 = sum t < 2: dot(q[2*u + t], W[8*u + 4*t + o])
          p[4*u + o] = float32(r0)
        kernel whole [v < 4] from whole
          r0 = sum b < 4: fma(x[b], p[4*b + v])
          y[v] = r0
        """,
        """
        constant W: int32[32]
        kernel whole [v < 4] from part, whole
          r0 = sum b < 4: fma(x[b], float32({words}))
          y[v] = r0
        """.replace("{words}", "dot(q[2*b + 1], W[8*b + v + 4], dot(q[2*b], W[8*b + v], 0))"),
    )


@pytest.mark.parametrize("about", [{"read_by": "sum"}, {"read_by": "product", "terms": 256}])
def test_other_sums_of_words_stay_apart(about):
    source = blocks(**about)
    assert len(fuse(source).body) == 2
