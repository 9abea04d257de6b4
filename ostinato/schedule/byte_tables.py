"""Functions of a single byte are looked up in a table of the results for all 256 bytes.

    y[i] = uint8(round(sigmoid(float32(x[i]) * s) / t))

                       =>      table[n] = uint8(round(sigmoid(float32(n) * s) / t))     n < 256
                               y[i] = table[x[i]]

A run fills the table with what it would compute for each element, so results keep their bits and
scales need not be known. Where only a run tells how many elements there are, it decides.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ostinato.machine.record import Machine
from ostinato.program.expr import (
    ITEM_BYTES,
    Access,
    Axis,
    Cast,
    Expr,
    Index,
    Load,
    Op,
    cast,
    children,
    dtype_of,
    op,
    rewrite,
    walk,
)
from ostinato.program.functions import operations
from ostinato.program.kernel import Kernel, Store
from ostinato.program.nodes import Branch, Buffer, Program, Stmt, with_bodies
from ostinato.schedule.decisions import decided
from ostinato.sizes.dims import product

BYTES = {"int8", "uint8"}
BYTE_VALUES = 256
# From this many elements on a table pays: filling it takes as long as computing 256, and a call.
# Ten functions between bytes take 0.6 to 0.95 of the time with 512 elements, and 1.0 to 1.2 with
# 256 (sessions with and without a table in turns, on targets of AVX-512 VBMI and of AVX2).
_LEAST_ELEMENTS = 512
# Cycles to look up a vector of bytes (`llvm-mca`), where one instruction picks bytes of two
# registers. Computing has to take twice as many cycles as the lookups.
_LOOKUP_CYCLES = 3.0


def byte_tables(program: Program, machine: Machine) -> Program:
    """Replace functions of one byte by lookups, in kernels without reductions."""
    buffers = dict(program.buffers)

    def inside(body: tuple[Stmt, ...], is_alone: bool) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for statement in body:
            if isinstance(statement, Kernel):
                result += _with_tables(statement, machine, buffers, is_alone)
            else:
                alone = is_alone and isinstance(statement, Branch)
                result.append(with_bodies(statement, partial(inside, is_alone=alone)))
        return tuple(result)

    return program.with_body(inside(program.body, True), buffers)


def _with_tables(
    kernel: Kernel, machine: Machine, buffers: dict[str, Buffer], is_alone: bool
) -> list[Stmt]:
    """The kernels that fill tables, and the kernel that reads them.

    is_alone: whether the kernel is in no loop, where a run may decide.
    """
    elements = product([axis.extent for axis in kernel.axes])
    is_known = isinstance(elements, int)
    if kernel.reductions or kernel.ordered or kernel.guard is not None or kernel.sizes:
        return [kernel]
    if (isinstance(elements, int) and elements < _LEAST_ELEMENTS) or not (is_known or is_alone):
        return [kernel]
    found = _of_one_byte(kernel, machine)
    if not found:
        return [kernel]
    fills: list[Stmt] = []
    moved: dict[Expr, Expr] = {}
    for number, (value, load) in enumerate(found.items()):
        name = f"table.{kernel.name}.{number}"
        entry = Axis(f"{name}.entry", BYTE_VALUES)
        every: dict[Expr, Expr] = {load: cast(Index(entry), load.dtype)}
        buffers[name] = Buffer(name, dtype_of(value), BYTE_VALUES, "arena")
        store = Store(Access(name, 0, ((entry, 1),)), rewrite(value, every.get))
        fills.append(Kernel(name, (entry,), (), (store,), sources=kernel.sources))
        place = load if load.dtype == "uint8" else op("bitcast", load, dtype="uint8")
        moved[value] = Load(Access(name, 0, ()), dtype_of(value), index=((place, 1),))
    stores = tuple(s.map(lambda e: rewrite(e, moved.get)) for s in kernel.stores)
    reader = replace(kernel, stores=stores)
    if is_known:
        return [*fills, reader]
    return decided(kernel, "table", elements, _LEAST_ELEMENTS, (*fills, reader), buffers)


def _of_one_byte(kernel: Kernel, machine: Machine) -> dict[Expr, Load]:
    """The largest expressions of bytes whose only varying operand is one byte, each with its load.

    Those that lookups do not make faster are left out.
    """
    differing = _differing(kernel)
    found: dict[Expr, Load] = {}
    stack = [store.value for store in kernel.stores]
    seen: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        loads = differing[node]
        load = next(iter(loads)) if len(loads) == 1 else None
        of_byte = isinstance(load, Load) and {load.dtype, dtype_of(node)} <= BYTES
        least = 2 * _lookup_cycles(machine)
        if load != node and of_byte and _cycles(node, differing, machine) >= least:
            assert isinstance(load, Load)
            found[node] = load
        elif not isinstance(node, Load):
            stack += children(node)
    return found


def _differing(kernel: Kernel) -> dict[Expr, frozenset[Load | Index]]:
    """For each expression, the loads and indices by which it differs from point to point."""
    found: dict[Expr, frozenset[Load | Index]] = {}
    nothing: frozenset[Load | Index] = frozenset()
    for node in walk(*(store.value for store in kernel.stores)):
        below = nothing.union(*(found[part] for part in children(node)))
        if isinstance(node, Index):
            found[node] = frozenset((node,)) if node.axis in kernel.axes else nothing
        elif isinstance(node, Load):
            moves = any(axis in kernel.axes for axis, _ in node.access.terms)
            found[node] = frozenset((node,)) if moves or below else nothing
        else:
            found[node] = below
    return found


def _lookup_cycles(machine: Machine) -> float:
    """Cycles to look up a vector of bytes: two loads for each byte without an instruction."""
    return (
        _LOOKUP_CYCLES if machine.byte_lookups else 2 * machine.load_cycles * machine.vector_bytes
    )


def _cycles(value: Expr, differing: dict[Expr, frozenset[Load | Index]], machine: Machine) -> float:
    """Cycles to compute an expression for as many points as a register holds bytes."""
    registers = 0
    for node in walk(value, skip=differing[value]):
        if isinstance(node, (Op, Cast)) and differing[node]:
            widest = max(ITEM_BYTES[dtype_of(part)] for part in (node, *children(node)))
            count = operations(node.name, node.dtype) if isinstance(node, Op) else 1
            registers += widest * count
    return registers * machine.fma_cycles
