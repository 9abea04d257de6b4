"""Reductions in compiled code, against the interpreter."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ostinato.codegen.target import find_target
from ostinato.program import interpreter
from ostinato.program.expr import INTEGERS, Axis, Reduced, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Program
from ostinato.schedule.operands import DEPTH
from ostinato.sizes.dims import symbol
from tests.codegen.test_kernels import random
from tests.codegen.test_module import TARGETS, WIDTHS, Native, assert_same_bits, check, mixed
from tests.codegen.test_webassembly import assembly
from tests.program.programs import at, program, reduction, store
from tests.schedule.test_tile import matmul, one_row


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", *INTEGERS])
@pytest.mark.parametrize("combine", ["sum", "prod", "min", "max", "larger"])
def test_reductions(combine, dtype, target):
    """Along the lanes' axis and across it, alone and beside each other."""
    i, k = Axis("i", 11), Axis("k", 6)
    p, q = Axis("p", 11), Axis("q", 6)
    across = Reduce((k,), combine, at("x", (k, 11), (i, 1), dtype=dtype))
    along = Reduce((q,), combine, at("x", (q, 1), (p, 6), dtype=dtype))
    kernels = (
        Kernel("across", (i,), (across,), (store("y", Reduced(0, dtype), (i, 1)),)),
        Kernel("along", (p,), (along,), (store("z", Reduced(0, dtype), (p, 1)),)),
    )
    shape = (dtype, (11,))
    source = mixed({"x": (dtype, (66,))}, {"y": shape, "z": shape}, kernels)
    values = np.random.default_rng(1).integers(-3, 120, 66)
    x = values.astype(dtype) if dtype in INTEGERS else (values / 7).astype(dtype)
    check(source, {"x": x}, target=target)


def extreme_of_many(combine: str, dtype: str) -> Program:
    """The least or greatest of 100 numbers, in chains."""
    k = Axis("k", 100)
    found = Reduce((k,), combine, at("x", (k, 1), dtype=dtype), None, 32)
    kernel = Kernel("k", (), (found,), (store("y", Reduced(0, dtype)),))
    return mixed({"x": (dtype, (100,))}, {"y": (dtype, ())}, (kernel,))


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("combine", ["min", "max"])
def test_extremes_keep_nan_and_tell_zeros_apart(combine, dtype, target):
    source, sign = extreme_of_many(combine, dtype), 1 if combine == "min" else -1
    native = Native(source, target)
    for place in (0, 31, 64, 99):
        for first, others in ((np.nan, 1), (-np.nan, -np.inf), (-0.0, 0.0), (0.0, -0.0), (2, 1)):
            x = np.full(100, sign * others, dtype)
            x[place] = sign * first
            got, expected = native.run({"x": x}), interpreter.run(source, {"x": x})
            assert_same_bits(got["y"], expected["y"], f"{first} at {place}")


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("combine", ["min", "max"])
def test_extremes_take_no_masks(combine, target):
    text = assembly(extreme_of_many(combine, "float32"), target)
    loop = text[text.index(".LBB") : text.index("jl\t.LBB")]
    # Both orders of operands for each register of a step.
    registers = 32 * 4 // {"x86-64-v3": 32, "x86-64-v4": 64}[target]
    assert len(re.findall("v(?:min|max)ps", loop)) == 2 * registers
    assert not re.search("vblend|%k[1-7]", loop)


@pytest.mark.parametrize("depth", [3, 4, 8, 11])
@pytest.mark.parametrize("target", [TARGETS[-1], TARGETS[0]], ids=[WIDTHS[-1], WIDTHS[0]])
def test_what_rows_read_is_loaded_by_four_terms_at_once(depth, target):
    """Where products take one lane of a register, and no further than the terms go."""
    i, j, k = Axis("i", 6), Axis("j", 8), Axis("k", depth)
    sums = Reduce((k,), "sum", at("x", (i, depth), (k, 1)), at("w", (k, 8), (j, 1)))
    kernel = Kernel("k", (i, j), (sums,), (store("y", Reduced(0, "float32"), (i, 8), (j, 1)),))
    shapes = {"x": ("float32", (6, depth)), "w": ("float32", (depth, 8))}
    source = mixed(shapes, {"y": ("float32", (6, 8))}, (kernel,))
    feeds = {name: random(*shape) for name, (_, shape) in shapes.items()}
    native = check(source, feeds, target=target)
    at_once = target.machine.lane_operands and depth >= 8
    assert ("extractelement <4 x float>" in native.text) is at_once


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_operands_leave_registers_to_partial_results(target):
    """Where products take no element from memory, few rows wait for all vectors of weights."""
    text = assembly(matmul(63, 64, 256), target)
    assert "vfmadd" in text and not re.search(r"[yz]mm.*\(%rsp\)|\(%rsp\).*[yz]mm", text)


@pytest.mark.parametrize("depth", [7, 15, 16, 17, 24, 31])
def test_copies_of_a_loop_may_be_apart(depth):
    """Each may then be the last one, and no rest follows."""
    target = replace(TARGETS[0], machine=replace(TARGETS[0].machine, unroll=8, short_blocks=True))
    j, k = Axis("j", 8), Axis("k", depth)
    sums = Reduce((k,), "sum", at("x", (k, 1)), at("w", (k, 8), (j, 1)))
    kernel = Kernel("k", (j,), (sums,), (store("y", Reduced(0, "float32"), (j, 1)),))
    shapes = {"x": ("float32", (depth,)), "w": ("float32", (depth, 8))}
    source = mixed(shapes, {"y": ("float32", (8,))}, (kernel,))
    feeds = {name: random(*shape) for name, (_, shape) in shapes.items()}
    native = check(source, feeds, target=target)
    assert ("stay" in native.text) is (depth > 15)


@pytest.mark.parametrize(("depth", "copies"), [(7, 7), (8, 2), (32, 2), (33, 3)])
def test_loops_have_few_copies(depth, copies):
    """Two of a step, and what they leave; four or more leave no loop of few steps."""
    target = next(t for t in TARGETS if t.machine.vector_bytes == 32)
    i, j, k = Axis("i", 4), Axis("j", 16), Axis("k", depth)
    sums = Reduce((k,), "sum", at("x", (i, depth), (k, 1)), at("w", (k, 16), (j, 1)))
    kernel = Kernel("k", (i, j), (sums,), (store("y", Reduced(0, "float32"), (i, 16), (j, 1)),))
    shapes = {"x": ("float32", (4, depth)), "w": ("float32", (depth, 16))}
    source = mixed(shapes, {"y": ("float32", (4, 16))}, (kernel,))
    native = check(source, {n: random(*shape) for n, (_, shape) in shapes.items()}, target=target)
    products = len(re.findall(r"call <8 x float> @llvm.fma", native.text))
    assert products == 8 * copies


@pytest.mark.parametrize("rows", [4, 7])
def test_pieces_of_long_sums_have_their_terms_whatever_the_tile_unrolls(rows):
    """Seven rows of three vectors leave room for three copies of a step; a piece has 128 terms."""
    i, j, k = Axis("i", rows), Axis("j", 48), Axis("k", 2 * DEPTH)
    sums = Reduce((k,), "sum", at("x", (k, rows), (i, 1)), at("w", (k, 48), (j, 1)))
    kernel = Kernel("k", (i, j), (sums,), (store("y", Reduced(0, "float32"), (i, 48), (j, 1)),))
    shapes = {"x": ("float32", (2 * DEPTH, rows)), "w": ("float32", (2 * DEPTH, 48))}
    source = mixed(shapes, {"y": ("float32", (rows, 48))}, (kernel,))
    check(source, {name: random(*shape) for name, (_, shape) in shapes.items()}, target=TARGETS[0])


@pytest.mark.parametrize("chains", [1, 4, 32])
@pytest.mark.parametrize("combine", ["sum", "prod", "min", "max", "larger"])
def test_reductions_in_chains(combine, chains):
    for extent in (0, 1, 3, chains, chains + 1, 2 * chains, 5 * chains - 1):
        x = random(extent)
        check(reduction(combine, extent, chains), {"x": x})
        doubles = x.astype(np.float64)
        check(reduction(combine, extent, chains, "float64"), {"x": doubles})


@pytest.mark.parametrize("chains", [1, 8, 32])
def test_reductions_of_every_length_known_at_run_time(chains):
    n = symbol("N")
    i, k = Axis("i", 3), Axis("k", n)
    x = at("x", (i, n), (k, 1))
    reductions = (Reduce((k,), "sum", x, x, chains), Reduce((k,), "max", x, None, chains))
    stores = tuple(store("y", Reduced(r, "float32"), (i, 2), offset=r) for r in (0, 1))
    kernel = Kernel("k", (i,), reductions, stores)
    source = program({"x": (3, n)}, {"y": (3, 2)}, (kernel,), symbols=("N",))
    native = Native(source)
    for length in range(41):
        feeds = {"x": random(3, length)}
        assert_same_bits(native.run(feeds)["y"], interpreter.run(source, feeds)["y"], str(length))


@pytest.mark.parametrize("chains", [1, 8])
def test_reductions_over_several_axes_keep_their_order(chains):
    n = symbol("N")
    a, b, c = Axis("a", 3), Axis("b", n), Axis("c", 10)
    element = at("x", (a, n * 10), (c, 1), (b, 10))
    reduce = Reduce((b, a, c), "sum", element, None, chains)
    kernel = Kernel("k", (), (reduce,), (store("y", Reduced(0, "float32")),))
    source = program({"x": (3, n, 10)}, {"y": ()}, (kernel,), symbols=("N",))
    for count in (0, 1, 2, 5):
        check(source, {"x": random(3, count, 10)})


def test_reductions_of_different_axes_in_one_kernel():
    i, k, m = Axis("i", 9), Axis("k", 4), Axis("m", 7)
    reductions = (
        Reduce((k,), "sum", at("x", (k, 1)), at("W", (k, 9), (i, 1))),
        Reduce((m,), "sum", at("z", (m, 1)), at("W", (m, 9), (i, 1))),
        Reduce((k,), "max", at("x", (k, 1))),
    )
    total = op(
        "add", op("mul", Reduced(0, "float32"), Reduced(2, "float32")), Reduced(1, "float32")
    )
    kernel = Kernel("k", (i,), reductions, (store("y", total, (i, 1)),))
    source = program({"x": (4,), "z": (7,)}, {"y": (9,)}, (kernel,), {"W": random(7, 9)})
    check(source, {"x": random(4), "z": random(7)})


@pytest.mark.parametrize("target", TARGETS, ids=WIDTHS)
@pytest.mark.parametrize(("columns", "is_aside"), [(64, True), (1, False)])
def test_sums_of_several_loops_wait_in_memory(columns, is_aside, target):
    """Those of all loops are more than there are registers; those of single rows are not."""
    i, j = Axis("i", 24), Axis("j", columns)
    sums, weights = [], {}
    for number, terms in enumerate((40, 24, 17)):
        k = Axis(f"k{number}", terms)
        left, right = at(f"x{number}", (i, terms), (k, 1)), at(f"W{number}", (k, columns), (j, 1))
        sums.append(Reduce((k,), "sum", left, right))
        weights[f"W{number}"] = random(terms, columns)
    value = op("add", op("add", *(Reduced(n, "float32") for n in (0, 1))), Reduced(2, "float32"))
    kernel = Kernel("k", (i, j), tuple(sums), (store("y", value, (i, columns), (j, 1)),))
    inputs = {f"x{number}": (24, len(w)) for number, w in enumerate(weights.values())}
    source = program(inputs, {"y": (24, columns)}, (kernel,), weights)
    native = check(source, {name: random(*shape) for name, shape in inputs.items()}, target=target)
    assert ("store volatile <" in native.text) == is_aside


def test_reductions_over_no_elements_known_while_compiling():
    i, k = Axis("i", 5), Axis("k", 0)
    for combine, expected in (("sum", 0.0), ("prod", 1.0), ("max", -np.inf), ("min", np.inf)):
        reduce = Reduce((k,), combine, at("x", (k, 5), (i, 1)))
        kernel = Kernel("k", (i,), (reduce,), (store("y", Reduced(0, "float32"), (i, 1)),))
        source = program({"x": (0, 5)}, {"y": (5,)}, (kernel,))
        native = check(source, {"x": random(0, 5)})
        assert (native.run({"x": random(0, 5)})["y"] == expected).all()


@pytest.mark.parametrize(("terms", "columns"), [(129, 130), (136, 200), (300, 256), (131, 98)])
@pytest.mark.parametrize("sums", [1, 2])
def test_rows_that_pass_side_by_side_have_the_same_sums(terms, columns, sums):
    def given(number: int) -> dict[str, np.ndarray]:
        shapes = {"x": (2, number), "w": (sums, 2, number, columns), "b": (columns,)}
        return {name: random(*shape) for name, shape in shapes.items()}

    target = find_target("x86-64-v3")
    check(one_row(terms, columns, sums), given(terms), target=target)
    for number in (0, 1, 8, 9, terms):
        check(one_row(symbol("P"), columns, sums), given(number), target=target)
