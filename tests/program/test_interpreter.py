from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.errors import InputError, RunError, ShapeError
from ostinato.program.expr import Access, Axis, Extent, Index, Load, Reduced, cast, constant, op
from ostinato.program.interpreter import run
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Branch, Buffer, Carry, Check, Interface, Loop, Program, Require
from ostinato.program.verify import ProgramError, verify
from ostinato.sizes.dims import symbol
from tests.program.programs import at, gru, pointwise, program, reduction, store

F = np.float32


def test_pointwise():
    p = pointwise(lambda x: op("add", x, x))
    np.testing.assert_array_equal(run(p, {"x": F([1, 2, 3, 4])})["y"], [2, 4, 6, 8])


def test_views_are_strides_and_offsets():
    i, j = Axis("i", 2), Axis("j", 3)
    kernel = Kernel(
        "k", (i, j), (), (store("y", at("x", (i, 1), (j, -2), offset=4), (j, 2), (i, 1)),)
    )
    p = program({"x": (6,)}, {"y": (3, 2)}, (kernel,))
    expected = np.arange(6).reshape(3, 2)[::-1]
    np.testing.assert_array_equal(run(p, {"x": np.arange(6, dtype=F)})["y"], expected)


def test_inputs_need_not_be_contiguous():
    p = pointwise(lambda x: x)
    np.testing.assert_array_equal(run(p, {"x": np.arange(8, dtype=F)[::2]})["y"], [0, 2, 4, 6])


@pytest.mark.parametrize(
    ("combine", "expected"), [("sum", 10), ("prod", 24), ("min", 1), ("max", 4), ("larger", 4)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_reductions(combine, expected, dtype):
    x = np.array([2, 1, 4, 3], dtype)
    assert run(reduction(combine, 4, dtype=dtype), {"x": x})["y"] == expected


@pytest.mark.parametrize(
    ("combine", "dtype", "expected"),
    [
        ("sum", "float32", 0),
        ("prod", "float32", 1),
        ("max", "float32", -np.inf),
        ("min", "float64", np.inf),
        ("larger", "float64", -np.inf),
        ("max", "int8", -128),
        ("min", "uint16", 65535),
        ("max", "bool", False),
        ("min", "bool", True),
    ],
)
def test_reductions_of_nothing(combine, dtype, expected):
    p = reduction(combine, 0, dtype=dtype)
    assert run(p, {"x": np.empty(0, dtype)})["y"] == expected


def test_elements_are_accumulated_one_after_the_other():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(1000).astype(F)
    total = F(0)
    for value in x:
        total += value
    assert run(reduction("sum", 1000), {"x": x})["y"] == total
    assert total != F(x.astype(np.float64).sum())


@pytest.mark.parametrize("extent", [5, 8, 29])
def test_chains_are_interleaved_and_combined_in_halves(extent):
    x = np.random.default_rng(1).standard_normal(extent).astype(F)
    chains = [F(0)] * 4
    for k, value in enumerate(x):
        chains[k % 4] += value
    expected = (chains[0] + chains[2]) + (chains[1] + chains[3])
    assert run(reduction("sum", extent, chains=4), {"x": x})["y"] == expected


def test_chains_go_on_over_outer_axes():
    a, b = Axis("a", 3), Axis("b", 3)
    reduce = Reduce((a, b), "sum", at("x", (a, 3), (b, 1)), None, 2)
    kernel = Kernel("k", (), (reduce,), (store("y", Reduced(0, "float32")),))
    x = np.random.default_rng(2).standard_normal((3, 3)).astype(F)
    chains = [F(0), F(0)]
    for row in x:
        for k, value in enumerate(row):
            chains[k % 2] += value
    assert run(program({"x": (3, 3)}, {"y": ()}, (kernel,)), {"x": x})["y"] == chains[0] + chains[1]


def test_blocks_of_a_long_reduction_do_not_change_its_order(monkeypatch):
    x = np.random.default_rng(3).standard_normal(100).astype(F)
    whole = run(reduction("sum", 100, chains=8), {"x": x})["y"]
    monkeypatch.setattr("ostinato.program.interpreter.BLOCK", 7)
    assert run(reduction("sum", 100, chains=8), {"x": x})["y"] == whole


def test_factor_is_fused():
    k = Axis("k", 2)
    reduce = Reduce((k,), "sum", at("x", (k, 1)), at("x", (k, 1)))
    kernel = Kernel("k", (), (reduce,), (store("y", Reduced(0, "float32")),))
    p = program({"x": (2,)}, {"y": ()}, (kernel,))
    x = F([1 + 2**-12, 2**-24])
    # The last bit of the square survives, since the products are not rounded.
    first = F(np.float64(x[0]) ** 2)
    assert run(p, {"x": x})["y"] == F(np.float64(x[1]) ** 2 + np.float64(first))


def test_constants_and_index_and_extent():
    t, i = symbol("T"), Axis("i", symbol("T"))
    value = op("add", op("mul", Index(i), Extent(t + 1)), at("c", dtype="int64"))
    kernel = Kernel("k", (i,), (), (store("y", cast(value, "float32"), (i, 1)),))
    p = program({"x": (t,)}, {"y": (t,)}, (kernel,), {"c": np.int64([100])}, symbols=("T",))
    np.testing.assert_array_equal(run(p, {"x": np.zeros(3, F)})["y"], [100, 104, 108])
    assert run(p, {"x": np.zeros(0, F)})["y"].shape == (0,)


def test_masked_loads_do_not_touch_memory():
    i = Axis("i", 5)
    mask = op("lt", Index(i), constant(3, "int64"))
    load = Load(Access("x", 0, ((i, 1),)), "float32", mask, constant(-1.0, "float32"))
    p = program({"x": (3,)}, {"y": (5,)}, (Kernel("k", (i,), (), (store("y", load, (i, 1)),)),))
    np.testing.assert_array_equal(run(p, {"x": F([1, 2, 3])})["y"], [1, 2, 3, -1, -1])


def test_masked_loads_in_a_reduction():
    i, k = Axis("i", 4), Axis("k", 3)
    position = op("sub", op("add", Index(i), Index(k)), constant(1, "int64"))
    zero, end = constant(0, "int64"), constant(4, "int64")
    mask = op("and", op("ge", position, zero), op("lt", position, end))
    load = Load(Access("x", -1, ((i, 1), (k, 1))), "float32", mask, constant(0.0, "float32"))
    kernel = Kernel(
        "k", (i,), (Reduce((k,), "sum", load),), (store("y", Reduced(0, "float32"), (i, 1)),)
    )
    p = program({"x": (4,)}, {"y": (4,)}, (kernel,))
    np.testing.assert_array_equal(run(p, {"x": F([1, 2, 3, 4])})["y"], [3, 6, 9, 7])


def test_guard_excludes_points():
    i = Axis("i", 8)
    guard = op("lt", Index(i), constant(3, "int64"))
    kernel = Kernel("k", (i,), (), (store("y", at("x", (i, 1)), (i, 1)),), guard)
    p = program({"x": (3,)}, {"y": (3,)}, (kernel,))
    np.testing.assert_array_equal(run(p, {"x": F([1, 2, 3])})["y"], [1, 2, 3])


def test_loads_happen_before_stores():
    i = Axis("i", 2)
    swap = Kernel(
        "k", (i,), (), (store("y", at("z", (i, 1)), (i, 1)), store("z", at("x", (i, 1)), (i, 1)))
    )
    start = Kernel("s", (i,), (), (store("z", at("x", (i, 1)), (i, 1)),))
    negate = Kernel("n", (i,), (), (store("z", op("neg", at("z", (i, 1))), (i, 1)),))
    p = program({"x": (2,)}, {"y": (2,)}, (start, negate, swap), arena={"z": 2})
    np.testing.assert_array_equal(run(p, {"x": F([1, 2])})["y"], [-1, -2])


def test_gru_agrees_with_float64():
    rng = np.random.default_rng(0)
    hidden, steps = 8, 5
    recurrent = rng.standard_normal((3, hidden, hidden)).astype(F) / 4
    xw = rng.standard_normal((steps, 3, hidden)).astype(F)
    h0 = rng.standard_normal(hidden).astype(F)
    out = run(gru(hidden, recurrent), {"xw": xw, "h0": h0})
    h = h0.astype(np.float64)
    for step in range(steps):
        g = recurrent.astype(np.float64) @ h
        z, r = 1 / (1 + np.exp(-(xw[step, :2] + g[:2])))
        h = z * h + (1 - z) * np.tanh(xw[step, 2] + r * g[2])
        np.testing.assert_allclose(out["y"][step], h, rtol=0, atol=4e-7)
    np.testing.assert_array_equal(out["last"], out["y"][-1])


def test_a_loop_without_steps_keeps_the_initial_state():
    p = gru(4, np.zeros((3, 4, 4), F))
    out = run(p, {"xw": np.zeros((0, 3, 4), F), "h0": F([1, 2, 3, 4])})
    np.testing.assert_array_equal(out["last"], [1, 2, 3, 4])
    assert out["y"].shape == (0, 4)


def test_runs_are_independent():
    rng = np.random.default_rng(5)
    p = gru(4, rng.standard_normal((3, 4, 4)).astype(F))
    feeds = {"xw": rng.standard_normal((3, 3, 4)).astype(F), "h0": np.ones(4, F)}
    first = run(p, feeds)
    np.testing.assert_array_equal(run(p, feeds)["y"], first["y"])
    np.testing.assert_array_equal(feeds["h0"], np.ones(4))


def bools(p, *names):
    """The program with more arena buffers, of one bool each."""
    extra = {name: Buffer(name, "bool", 1, "arena") for name in names}
    return replace(p, buffers={**p.buffers, **extra})


def test_branch():
    positive = op("gt", at("x"), constant(0.0, "float32"))
    test = Kernel("test", (), (), (store("c", positive),))
    keep = Kernel("keep", (), (), (store("y", at("x")),))
    negate = Kernel("negate", (), (), (store("y", op("neg", at("x"))),))
    p = program({"x": ()}, {"y": ()}, (test, Branch("c", (keep,), (negate,))))
    p = bools(p, "c")
    verify(p)
    assert run(p, {"x": np.array(2, F)})["y"] == 2
    assert run(p, {"x": np.array(-3, F)})["y"] == 3


def test_require():
    positive = op("gt", at("x"), constant(0.0, "float32"))
    test = Kernel("test", (), (), (store("c", positive),))
    copy = Kernel("copy", (), (), (store("y", at("x")),))
    p = bools(program({"x": ()}, {"y": ()}, (test, Require("c", "x must be positive"), copy)), "c")
    verify(p)
    assert run(p, {"x": np.array(2, F)})["y"] == 2
    with pytest.raises(RunError, match="x must be positive"):
        run(p, {"x": np.array(0, F)})


def doubling(limit: float):
    """Doubles x until it is at least `limit`, at most ten times."""
    below = op("lt", at("x"), constant(limit, "float32"))
    begin = Kernel("begin", (), (), (store("h", at("x")), store("go", below)))
    double = op("add", at("h"), at("h"))
    more = op("lt", double, constant(limit, "float32"))
    step = Kernel("step", (), (), (store("g", double), store("on", more)))
    loop = Loop(Axis("t", 10), (Carry("h", "g"), Carry("go", "on")), (step,), "go")
    end = Kernel("end", (), (), (store("y", at("h")),))
    p = program({"x": ()}, {"y": ()}, (begin, loop, end), arena={"h": 1, "g": 1})
    return bools(p, "go", "on")


@pytest.mark.parametrize(("x", "expected"), [(1, 128), (3, 192), (100, 100), (0.001, 1.024)])
def test_loop_with_a_condition(x, expected):
    p = doubling(100)
    verify(p)
    assert run(p, {"x": np.array(x, F)})["y"] == F(expected)


def gather(index):
    i = Axis("i", 3)
    load = Load(Access("x", 0, ()), "float32", index=((at("n", (i, 1), dtype="int64"), 1),))
    kernel = Kernel("k", (i,), (), (store("y", load, (i, 1)),))
    p = program({"x": (4,)}, {"y": (3,)}, (kernel,), {"n": np.int64(index)})
    verify(p)
    return run(p, {"x": F([10, 11, 12, 13])})["y"]


def test_computed_positions():
    np.testing.assert_array_equal(gather([3, 0, 0]), [13, 10, 10])
    with pytest.raises(RunError, match="buffer 'x': element 4 of 4 is out of bounds"):
        gather([0, 4, 1])
    with pytest.raises(RunError, match="buffer 'x': element -1 of 4 is out of bounds"):
        gather([0, -1, 1])


# What is not allowed


def one_kernel(kernel: Kernel, inputs=None, outputs=None, arena=None):
    p = program(inputs or {"x": (4,)}, outputs or {"y": (4,)}, (kernel,), arena=arena)
    return run(p, {name: np.ones(shape, F) for name, shape in (inputs or {"x": (4,)}).items()})


POINTS = Axis("i", 4)


@pytest.mark.parametrize("offset", [1, -1])
def test_loads_out_of_bounds(offset):
    kernel = Kernel(
        "k", (POINTS,), (), (store("y", at("x", (POINTS, 1), offset=offset), (POINTS, 1)),)
    )
    element = 4 if offset > 0 else -1
    with pytest.raises(RunError, match=f"kernel 'k', buffer 'x': element {element} of 4"):
        one_kernel(kernel)


def test_stores_out_of_bounds():
    kernel = Kernel("k", (POINTS,), (), (store("y", at("x", (POINTS, 1)), (POINTS, 2)),))
    with pytest.raises(RunError, match="kernel 'k', buffer 'y': element 4 of 4"):
        one_kernel(kernel)


def test_loads_in_a_reduction_out_of_bounds():
    k = Axis("k", 5)
    kernel = Kernel(
        "k", (), (Reduce((k,), "sum", at("x", (k, 1))),), (store("y", Reduced(0, "float32")),)
    )
    with pytest.raises(RunError, match="buffer 'x': element 4 of 4"):
        one_kernel(kernel, outputs={"y": ()})


def test_reading_what_was_never_written():
    kernel = Kernel("k", (POINTS,), (), (store("y", at("z", (POINTS, 1)), (POINTS, 1)),))
    with pytest.raises(RunError, match="buffer 'z': element 0 is read before it is written"):
        one_kernel(kernel, arena={"z": 4})


def test_conditions_are_written_before_they_are_read():
    p = program({"x": (4,)}, {"y": (4,)}, (Branch("c", (), ()),))
    p = replace(p, buffers={**p.buffers, "c": Buffer("c", "bool", 1, "arena")})
    with pytest.raises(RunError, match="condition 'c' is read before it is written"):
        run(p, {"x": F([1, 2, 3, 4])})


def test_buffers_have_no_negative_size():
    p = pointwise(lambda x: x, symbol("T"))
    z = Buffer("z", "float32", symbol("T") - 5, "arena")
    p = replace(p, symbols=("T",), buffers={**p.buffers, "z": z})
    with pytest.raises(ShapeError, match="buffer 'z' has a negative size: T - 5 = -1"):
        run(p, {"x": F([1, 2, 3, 4])})


def test_output_not_completely_written():
    kernel = Kernel("k", (Axis("i", 3),), (), (store("y", at("x"), (Axis("i", 3), 1)),))
    with pytest.raises(RunError, match="output 'y' was not completely written"):
        one_kernel(kernel)


def test_two_points_that_write_the_same_element():
    kernel = Kernel("k", (POINTS,), (), (store("y", at("x", (POINTS, 1)), (POINTS, 0)),))
    with pytest.raises(RunError, match="buffer 'y': two points write the same element"):
        one_kernel(kernel)


def test_a_point_that_reads_what_another_point_writes():
    first = Kernel("a", (POINTS,), (), (store("z", at("x", (POINTS, 1)), (POINTS, 1)),))
    second = Kernel("b", (POINTS,), (), (store("z", at("z", (POINTS, -1), offset=3), (POINTS, 1)),))
    p = program({"x": (4,)}, {"y": (4,)}, (first, second), arena={"z": 4})
    with pytest.raises(RunError, match="kernel 'b', buffer 'z': a point reads what another"):
        run(p, {"x": np.ones(4, F)})


def test_stale_halves_of_a_state_cannot_be_read():
    t, i = Axis("t", 3), Axis("i", 4)
    begin = Kernel("begin", (i,), (), (store("h", at("x", (i, 1)), (i, 1)),))
    half = Axis("j", 2)
    body = Kernel("body", (half,), (), (store("g", at("h", (half, 1), offset=2), (half, 1)),))
    p = program(
        {"x": (4,)},
        {"y": (4,)},
        (begin, Loop(t, (Carry("h", "g"),), (body,))),
        arena={"h": 4, "g": 4},
    )
    with pytest.raises(RunError, match="element 2 is read before it is written"):
        run(p, {"x": np.ones(4, F)})


def test_wrong_inputs():
    p = pointwise(lambda x: x)
    with pytest.raises(InputError, match=r"inputs are \['x'\], not \['z'\]"):
        run(p, {"z": np.ones(4, F)})
    with pytest.raises(InputError, match="float32 of rank 1, not float64 of rank 1"):
        run(p, {"x": np.ones(4)})
    with pytest.raises(InputError, match="rank 1, not float32 of rank 2"):
        run(p, {"x": np.ones((2, 2), F)})
    with pytest.raises(ShapeError, match=r"must have shape \[4\], not \[5\]"):
        run(p, {"x": np.ones(5, F)})


def test_symbols_must_agree():
    t, i = symbol("T"), Axis("i", symbol("T"))
    kernel = Kernel(
        "k", (i,), (), (store("y", op("add", at("a", (i, 1)), at("b", (i, 1))), (i, 1)),)
    )
    p = program({"a": (t,), "b": (t,)}, {"y": (t,)}, (kernel,), symbols=("T",))
    assert run(p, {"a": np.ones(3, F), "b": np.ones(3, F)})["y"].shape == (3,)
    with pytest.raises(ShapeError, match=r"input 'b' must have shape \[3\], not \[4\]"):
        run(p, {"a": np.ones(3, F), "b": np.ones(4, F)})


def test_checks():
    t, i = symbol("T"), Axis("i", symbol("T"))
    kernel = Kernel("k", (i,), (), (store("y", at("x", (i, 1)), (i, 1)),))
    checks = (Check(t - 2, "at least two steps"),)
    p = program({"x": (t,)}, {"y": (t,)}, (kernel,), symbols=("T",), checks=checks)
    assert run(p, {"x": np.ones(2, F)})["y"].shape == (2,)
    with pytest.raises(ShapeError, match="at least two steps"):
        run(p, {"x": np.ones(1, F)})


def placed(value, where, mask=None, ordered=True) -> Program:
    """`y[where[i]] = value` for each `i < 5`, in order, after `y[..] = 0`."""
    i, j = Axis("i", 5), Axis("j", 3)
    index = ((cast(where(at("n", (i, 1))), "int64"), 1),)
    zero = Kernel("zero", (j,), (), (store("y", constant(0, "float32"), (j, 1)),))
    target = Store(Access("y", 0, ()), value(i, index), mask and mask(at("n", (i, 1))), index)
    kernel = Kernel("k", (i,), (), (target,), ordered=(i,) if ordered else ())
    return program({"x": (5,), "n": (5,)}, {"y": (3,)}, (zero, kernel))


def test_points_in_order_overwrite_each_other():
    p = placed(lambda i, _: at("x", (i, 1)), lambda n: n)
    verify(p)
    feeds = {"x": F([1, 2, 3, 4, 5]), "n": F([2, 0, 2, 0, 2])}
    np.testing.assert_array_equal(run(p, feeds)["y"], [4, 0, 5])
    with pytest.raises(RunError, match="two points write the same element"):
        run(placed(lambda i, _: at("x", (i, 1)), lambda n: n, ordered=False), feeds)


def test_points_in_order_read_what_those_before_them_wrote():
    def total(i, index):
        return op("add", Load(Access("y", 0, ()), "float32", index=index), at("x", (i, 1)))

    feeds = {"x": F([1, 2, 3, 4, 5]), "n": F([2, 0, 2, 0, 2])}
    np.testing.assert_array_equal(run(placed(total, lambda n: n), feeds)["y"], [6, 0, 9])


def test_masked_stores_do_not_touch_memory():
    p = placed(
        lambda i, _: at("x", (i, 1)), lambda n: n, lambda n: op("lt", n, constant(3, "float32"))
    )
    verify(p)
    feeds = {"x": F([1, 2, 3, 4, 5]), "n": F([2, 9, 1e6, 0, 3])}
    np.testing.assert_array_equal(run(p, feeds)["y"], [4, 0, 1])
    with pytest.raises(RunError, match="element 9 of 3 is out of bounds"):
        run(placed(lambda i, _: at("x", (i, 1)), lambda n: n), feeds)


def test_only_axes_with_an_order_depend_on_each_other():
    i, j = Axis("i", 2), Axis("j", 2)
    first = Kernel("first", (j,), (), (store("y", at("x", (j, 1)), (j, 1)),))
    other = op("sub", constant(1, "int64"), Index(j))
    load = Load(Access("y", 0, ()), "float32", index=((other, 1),))
    second = Kernel("k", (i, j), (), (store("y", load, (j, 1)),), ordered=(i,))
    p = program({"x": (2,)}, {"y": (2,)}, (first, second))
    with pytest.raises(RunError, match="a point reads what another point writes"):
        run(p, {"x": F([1, 2])})


def counting(bound: int) -> Program:
    """A size that the first element of x tells, and a copy of so many elements."""
    count = symbol("count", computed=True)
    i, one = Axis("i", count), Store(Access("count", 0, ()), cast(at("x"), "int64"))
    shape = Store(Access("shape", 0, ()), Extent(count))
    kernels = (
        Kernel("tell", (), (), (one,)),
        Kernel("copy", (i,), (), (store("y", at("x", (i, 1)), (i, 1)),)),
        Kernel("shape", (), (), (shape,)),
    )
    p = program({"x": (4,)}, {"y": (count,)}, kernels, symbols=("count",))
    sizes = {
        "count": Buffer("count", "int64", 1, "size", bound=bound),
        "shape": Buffer("shape", "int64", 1, "output"),
    }
    shown = Interface("shape", "shape", "int64", (1,))
    return replace(p, buffers={**p.buffers, **sizes}, outputs=(*p.outputs, shown), shapes={0: 1})


def test_a_kernel_computes_a_size():
    p = counting(bound=4)
    verify(p)
    results = run(p, {"x": F([3, 5, 6, 7])})
    assert results["y"].tolist() == [3, 5, 6] and results["shape"].tolist() == [3]
    assert run(p, {"x": F([0, 5, 6, 7])})["y"].shape == (0,)
    with pytest.raises(RunError, match="'count' is 4, which is not from 0 to 3"):
        run(counting(bound=3), {"x": F([4, 5, 6, 7])})


def test_sizes_are_what_buffers_of_sizes_hold():
    p = counting(bound=4)
    wrong = replace(p, buffers={**p.buffers, "count": replace(p.buffers["count"], size=2)})
    with pytest.raises(ProgramError, match="a size is one int64"):
        verify(wrong)
    unbound = replace(p, symbols=())
    with pytest.raises(ProgramError, match="a size is a symbol of the program"):
        verify(unbound)
