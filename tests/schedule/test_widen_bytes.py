from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.machine.record import AVX2, AVX512, Machine
from ostinato.program.expr import Axis, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Branch, Buffer, Interface, Loop, Program
from ostinato.program.words import BYTES, FLIP, word
from ostinato.schedule.tile import tile
from ostinato.schedule.widen_bytes import LEAST_OPEN_ROWS, LEAST_PRODUCTS, LEAST_ROWS, widen_bytes
from ostinato.sizes.dims import symbol
from tests.program.programs import at, store
from tests.schedule.test_pipeline import assert_same_results, check_unchanged, shown

DEPTH = 8


def products(
    rows: int = LEAST_ROWS, columns: int = LEAST_PRODUCTS, signed: bool = False
) -> Program:
    """`y[i, j] = sum_k x[i, k] w[k, j]` of bytes, four of which are a word of `w`."""
    i, j, r = Axis("i", rows), Axis("j", columns), Axis("r", DEPTH // BYTES)
    dtype = "int8" if signed else "uint8"
    bytes_ = [at("x", (i, DEPTH), (r, BYTES), offset=n, dtype=dtype) for n in range(BYTES)]
    whole = op("xor", word(bytes_), constant(FLIP, "int32")) if signed else word(bytes_)
    reduce = Reduce((r,), "sum", whole, at("w", (r, columns), (j, 1), dtype="int32"))
    kernel = Kernel(
        "k", (i, j), (reduce,), (store("y", Reduced(0, "int32"), (i, columns), (j, 1)),)
    )
    words = np.random.default_rng(0).integers(-(2**31), 2**31, DEPTH // BYTES * columns, np.int64)
    buffers = {
        "x": Buffer("x", dtype, rows * DEPTH, "input"),
        "w": Buffer("w", "int32", words.size, "constant"),
        "y": Buffer("y", "int32", rows * columns, "output"),
    }
    sides = Interface("x", "x", dtype, (rows, DEPTH)), Interface("y", "y", "int32", (rows, columns))
    constants = {"w": words.astype(np.int32)}
    named = () if isinstance(rows, int) else (str(rows),)
    return Program(sides[:1], sides[1:], named, buffers, constants, (kernel,), ())


@pytest.mark.parametrize("machine", [AVX2, AVX512], ids=lambda m: f"{m.vector_bytes}-bytes")
@pytest.mark.parametrize("signed", [False, True])
def test_pairs_take_the_place_of_bytes(signed, machine):
    source = products(signed=signed)
    changed = widen_bytes(source, machine)
    widened, paired = changed.body
    assert widened.reads() == {"x"} and changed.buffers["wide.k"].dtype == "int16"
    assert paired.reads() == {"wide.k", "halves.w"} and "dot_pairs(" in shown(changed)
    assert_same_results(source, changed)
    assert_same_results(source, tile(changed, machine))


@pytest.mark.parametrize("machine", [AVX2, AVX512], ids=lambda m: f"{m.vector_bytes}-bytes")
def test_signed_bytes_meet_unsigned_constants(machine):
    source = products(signed=True)
    (kernel,) = source.body
    (reduce,) = kernel.reductions
    bytes_ = reduce.expr.args[0]
    turned = replace(kernel, reductions=(replace(reduce, expr=reduce.factor, factor=bytes_),))
    source = replace(source, body=(turned,))
    changed = widen_bytes(source, machine)
    assert changed.body[-1].reads() == {"wide.k", "unsigned.w"}
    assert_same_results(source, changed)
    assert_same_results(source, tile(changed, machine))


def test_equal_operands_are_widened_once():
    source = products()
    (kernel,) = source.body
    twice = replace(source, body=(kernel, replace(kernel, name="again")))
    changed = widen_bytes(twice, AVX2)
    assert [*changed.constants] == ["halves.w"]
    assert [kernel.name for kernel in changed.kernels()] == ["wide.k", "k", "again"]
    assert_same_results(twice, changed)


def test_what_is_written_in_between_is_widened_again():
    source = products()
    (kernel,) = source.body
    place = Axis("p", LEAST_ROWS * DEPTH)
    turned = store("x", op("not", at("x", (place, 1), dtype="uint8")), (place, 1))
    body = kernel, Kernel("turn", (place,), (), (turned,)), replace(kernel, name="again")
    names = [k.name for k in widen_bytes(replace(source, body=body), AVX2).kernels()]
    assert names == ["wide.k", "k", "turn", "wide.again", "again"]


def test_the_run_decides_where_it_alone_knows_the_rows():
    source = products(symbol("N"))
    changed = widen_bytes(source, AVX2)
    decided, branch = changed.body
    assert isinstance(decided, Kernel) and isinstance(branch, Branch)
    assert f"{LEAST_OPEN_ROWS}" in str(decided.stores[0].value)
    assert (len(branch.then), len(branch.orelse)) == (2, 1)
    assert_same_results(source, changed)


def test_steps_of_open_rows_take_bytes():
    source = products(symbol("N"))
    loop = Loop(Axis("t", 3), (), source.body)
    check_unchanged(lambda source: widen_bytes(source, AVX2), replace(source, body=(loop,)))


def test_few_products_take_bytes():
    for source in (products(rows=LEAST_ROWS - 1), products(columns=LEAST_PRODUCTS - 1)):
        check_unchanged(lambda source: widen_bytes(source, AVX2), source)


def test_machines_that_multiply_bytes_take_them():
    for dots in ("vnni", "sdot", "widening", "pairs"):
        machine = Machine(16, 32, byte_dots=dots)
        check_unchanged(lambda source, m=machine: widen_bytes(source, m), products())
