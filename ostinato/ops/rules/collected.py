"""What the steps of a loop give one by one, as the rows of one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.emitter import LoopFrame
from ostinato.ops.core.growing_states import State
from ostinato.ops.core.tensor import Tensor, Value, at
from ostinato.program.expr import Extent, Index, Load, constant, op
from ostinato.program.nodes import Stmt
from ostinato.sizes.dims import Size, computed


def is_fixed(element: Value, loop: LoopFrame, states: Sequence[State]) -> bool:
    """Whether what a step gives has a shape that is known before the loop."""
    varying = computed(*(state.extent for state in states))
    return loop.is_fixed(element.shape) and not computed(*element.shape) & varying


def collect(builder: Builder, element: Value, loop: LoopFrame, steps: Size) -> Tensor:
    """A scan output: one element for each step."""
    sequence = builder.empty(element.dtype, (steps, *element.shape))
    builder.copy(element, at(sequence, 0, loop.axis, 0, 1))
    return sequence


def collect_alike(
    builder: Builder, element: Value, loop: LoopFrame, steps: Size, before: list[Stmt]
) -> Tensor:
    """A scan output whose shape each step computes; all have to be as that of the first step.

    before: the statements before the loop.
    """
    sizes, step = list(element.shape), Index(loop.axis)
    for axis, own in enumerate(element.shape):
        if not computed(own):
            continue
        what = f"axis {axis} of what each step gives"
        size = builder.sizes.declared(builder.require.most(own), what)
        with builder.emit.block([]) as statements:
            builder.sizes.compute(size, constant(0, "int64"))
        before += statements
        told = op("select", op("eq", step, constant(0, "int64")), Extent(own), Extent(size))
        chosen = builder.stored((), (), told)
        assert chosen.base is not None
        builder.sizes.compute(size, Load(chosen.base, "int64"))
        builder.require.equal(own, size, what)
        sizes[axis] = size
    sequence = builder.empty(element.dtype, (steps, *sizes))
    place = at(sequence, 0, loop.axis, 0, 1)
    builder.copy(element, replace(place, shape=element.shape))
    return sequence
