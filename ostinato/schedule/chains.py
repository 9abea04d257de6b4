"""Sums in chains whose elements lie apart run for all points at once.

                                                for c, i: s[c, i] = 0
    for i: y[i] = sum_k x[i + n*k]      =>      for m:
           in 4 chains                              for c, i: s[c, i] += x[i + n*(4*m + c)]
                                                for i: y[i] = tree of s[0..3, i]

A sum over pixels has its chains in lanes. Where a layout has made channels neighbours instead, each
lane would load from a line of its own. The order in which elements are added is part of a sum, so
the chains become an axis. Partial results lie beside each other as the lanes' loads do, whatever is
stored in the end, all chains of an image together. Where there are no more terms than chains, each
term is a partial result, and none is stored. Constants are turned, so that points find neighbours
in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from ostinato.machine.record import Machine
from ostinato.program.expr import Access, Axis, Expr, Load, Reduced, op, rewrite, walk
from ostinato.program.kernel import Kernel, Reduce, Store, combine, identity, map_expressions
from ostinato.program.laid import Contents, Laid, Piece
from ostinato.program.nodes import Buffer, Loop, Program, Stmt, expand_kernels
from ostinato.schedule.index_maps import Affine, substitute
from ostinato.sizes.dims import Size, floordiv, is_nonnegative, product


def chains_to_axes(program: Program, machine: Machine) -> Program:
    """Let points run along lanes where chains would gather what they add."""
    buffers, constants = dict(program.buffers), dict(program.constants)

    def change(kernel: Kernel) -> Sequence[Stmt]:
        lane = _lane(kernel, machine, buffers)
        if lane is None:
            return (kernel,)
        return _unchained(_turned(kernel, lane, buffers, constants), lane, buffers)

    return program.with_body(expand_kernels(program.body, change), buffers, constants)


def gathers(kernel: Kernel, machine: Machine) -> bool:
    """Whether lanes along chains would gather, while lanes along points find neighbours."""
    return _lane(kernel, machine, {}) is not None


def _lane(kernel: Kernel, machine: Machine, buffers: Mapping[str, Buffer]) -> Axis | None:
    """The innermost axis along which points find neighbours; None if chains do better."""
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
        loads = [load for load in loads if not _can_turn(kernel, load, buffers)]
        apart |= any(load.access.stride(reduce.axes[0]) not in (0, 1) for load in loads)
        lanes = [a for a in lanes if all(load.access.stride(a) in (0, 1) for load in loads)]
        lanes = [a for a in lanes if any(load.access.stride(a) == 1 for load in loads)]
    return lanes[-1] if apart and lanes else None


def _fills_vectors(extent: Size, machine: Machine) -> bool:
    return isinstance(extent, int) and extent * 4 >= machine.vector_bytes


def _can_turn(kernel: Kernel, load: Load, buffers: Mapping[str, Buffer]) -> bool:
    """Whether an operand is a constant whose layout may change, without taking more memory."""
    buffer = buffers.get(load.access.buffer)
    if buffer is None or buffer.kind != "constant" or not isinstance(load.access.offset, int):
        return False
    sizes = [axis.extent for axis, _ in load.access.terms if axis in kernel.own_axes]
    known = len(sizes) == len(load.access.terms) and all(isinstance(n, int) for n in sizes)
    return known and is_nonnegative(buffer.size - product(sizes))


def _turned(
    kernel: Kernel, lane: Axis, buffers: dict[str, Buffer], constants: dict[str, Contents]
) -> Kernel:
    """Change the layout of constants so that points along the lanes are neighbours."""
    turned: dict[Expr, Expr] = {}
    for load in kernel.summed:
        access = load.access
        if access.stride(lane) in (0, 1) or not _can_turn(kernel, load, buffers):
            continue
        axes = [axis for axis, _ in sorted(access.terms, key=lambda term: term[0] == lane)]
        start, *strides = _known([access.offset, *(access.stride(axis) for axis in axes)])
        shape = _known(axis.extent for axis in axes)
        steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        source = constants[access.buffer]
        piece = Piece(access.buffer, start, tuple(strides), 0, tuple(steps), shape)
        name = f"{kernel.name}.turned{len(turned)}"
        constants[name] = Laid(source.dtype, math.prod(shape), (piece,), {access.buffer: source})
        buffers[name] = replace(buffers[access.buffer], name=name, size=math.prod(shape))
        moved = Access(name, 0, tuple(zip(axes, steps, strict=True)))
        turned[load] = replace(load, access=moved)
    return map_expressions(kernel, turned.get) if turned else kernel


def _known(sizes: Iterable[Size]) -> tuple[int, ...]:
    """The sizes around constants as numbers."""
    return tuple(int(size) for size in sizes if isinstance(size, int))


def _unchained(kernel: Kernel, lane: Axis, buffers: dict[str, Buffer]) -> list[Stmt]:
    """Return the statements that take the place of the kernel."""
    points = (*(axis for axis in kernel.axes if axis != lane), lane)
    result: list[Stmt] = []
    sums: list[Expr] = []
    for number, reduce in enumerate(kernel.reductions):
        extent = reduce.axes[0].extent
        if isinstance(extent, int) and 0 < extent <= reduce.chains:
            sums.append(_tree(reduce, [_term(reduce, k) for k in range(extent)]))
            continue
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
    """Return the statements that compute the partial result of each chain for each point."""
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

    Each row of points has the rows of its chains next to each other.
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


def _term(reduce: Reduce, number: int) -> Expr:
    """The partial result of a chain of a single term."""
    image = {reduce.axes[0]: Affine(number, ())}
    operands = [substitute(operand, image) for operand in reduce.operands]
    factor = operands[1] if reduce.factor is not None else None
    return combine(reduce, identity(reduce), operands[0], factor)


def _tree(reduce: Reduce, values: list[Expr]) -> Expr:
    """Combine the chains in the order that `Reduce.chains` defines.

    Chains without a term, which come last, are left out of sums and products, which they do not
    change: a sum that began with 0 is never -0, unless it added a product that was rounded to it.
    Which of two numbers is larger may depend on the order where one is NaN.
    """
    if reduce.factor is not None or reduce.combine not in ("sum", "prod"):
        values = [*values, *[identity(reduce)] * (reduce.chains - len(values))]
    name = reduce.operator
    half = reduce.chains
    while half > 1:
        half //= 2
        pairs = zip_longest(values[:half], values[half:])
        values = [a if b is None else op(name, a, b) for a, b in pairs]
    return values[0]
