"""Signatures of the functions of kernels."""

from __future__ import annotations

from dataclasses import replace

from ostinato.codegen.signature import signature
from ostinato.program.expr import Axis, Index, Reduced, op
from ostinato.program.kernel import Kernel, Reduce
from ostinato.program.nodes import Loop
from ostinato.sizes.dims import symbol
from tests.codegen.test_kernels import random
from tests.codegen.test_module import check
from tests.program.programs import at, program, store


def test_a_signature_names_what_a_kernel_needs_from_outside():
    t, i, k = Axis("t", 3), Axis("i", 4), Axis("k", 5)
    reduce = Reduce((k,), "sum", at("x", (k, 1), (t, 5)))
    kernel = Kernel("k", (i,), (reduce,), (store("y", Reduced(0, "float32"), (i, 1)),))
    assert signature(kernel).name == "kernel.k"
    assert signature(kernel).buffers == ("x", "y")
    assert signature(kernel).outer == (t,)
    indexed = replace(kernel, stores=(store("n", Index(t)),), reductions=())
    assert signature(indexed).outer == (t,)


def test_axes_of_loops_around_a_kernel():
    t, u, i = Axis("t", 3), Axis("u", symbol("N")), Axis("i", 4)
    n = symbol("N")
    value = op("add", at("x", (t, 4), (i, 1)), at("z", (u, 1)))
    kernel = Kernel("k", (i,), (), (store("y", value, (t, n * 4), (u, 4), (i, 1)),))
    source = program(
        {"x": (3, 4), "z": (n,)}, {"y": (3, n, 4)}, (Loop(t, (), (Loop(u, (), (kernel,)),)),),
        symbols=("N",),
    )  # fmt: skip
    for count in (0, 1, 3):
        check(source, {"x": random(3, 4), "z": random(count)})
