from __future__ import annotations

import numpy as np

from ostinato.program.expr import Access, Axis, Cast, Extent, Index, Load, Op, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Branch, Carry, Check, Loop, Require
from ostinato.program.printer import kernel_text, text
from ostinato.sizes.dims import symbol
from tests.program.programs import at, gru, program, store

GRU = """\
symbol T
input xw: float32[T, 3, 4]
input h0: float32[4]
output y: float32[T, 4]
output last: float32[4]
constant R: float32[48]
arena h: float32[4]
arena g: float32[4]
kernel begin [i < 4]
  h[i] = h0[i]
loop t < T carry h <-> g
  kernel step [j < 4] from gru
    r0 = sum k < 4: fma(h[k], R[4*j + k])
    r1 = sum k < 4: fma(h[k], R[4*j + k + 16])
    r2 = sum k < 4: fma(h[k], R[4*j + k + 32])
    v0 = sigmoid(xw[12*t + j] + r0)
    v1 = fma(v0, h[j], (1.0 - v0) * tanh(fma(sigmoid(xw[12*t + j + 4] + r1), r2, xw[12*t + j + 8])))
    g[j] = v1
    y[4*t + j] = v1
kernel end [i < 4]
  last[i] = h[i]
"""


def test_whole_program():
    assert text(gru(4, np.zeros((3, 4, 4), np.float32))) == GRU


def show(value) -> str:
    return kernel_text(Kernel("k", (), (), (store("y", value),))).splitlines()[-1]


X, Z = at("x"), at("z")


def test_parentheses_keep_the_order_of_evaluation():
    add, sub, mul = (lambda a, b, n=n: op(n, a, b) for n in ("add", "sub", "mul"))
    assert show(sub(sub(at("a"), at("b")), at("c"))) == "  y[0] = a[0] - b[0] - c[0]"
    assert show(sub(at("a"), sub(at("b"), at("c")))) == "  y[0] = a[0] - (b[0] - c[0])"
    assert show(add(at("a"), add(at("b"), at("c")))) == "  y[0] = a[0] + (b[0] + c[0])"
    assert show(mul(add(at("a"), at("b")), at("c"))) == "  y[0] = (a[0] + b[0]) * c[0]"
    assert show(add(at("a"), mul(at("b"), at("c")))) == "  y[0] = a[0] + b[0] * c[0]"


def test_every_kind_of_expression():
    i = Axis("i", 3)
    mask = op("lt", Index(i), Extent(symbol("T")))
    load = Load(Access("x", 0, ((i, symbol("T") + 1),)), "float32", mask, constant(0.1, "float32"))
    assert show(load) == "  y[0] = (x[(T + 1)*i] if i < extent(T) else 0.1)"
    assert show(Op("bitcast", (X,), "int32")) == "  y[0] = bitcast<int32>(x[0])"
    assert show(Cast(Z, "int64")) == "  y[0] = int64(z[0])"
    assert show(op("select", mask, X, Z)) == "  y[0] = select(i < extent(T), x[0], z[0])"
    assert show(Reduced(3, "float32")) == "  y[0] = r3"


def test_accesses():
    i, j = Axis("i", 3), Axis("j", 3)
    assert show(at("x", (i, -1), (j, 4), offset=2)) == "  y[0] = x[-1*i + 4*j + 2]"
    assert show(at("x", (i, 1), (j, symbol("T")), offset=-2)) == "  y[0] = x[i + T*j - 2]"


def test_reductions_and_guard():
    i, j, k = Axis("i", 8), Axis("j", 2), Axis("k", symbol("T"))
    element = at("x", (i, 1), (k, 8))
    square = op("mul", element, element)
    kernel = Kernel(
        "norm",
        (i,),
        (Reduce((j, k), "sum", square, None, 8), Reduce((k,), "max", element)),
        (store("y", op("add", Reduced(0, "float32"), Reduced(1, "float32")), (i, 1)),),
        op("lt", Index(i), constant(5, "int64")),
    )
    assert kernel_text(kernel) == (
        "kernel norm [i < 8]\n"
        "  where i < 5\n"
        "  r0 = sum j < 2, k < T in 8 chains: v0 * v0\n"
        "    with v0 = x[i + 8*k]\n"
        "  r1 = max k < T: x[i + 8*k]\n"
        "  y[i] = r0 + r1\n"
    )


def test_control_flow():
    copy = Kernel("k", (), (), (store("y", X),))
    loop = Loop(Axis("t", 3), (Carry("go", "on"),), (copy,), "go")
    p = program({"x": ()}, {"y": ()}, (Branch("c", (loop,), (copy,)), Require("c", "must hold")))
    assert text(p).endswith(
        "if c\n"
        "  loop t < 3 while go carry go <-> on\n"
        "    kernel k []\n"
        "      y[0] = x[0]\n"
        "else\n"
        "  kernel k []\n"
        "    y[0] = x[0]\n"
        "require c: must hold\n"
    )


def test_computed_positions():
    i = Axis("i", 3)
    row = op("add", Index(i), at("n", (i, 1), dtype="int64"))
    load = Load(Access("x", 0, ((i, 1),)), "float32", index=((row, 8), (Index(i), 1)))
    assert show(load) == "  y[0] = x[i + 8*(i + n[i]) + i]"


def test_checks():
    p = program(
        {"x": (symbol("T"),)}, {}, (), symbols=("T",), checks=(Check(symbol("T") - 1, "empty"),)
    )
    assert "check T - 1 >= 0: empty\n" in text(p)


def test_what_occurs_twice_has_a_name():
    square = op("mul", X, X)
    kernel = Kernel("k", (), (), (store("y", op("sub", square, op("exp", square))),))
    assert kernel_text(kernel) == (
        "kernel k []\n  v0 = x[0]\n  v1 = v0 * v0\n  y[0] = v1 - exp(v1)\n"
    )


def test_stores_in_order_at_computed_positions():
    i, j = Axis("i", 3), Axis("j", 2)
    place = op("add", Index(i), at("n", (i, 1), dtype="int64"))
    mask = op("lt", place, constant(4, "int64"))
    stores = (Store(Access("y", 0, ((j, 1),)), at("x", (j, 1)), mask, ((place, 2),)),)
    kernel = Kernel("k", (i, j), (), stores, ordered=(i,))
    assert kernel_text(kernel) == (
        "kernel k [i < 3, j < 2] in order of i\n  v0 = i + n[i]\n  y[j + 2*v0] = x[j] if v0 < 4\n"
    )
