"""Merge axes that memory cannot tell apart: `i, j` with stride(i) = stride(j) * n(j).

Long axes make full vectors and few loops; rows `[batch, time]` become the rows of one matrix. Sums
of products over equally many elements then run in one loop, those with a common factor next to each
other: where a tile has too few registers for all of them, the loops into which they are divided
load that factor once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from ostinato.program.expr import Access, Axis, Index, Load, Reduced, walk
from ostinato.program.kernel import Kernel, Reduce, with_sums
from ostinato.program.nodes import Program, map_kernels
from ostinato.schedule.index_maps import (
    Affine,
    Map,
    substitute_access,
    substitute_kernel,
    substitute_reduce,
)
from ostinato.sizes.dims import Size


def collapse(program: Program) -> Program:
    """Merge axes of every kernel as far as all its accesses allow."""
    return program.with_body(
        map_kernels(program.body, lambda k: _sorted(_together(merged(_reduced(k)))))
    )


def _fits(outer: Axis, inner: Axis, accesses: Iterable[Access]) -> bool:
    return all(a.stride(outer) == a.stride(inner) * inner.extent for a in accesses)


def _indexed(kernel: Kernel) -> set[Axis]:
    return {node.axis for node in kernel.nodes if isinstance(node, Index)}


def merged(kernel: Kernel) -> Kernel:
    """The kernel with its axes merged as far as all its accesses allow."""
    indexed = _indexed(kernel)
    for outer in kernel.axes:
        for inner in kernel.axes:
            if outer is inner or {outer, inner} & (indexed | set(kernel.ordered)):
                continue
            if _fits(outer, inner, kernel.accesses):
                return merged(_merge_parallel(kernel, outer, inner))
    return kernel


def _merge_parallel(kernel: Kernel, outer: Axis, inner: Axis) -> Kernel:
    merged = Axis(inner.name, outer.extent * inner.extent)
    image: Map = {outer: Affine(0, ()), inner: Affine(0, ((merged, 1),))}
    axes = tuple(merged if a == inner else a for a in kernel.axes if a != outer)
    return replace(substitute_kernel(kernel, image), axes=axes)


def _reduced(kernel: Kernel) -> Kernel:
    """Merge neighbouring axes of reductions: the order of elements stays lexicographic."""
    indexed = _indexed(kernel)
    reductions = list(kernel.reductions)
    for position, reduce in enumerate(reductions):
        if reduce.chains > 1:
            continue  # which chain an element belongs to depends on its place on the last axis
        accesses = [node.access for node in walk(*reduce.operands) if hasattr(node, "access")]
        while (pair := _mergeable(reduce.axes, accesses, indexed)) is not None:
            outer, inner = pair
            merged = Axis(inner.name, outer.extent * inner.extent)
            image: Map = {outer: Affine(0, ()), inner: Affine(0, ((merged, 1),))}
            axes = tuple(merged if a == inner else a for a in reduce.axes if a != outer)
            reduce = replace(substitute_reduce(reduce, image), axes=axes)
            accesses = [substitute_access(access, image) for access in accesses]
        reductions[position] = reduce
    return replace(kernel, reductions=tuple(reductions))


def _mergeable(
    axes: tuple[Axis, ...], accesses: list[Access], indexed: set[Axis]
) -> tuple[Axis, Axis] | None:
    for outer, inner in pairwise(axes):
        if not {outer, inner} & indexed and _fits(outer, inner, accesses):
            return outer, inner
    return None


def _together(kernel: Kernel) -> Kernel:
    """Give sums of equally many products the same axes: one loop then adds to all of them."""
    first: dict[tuple[Size, ...], tuple[Axis, ...]] = {}
    reductions: list[Reduce] = []
    for reduce in kernel.reductions:
        if reduce.chains == 1 and reduce.factor is not None:
            axes = first.setdefault(tuple(axis.extent for axis in reduce.axes), reduce.axes)
            images = dict(zip(reduce.axes, (Affine(0, ((axis, 1),)) for axis in axes), strict=True))
            reduce = replace(substitute_reduce(reduce, images), axes=axes)
        reductions.append(reduce)
    return replace(kernel, reductions=tuple(reductions))


def _sorted(kernel: Kernel) -> Kernel:
    """Put sums of one loop with a common factor next to each other."""
    reductions = kernel.reductions
    if any(isinstance(node, Reduced) for reduce in reductions for node in reduce.nodes):
        return kernel
    readers = Counter((reduce.axes, load) for reduce in reductions for load in reduce.loads)

    def shared(reduce: Reduce) -> tuple[tuple[Axis, ...], Load | None]:
        load = max(reduce.loads, key=lambda load: readers[reduce.axes, load], default=None)
        return reduce.axes, load

    first: dict[tuple[tuple[Axis, ...], Load | None], int] = {}
    for position, reduce in enumerate(reductions):
        first.setdefault(shared(reduce), position)
    order = sorted(range(len(reductions)), key=lambda position: first[shared(reductions[position])])
    places = {old: new for new, old in enumerate(order)}
    if order == sorted(order):
        return kernel
    return with_sums(kernel, tuple(reductions[i] for i in order), places)
