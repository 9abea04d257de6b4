"""What the steps of a loop give one by one, as the rows of one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.emitter import LoopFrame
from ostinato.ops.core.growing_states import State
from ostinato.ops.core.tensor import Tensor, Value, at
from ostinato.program.expr import Extent, Index, Load, constant, select
from ostinato.program.nodes import Stmt
from ostinato.sizes.dims import SPARE, Size, computed, symbols
from ostinato.sizes.strides import Shape


def varying(states: Sequence[State]) -> frozenset[str]:
    """The sizes that steps compute of their states for the next step."""
    return computed(*(extent for state in states for extent in (state.extent, *state.extents)))


def is_fixed(element: Value, loop: LoopFrame, states: Sequence[State]) -> bool:
    """Whether what a step gives has a shape that is known before the loop."""
    return loop.is_fixed(element.shape) and not computed(*element.shape) & varying(states)


def collect(
    builder: Builder,
    element: Value,
    loop: LoopFrame,
    steps: Size,
    states: Sequence[State],
    before: list[Stmt],
    done: Size,
) -> Tensor:
    """A scan output: one element for each step. before: the statements before the loop.

    steps: for how many there is room. done: how many there have been at the end of each.
    """
    shape = told_shape(builder, element, loop, before, varying(states))
    # Where memory bounds the steps, and sizes that a run computes are not part of that bound, each
    # step finds out whether there is room for one more.
    is_open = SPARE in symbols(steps) and bool(computed(*shape))
    sequence = builder.empty(element.dtype, (done if is_open else steps, *shape))
    place = at(sequence, 0, loop.axis, 0, 1)
    builder.copy(element, replace(place, shape=element.shape))
    return sequence


def told_shape(
    builder: Builder,
    element: Value,
    loop: LoopFrame,
    before: list[Stmt],
    also: frozenset[str] = frozenset(),
) -> Shape:
    """The shape of what steps give: where they compute it, that of the first one.

    Any other is an error. before: the statements before the loop. also: sizes from before the loop
    that steps change.
    """
    sizes, step = list(element.shape), Index(loop.axis)
    for axis, own in enumerate(element.shape):
        if loop.is_fixed((own,)) and not computed(own) & also:
            continue
        what = f"axis {axis} of what each step gives"
        size = builder.sizes.declared(builder.limits.most(own), what)
        with builder.emit.block([]) as statements:
            builder.sizes.compute(size, constant(0, "int64"))
        before += statements
        told = select(step.equals(0), Extent(own), Extent(size))
        chosen = builder.stored((), (), told)
        builder.sizes.compute(size, Load(chosen.address, "int64"))
        builder.require.equal(own, size, what)
        sizes[axis] = size
    return tuple(sizes)
