"""Estimates of the steps that a statement takes."""

from __future__ import annotations

from functools import lru_cache

from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Branch, Loop, Stmt
from ostinato.sizes.dims import Apply, Dim, Size, product


def steps(statement: Stmt) -> Size:
    """Estimate the steps of a statement: a kernel's points times the elements that each reduces.

    What is inside a loop counts for each of its steps. A loop with a condition counts as one step:
    it ends when its data says so.
    """
    if isinstance(statement, Kernel):
        reduced = [product([axis.extent for axis in r.axes]) for r in statement.reductions]
        points = product([axis.extent for axis in statement.axes])
        return points * sum(reduced, 0) if reduced else points
    if isinstance(statement, Loop):
        inner = sum((steps(s) for s in statement.body), 1)
        return inner if statement.condition else statement.axis.extent * inner
    if isinstance(statement, Branch):
        return sum((steps(s) for s in (*statement.then, *statement.orelse)), 0)
    return 1


def fixed_steps(statement: Stmt) -> int:
    """A lower bound of the steps that follow from numbers in the program, whatever the sizes."""
    if isinstance(statement, Kernel):
        reduced = [_fixed(r.axes) for r in statement.reductions]
        return _fixed(statement.axes) * (sum(reduced) if reduced else 1)
    if isinstance(statement, Loop):
        inner = 1 + sum(fixed_steps(s) for s in statement.body)
        return inner if statement.condition else _largest(statement.axis.extent) * inner
    if isinstance(statement, Branch):
        return sum(fixed_steps(s) for s in (*statement.then, *statement.orelse))
    return 1


def _fixed(axes: tuple[Axis, ...]) -> int:
    total = 1
    for axis in axes:
        total *= _largest(axis.extent)
    return total


@lru_cache(maxsize=4096)
def _largest(size: Size) -> int:
    """The largest number that is written in a size; at least 1."""
    if not isinstance(size, Dim):
        return max(abs(size), 1)
    numbers = [abs(coefficient) for _, coefficient in size.terms]
    atoms = [atom for monomial, _ in size.terms for atom in monomial]
    numbers += [_largest(n) for atom in atoms if isinstance(atom, Apply) for n in atom.grows_with]
    return max(numbers, default=1)
