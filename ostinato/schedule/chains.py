"""Sums in chains whose elements lie apart run for all points at once.

                                                for c, i: s[c, i] = 0
    for i: y[i] = sum_k x[i + n*k]      =>      for m:
           in 4 chains                              for c, i: s[c, i] += x[i + n*(4*m + c)]
                                                for i: y[i] = tree of s[0..3, i]

A sum over pixels has its chains in lanes. Where a layout has made channels neighbours instead, each
lane would load from a line of its own. The order in which elements are added is part of a sum, so
the chains become an axis. Partial results lie beside each other as the lanes' loads do, whatever is
stored in the end, all chains of an image together.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.machine.record import Machine
from ostinato.program.expr import Access, Axis, Expr, Load, Reduced, op, rewrite, walk
from ostinato.program.kernel import Kernel, Reduce, Store, combine, identity
from ostinato.program.nodes import Buffer, Loop, Program, Stmt, bodies, with_bodies
from ostinato.schedule.index_maps import Affine, substitute
from ostinato.sizes.dims import Size, floordiv, product


def chains_to_axes(program: Program, machine: Machine) -> Program:
    """Let points run along lanes where chains would gather what they add."""
    buffers = dict(program.buffers)

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for statement in body:
            lane = _lane(statement, machine) if isinstance(statement, Kernel) else None
            if isinstance(statement, Kernel) and lane is not None:
                result += _unchained(statement, lane, buffers)
            else:
                result.append(with_bodies(statement, change) if bodies(statement) else statement)
        return tuple(result)

    return replace(program, buffers=buffers).with_body(change(program.body))


def gathers(kernel: Kernel, machine: Machine) -> bool:
    """Whether chains along lanes find no neighbours, and points do."""
    return _lane(kernel, machine) is not None


def _lane(kernel: Kernel, machine: Machine) -> Axis | None:
    """The axis along which points find neighbours, the innermost one; None if chains do better."""
    plain = not kernel.ordered and kernel.guard is None
    if not plain or not kernel.reductions or any(store.partial for store in kernel.stores):
        return None
    apart = False
    lanes = [axis for axis in kernel.axes if _fills_vectors(axis.extent, machine)]
    for reduce in kernel.reductions:
        if reduce.chains == 1 or len(reduce.axes) != 1:
            return None
        loads = [node for node in walk(*reduce.operands) if isinstance(node, Load)]
        if any(load.mask is not None or load.index for load in loads):
            return None
        apart |= any(load.access.stride(reduce.axes[0]) not in (0, 1) for load in loads)
        lanes = [a for a in lanes if all(load.access.stride(a) in (0, 1) for load in loads)]
        lanes = [a for a in lanes if any(load.access.stride(a) == 1 for load in loads)]
    return lanes[-1] if apart and lanes else None


def _fills_vectors(extent: Size, machine: Machine) -> bool:
    return isinstance(extent, int) and extent * 4 >= machine.vector_bytes


def _unchained(kernel: Kernel, lane: Axis, buffers: dict[str, Buffer]) -> list[Stmt]:
    """The statements that take the place of the kernel."""
    points = (*(axis for axis in kernel.axes if axis != lane), lane)
    result: list[Stmt] = []
    sums: list[Expr] = []
    for number, reduce in enumerate(kernel.reductions):
        name = f"{kernel.name}.chains{number}"
        size = reduce.chains * product([axis.extent for axis in points])
        buffers[name] = Buffer(name, reduce.dtype, size, "arena")
        result += _partial_results(replace(kernel, axes=points), reduce, name)
        partial: list[Expr] = [
            Load(_access(name, points, reduce.chains, chain), reduce.dtype)
            for chain in range(reduce.chains)
        ]
        sums.append(_tree(reduce, partial))

    def leaf(node: Expr) -> Expr | None:
        return sums[node.position] if isinstance(node, Reduced) else None

    stores = tuple(store.map(lambda e: rewrite(e, leaf)) for store in kernel.stores)
    return [*result, replace(kernel, reductions=(), stores=stores)]


def _partial_results(kernel: Kernel, reduce: Reduce, name: str) -> list[Stmt]:
    """The statements that compute what each chain adds up to for each point."""
    (summed,) = reduce.axes
    chain = Axis(f"{summed.name}chain", reduce.chains)
    step = Axis(f"{summed.name}step", floordiv(summed.extent, reduce.chains))
    rest = Axis(f"{summed.name}rest", summed.extent - step.extent * reduce.chains)
    last = step.extent * reduce.chains

    def adding(what: str, axis: Axis, image: Affine) -> Kernel:
        access = _access(name, kernel.axes, reduce.chains, axis)
        operands = [substitute(operand, {summed: image}) for operand in reduce.operands]
        factor = operands[1] if reduce.factor is not None else None
        value = combine(reduce, Load(access, reduce.dtype), operands[0], factor)
        stores = (Store(access, value),)
        axes = (*kernel.axes[:-1], axis, kernel.axes[-1])
        return Kernel(f"{name}.{what}", axes, (), stores, sources=kernel.sources)

    begin = Kernel(
        f"{name}.begin",
        (*kernel.axes[:-1], chain, kernel.axes[-1]),
        (),
        (Store(_access(name, kernel.axes, reduce.chains, chain), identity(reduce)),),
        sources=kernel.sources,
    )
    steps = adding("step", chain, Affine(0, ((step, reduce.chains), (chain, 1))))
    result: list[Stmt] = [begin, Loop(step, (), (steps,))]
    if rest.extent != 0:
        result.append(adding("rest", rest, Affine(last, ((rest, 1),))))
    return result


def _access(name: str, points: tuple[Axis, ...], chains: int, chain: int | Axis) -> Access:
    """The partial result of a chain, or of those along an axis, at a point.

    All chains of a vector of points lie beside each other, images outside of them.
    """
    *outer, lane = points
    stride = lane.extent * chains
    terms: list[tuple[Axis, Size]] = [(lane, 1)]
    for point in reversed(outer):
        terms.insert(0, (point, stride))
        stride = stride * point.extent
    if isinstance(chain, int):
        return Access(name, lane.extent * chain, tuple(terms))
    return Access(name, 0, (*terms[:-1], (chain, lane.extent), terms[-1]))


def _tree(reduce: Reduce, values: list[Expr]) -> Expr:
    """The result of all chains, as the meaning of `Reduce.chains` has it."""
    name = {"sum": "add", "prod": "mul"}.get(reduce.combine, reduce.combine)
    while len(values) > 1:
        half = len(values) // 2
        values = [op(name, values[i], values[i + half]) for i in range(half)]
    return values[0]
