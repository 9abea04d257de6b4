from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.machine.record import AVX2, AVX512, NEON
from ostinato.program.expr import Axis, Index, cast, constant, op
from ostinato.program.nodes import Program
from ostinato.schedule.byte_tables import byte_tables
from ostinato.sizes.dims import symbol
from tests.program.programs import at, program
from tests.schedule.test_pipeline import check, check_unchanged, pointwise

MACHINE = replace(AVX512, byte_lookups=True)
i = Axis("i", 2048)


def half(x):
    """Three operations on floats."""
    return cast(op("floor", op("mul", cast(x, "float32"), constant(0.5, "float32"))), "uint8")


def of_bytes(*body, size=2048) -> Program:
    symbols = () if isinstance(size, int) else tuple(str(size).split())
    shapes = {"x": (size,), "z": (size,)}, {"y": (size,)}
    return program(*shapes, body, symbols=symbols, dtype="uint8")


def tables(source: Program) -> Program:
    return byte_tables(source, MACHINE)


def test_what_one_byte_decides_is_looked_up():
    x = at("x", (i, 1), dtype="uint8")
    check(
        tables,
        of_bytes(pointwise("k", half(x), "y", i)),
        """
        kernel k [i < 2048] from k
          y[i] = uint8(floor(float32(x[i]) * 0.5))
        """,
        """
        arena table.k.0: uint8[256]
        kernel table.k.0 [table.k.0.entry < 256] from k
          table.k.0[table.k.0.entry] = uint8(floor(float32(uint8(table.k.0.entry)) * 0.5))
        kernel k [i < 2048] from k
          y[i] = table.k.0[x[i]]
        """,
    )


def test_a_run_decides_where_it_alone_tells_how_many_there_are():
    n = Axis("n", symbol("N"))
    check(
        tables,
        of_bytes(pointwise("k", half(at("x", (n, 1), dtype="uint8")), "y", n), size=symbol("N")),
        """
        kernel k [n < N] from k
          y[n] = uint8(floor(float32(x[n]) * 0.5))
        """,
        """
        arena table.k.0: uint8[256]
        arena k.table: bool[1]
        kernel k.table [] from k
          k.table[0] = extent(N) >= 512
        if k.table
          kernel table.k.0 [table.k.0.entry < 256] from k
            table.k.0[table.k.0.entry] = uint8(floor(float32(uint8(table.k.0.entry)) * 0.5))
          kernel k [n < N] from k
            y[n] = table.k.0[x[n]]
        else
          kernel k.without.table [n < N] from k
            y[n] = uint8(floor(float32(x[n]) * 0.5))
        """,
    )


def test_two_bytes_each_have_a_table():
    x, z = (at(name, (i, 1), dtype="uint8") for name in "xz")
    changed = tables(of_bytes(pointwise("k", op("add", half(x), half(z)), "y", i)))
    assert [statement.name for statement in changed.body] == ["table.k.0", "table.k.1", "k"]


X = at("x", (i, 1), dtype="uint8")
OTHERS = {
    "of two bytes": half(op("min", X, at("z", (i, 1), dtype="uint8"))),
    "of a byte and its place": half(op("add", X, cast(Index(i), "uint8"))),
    "cheap": op("min", X, constant(9, "uint8")),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_table_does_not_pay_for_stays(name):
    check_unchanged(tables, of_bytes(pointwise("k", OTHERS[name], "y", i)))


def test_few_elements_keep_computing():
    few = Axis("i", 500)
    body = pointwise("k", half(at("x", (few, 1), dtype="uint8")), "y", few)
    check_unchanged(tables, of_bytes(body, size=500))


@pytest.mark.parametrize("machine", [AVX2, NEON], ids=["avx2", "neon"])
def test_machines_without_lookups_have_tables_of_long_functions(machine):
    def names(value):
        body = byte_tables(of_bytes(pointwise("k", value, "y", i)), machine).body
        return [statement.name for statement in body]

    assert names(half(X)) == ["k"]
    assert names(cast(op("erf", cast(X, "float32")), "uint8")) == ["table.k.0", "k"]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("size", ["N", "37, 61"])
def test_tables_keep_every_bit(dtype, size):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        swish ({dtype}[{size}] x) => ({dtype}[{size}] y, {dtype}[{size}] z)
            <float s = {{0.05}}, {dtype} p = {{7}}, float t = {{0.02}}, {dtype} q = {{3}}> {{
            wide = DequantizeLinear (x, s, p)
            gate = Sigmoid (wide)
            product = Mul (wide, gate)
            y = QuantizeLinear (product, t, q)
            z = QuantizeLinear (gate, t, q)
        }}"""
    )
    with_tables = ostinato.InferenceSession(model, cache_dir=None)
    without = ostinato.InferenceSession(model, cache_dir=None, disable=("byte_tables",))
    random = np.random.default_rng(0)
    for shape in [(37, 61)] if size != "N" else [(0,), (5,), (511,), (512,), (1090,), (5000,)]:
        x = random.integers(0, 256, shape).astype(np.uint8).view(dtype)
        got, expected = with_tables.run(None, {"x": x}), without.run(None, {"x": x})
        assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]
