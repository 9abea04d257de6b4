"""Operands whose neighbours lie along the sum, not along the lanes, are transposed first.

    y[i, j] = sum_k q[i, k] b[j, k]           c[k, j] = b[j, k]
                                        =>    y[i, j] = sum_k q[i, k] c[k, j]

Lanes along `j` would gather each element of `b` once for each `i`. The copy gathers it once. Where
only a run tells how many `i` there are, it decides by their number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ostinato.program.dims import Size, is_nonnegative, minimum, product
from ostinato.program.expr import Access, Axis, Expr, Load, constant, op, walk
from ostinato.program.nodes import (
    Branch,
    Buffer,
    Kernel,
    Program,
    Stmt,
    Store,
    map_loads,
    with_bodies,
)
from ostinato.schedule.affine import size_expr
from ostinato.schedule.tile import is_packable, typical

# Shorter axes do not fill vectors.
LEAST_LANES = 8
# A copy pays if each of its elements is read at least so often.
LEAST_USES = 4


@dataclass(frozen=True)
class _Crosswise:
    """The axis for the lanes, the loads that they would gather, and uses of each element."""

    lane: Axis
    loads: tuple[Load, ...]
    uses: Size


def straighten(program: Program) -> Program:
    """Transpose what lanes of reductions would gather, outside of loops."""
    buffers = dict(program.buffers)
    body = _straightened(program.body, buffers)
    return replace(program, buffers=buffers).with_body(body)


def _straightened(body: tuple[Stmt, ...], buffers: dict[str, Buffer]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for statement in body:
        if isinstance(statement, Branch):
            result.append(with_bodies(statement, lambda inner: _straightened(inner, buffers)))
            continue
        found = _crosswise(statement, buffers) if isinstance(statement, Kernel) else None
        if found is None:
            result.append(statement)
            continue
        assert isinstance(statement, Kernel)
        copies, reader = _transposed(statement, found, buffers)
        if is_nonnegative(found.uses - LEAST_USES):
            result += [*copies, reader]
            continue
        decision = _decision(statement, found.uses, buffers)
        plain = replace(statement, name=f"{statement.name}.few")
        pays = decision.stores[0].access.buffer
        result += [decision, Branch(pays, (*copies, reader), (plain,))]
    return tuple(result)


def _crosswise(kernel: Kernel, buffers: dict[str, Buffer]) -> _Crosswise | None:
    """What to transpose for the lanes; None where some axis suits them as it is."""
    if kernel.ordered or kernel.guard is not None or any(r.chains > 1 for r in kernel.reductions):
        return None
    roots = [expr for reduce in kernel.reductions for expr in reduce.operands]
    inner = [node for node in walk(*roots) if isinstance(node, Load)]
    best: _Crosswise | None = None
    for lane in kernel.axes:
        if typical(lane.extent) < LEAST_LANES:
            continue
        across = tuple(
            load
            for load in inner
            if load.access.stride(lane) not in (0, 1) and not is_packable(kernel, load)
        )
        if not across:
            return None
        if any(store.access.stride(lane) not in (0, 1) for store in kernel.stores):
            continue
        if all(_is_injective(kernel, load, buffers) for load in across):
            best = _Crosswise(lane, across, _uses(kernel, across))
    if best is None or (isinstance(best.uses, int) and best.uses < LEAST_USES):
        return None
    return best


def _uses(kernel: Kernel, loads: tuple[Load, ...]) -> Size:
    """How often each element is read at least."""
    least: Size | None = None
    for load in loads:
        around = product([a.extent for a in kernel.axes if load.access.stride(a) == 0])
        least = around if least is None else minimum(least, around)
    assert least is not None
    return least


def _is_injective(kernel: Kernel, load: Load, buffers: dict[str, Buffer]) -> bool:
    """Whether a copy of what is loaded needs no more elements than there are."""
    own = {*kernel.axes, *(axis for r in kernel.reductions for axis in r.axes)}
    axes = [axis for axis, _ in load.access.terms]
    if load.mask is not None or load.index or not own.issuperset(axes):
        return False
    count = product([axis.extent for axis in axes])
    return is_nonnegative(buffers[load.access.buffer].size - count)


def _transposed(
    kernel: Kernel, found: _Crosswise, buffers: dict[str, Buffer]
) -> tuple[list[Kernel], Kernel]:
    """Kernels that write the operands with the lanes innermost, and the kernel reading these."""
    copies: list[Kernel] = []
    moved: dict[Load, Expr] = {}
    for number, load in enumerate(found.loads):
        axes = [a for a in kernel.axes if a != found.lane and load.access.stride(a) != 0]
        axes += [a for a, _ in load.access.terms if a not in kernel.axes]
        axes.append(found.lane)
        name = f"{kernel.name}.operand{number}"
        size: Size = 1
        terms: list[tuple[Axis, Size]] = []
        for axis in reversed(axes):
            terms.insert(0, (axis, size))
            size = size * axis.extent
        buffers[name] = Buffer(name, load.dtype, size, "arena")
        access = Access(name, 0, tuple(terms))
        copies.append(Kernel(name, tuple(axes), (), (Store(access, load),), sources=kernel.sources))
        moved[load] = Load(access, load.dtype)
    return copies, map_loads(kernel, moved.get)


def _decision(kernel: Kernel, uses: Size, buffers: dict[str, Buffer]) -> Kernel:
    """Computes whether the copies pay."""
    name = f"{kernel.name}.pays"
    buffers[name] = Buffer(name, "bool", 1, "arena")
    pays = op("ge", size_expr(uses), constant(LEAST_USES, "int64"))
    return Kernel(name, (), (), (Store(Access(name, 0, ()), pays),), sources=kernel.sources)
