"""Statements of the program being built: kernels, loops, and the blocks that they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

from ostinato.ops.core.draft import Draft
from ostinato.ops.core.limits import Limits
from ostinato.ops.core.tensor import Tensor
from ostinato.program.expr import Axis, Expr, Index
from ostinato.program.kernel import Kernel, Reduce, Store
from ostinato.program.nodes import Carry, Loop, Require, Stmt
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, computed
from ostinato.sizes.strides import Shape


@dataclass
class LoopFrame:
    """A loop being built: its axis; its carries and condition are to be filled in.

    outside: the sizes that kernels before the loop compute.
    """

    axis: Axis
    outside: frozenset[str] = frozenset()
    carries: list[Carry] = field(default_factory=list)
    condition: str | None = None

    def carry(self, state: Tensor, following: Tensor) -> None:
        """Let the memory of two tensors swap behind each step."""
        self.carries.append(Carry(state.buffer, following.buffer))

    def is_fixed(self, shape: Shape) -> bool:
        """Whether no step of the loop computes a size of the shape."""
        return computed(*shape) <= self.outside


class Emitter:
    """Appends statements to the innermost block.

    steps: the numbers of the present steps of the loops being built, the outermost first.
    """

    def __init__(self, draft: Draft, limits: Limits) -> None:
        self.steps: list[Expr] = []
        self._draft, self._limits = draft, limits
        self._depth = 0

    @property
    def is_inside(self) -> bool:
        """Whether what is built is part of a loop or of a branch."""
        return self._depth > 0

    def append(self, statement: Stmt) -> None:
        """Append a statement that is no kernel."""
        if isinstance(statement, Require):
            statement = replace(statement, message=self._draft.told(statement.message))
        self._draft.body.append(statement)

    def kernel(
        self,
        axes: Sequence[Axis | None],
        stores: Sequence[Store],
        reductions: Sequence[Reduce] = (),
        ordered: Sequence[Axis | None] = (),
    ) -> None:
        """Append a kernel, unless it has no points; those of `ordered` axes run in order."""
        kept = tuple(axis for axis in axes if axis is not None)
        if any(axis.extent == 0 for axis in kept):
            return
        kernel = Kernel(
            f"k{self._draft.number()}",
            kept,
            tuple(reductions),
            tuple(stores),
            sources=(self._draft.node,),
            ordered=tuple(axis for axis in ordered if axis is not None),
        )
        self._limits.time(kernel)
        self.append(kernel)

    @contextmanager
    def block(self, statements: list[Stmt]) -> Iterator[list[Stmt]]:
        """Statements built inside are appended to this list instead."""
        outer, self._draft.body = self._draft.body, statements
        self._depth += 1
        try:
            yield statements
        finally:
            self._draft.body = outer
            self._depth -= 1

    @contextmanager
    def step(self, number: Expr) -> Iterator[None]:
        """Put all that is built inside into this step of a loop."""
        self.steps.append(number)
        self._draft.loops += 1
        try:
            yield
        finally:
            self._draft.loops -= 1
            self.steps.pop()

    @contextmanager
    def loop(self, extent: Size) -> Iterator[LoopFrame]:
        """Statements built inside run for every value of the axis; see `LoopFrame`."""
        draft = self._draft
        frame = LoopFrame(draft.axis(extent, "t"), frozenset(draft.bounds))
        checks = len(draft.checks)
        with self.block([]) as body, self.step(Index(frame.axis)):
            yield frame
        if extent == 0:
            # Statements that never run cannot contradict a check either.
            del draft.checks[checks:]
            return
        # States without elements are never written, so there is nothing to carry.
        carries = tuple(c for c in frame.carries if draft.buffers[c.state].size != 0)
        loop = Loop(frame.axis, carries, tuple(body), frame.condition)
        self._limits.time(loop)
        self.append(loop)
