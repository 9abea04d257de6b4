"""Small loop programs written by hand."""

from __future__ import annotations

import numpy as np

from ostinato.program.expr import Access, Axis, Expr, Load, Reduced, constant, op
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Buffer, Carry, Interface, Loop, Program, Stmt
from ostinato.sizes.dims import product, symbol


def at(buffer: str, *terms, offset=0, dtype: str = "float32") -> Load:
    """The element of a buffer at `sum(axis * stride)`."""
    return Load(Access(buffer, offset, tuple(terms)), dtype)


def store(buffer: str, value: Expr, *terms, offset=0) -> Store:
    return Store(Access(buffer, offset, tuple(terms)), value)


def program(
    inputs: dict[str, tuple],
    outputs: dict[str, tuple],
    body: tuple[Stmt, ...],
    constants: dict[str, np.ndarray] | None = None,
    arena: dict[str, int] | None = None,
    symbols: tuple[str, ...] = (),
    dtype: str = "float32",
    checks: tuple = (),
    dtypes: dict[str, str] | None = None,
) -> Program:
    """A program whose buffers have one dtype, but for `dtypes`; sides are given by shape."""
    kinds = {name: dtype for name in (*inputs, *outputs)} | (dtypes or {})
    buffers: dict[str, Buffer] = {}
    for kind, group in (("input", inputs), ("output", outputs)):
        for name, shape in group.items():
            buffers[name] = Buffer(name, kinds[name], product(shape), kind)
    for name, data in (constants or {}).items():
        buffers[name] = Buffer(name, data.dtype.name, data.size, "constant")
    for name, size in (arena or {}).items():
        buffers[name] = Buffer(name, dtype, size, "arena")
    return Program(
        tuple(Interface(name, name, kinds[name], shape) for name, shape in inputs.items()),
        tuple(Interface(name, name, kinds[name], shape) for name, shape in outputs.items()),
        symbols,
        buffers,
        {name: data.reshape(-1) for name, data in (constants or {}).items()},
        body,
        checks,
    )


def pointwise(function, extent=4, dtype: str = "float32") -> Program:
    """`y[i] = function(x[i])`."""
    i = Axis("i", extent)
    kernel = Kernel("k", (i,), (), (store("y", function(at("x", (i, 1), dtype=dtype)), (i, 1)),))
    return program({"x": (extent,)}, {"y": (extent,)}, (kernel,), dtype=dtype)


def reduction(combine: str, extent: int, chains: int = 1, dtype: str = "float32") -> Program:
    """`y = x[0] combined with x[1] ...`."""
    k = Axis("k", extent)
    reduce = Reduce((k,), combine, at("x", (k, 1), dtype=dtype), None, chains)
    kernel = Kernel("k", (), (reduce,), (store("y", Reduced(0, dtype)),))
    return program({"x": (extent,)}, {"y": ()}, (kernel,), dtype=dtype)


def gru(hidden: int, recurrent: np.ndarray) -> Program:
    """A GRU (linear before reset) as a loop with one kernel.

    xw: [T, 3, hidden], the inputs already multiplied by their weights; h0: [hidden].
    recurrent: [3, hidden, hidden], for z, r and n; y: [T, hidden], h: [hidden].
    """
    steps = symbol("T")
    t, j, k, i = Axis("t", steps), Axis("j", hidden), Axis("k", hidden), Axis("i", hidden)
    square = hidden * hidden
    reductions = tuple(
        Reduce((k,), "sum", at("h", (k, 1)), at("R", (j, hidden), (k, 1), offset=gate * square))
        for gate in range(3)
    )
    x = [at("xw", (t, 3 * hidden), (j, 1), offset=gate * hidden) for gate in range(3)]
    r = [Reduced(gate, "float32") for gate in range(3)]
    z = op("sigmoid", op("add", x[0], r[0]))
    n = op("tanh", op("fma", op("sigmoid", op("add", x[1], r[1])), r[2], x[2]))
    one = constant(1.0, "float32")
    new = op("fma", z, at("h", (j, 1)), op("mul", op("sub", one, z), n))
    step = Kernel(
        "step",
        (j,),
        reductions,
        (store("g", new, (j, 1)), store("y", new, (t, hidden), (j, 1))),
        sources=("gru",),
    )
    begin = Kernel("begin", (i,), (), (store("h", at("h0", (i, 1)), (i, 1)),))
    end = Kernel("end", (i,), (), (store("last", at("h", (i, 1)), (i, 1)),))
    return program(
        {"xw": (steps, 3, hidden), "h0": (hidden,)},
        {"y": (steps, hidden), "last": (hidden,)},
        (begin, Loop(t, (Carry("h", "g"),), (step,)), end),
        {"R": recurrent},
        {"h": hidden, "g": hidden},
        ("T",),
    )
