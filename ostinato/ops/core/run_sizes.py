"""Sizes that only a run tells, as symbols: defined before it, or computed by kernels."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.ops.core.draft import Draft
from ostinato.ops.core.emitter import Emitter
from ostinato.ops.core.limits import Limits
from ostinato.ops.core.requirements import Requirements
from ostinato.program.expr import Access, Axis, Expr, Extent, Index, cast
from ostinato.program.kernel import Reduce, Store
from ostinato.program.nodes import Stmt
from ostinato.sizes.dims import (
    Dim,
    Size,
    computed,
    is_nonnegative,
    is_polynomial,
    is_signed,
    is_symbol,
    maximum,
    minimum,
    symbol,
    symbols,
)
from ostinato.sizes.substitution import decided, one_of, upper

# More than any number of elements, or of steps that ever run.
FAR = 2**40
# Each doubles the work.
_MOST_CHOICES = 4


class RunSizes:
    """Makes symbols, and tells what follows from those made so far."""

    def __init__(self, draft: Draft, require: Requirements, limits: Limits, emit: Emitter) -> None:
        self._draft, self._require, self._limits, self._emit = draft, require, limits, emit
        self._defined: dict[Size, str] = {}
        # Sizes made of computed ones that are computed as well, and in which list of statements.
        self._remade: dict[Size, tuple[list[Stmt], Size]] = {}
        # For sizes that are one of two, both of them.
        self._either: dict[str, tuple[Size, Size]] = {}
        # Upper bounds of sizes, in terms of sizes that are computed before them.
        self._most: dict[str, Size] = {}
        # The sizes for which symbols made of others stand.
        self._meaning: dict[str, Size] = {}
        # Extents of states, whose upper bounds are assumed until a step of the loop is known.
        self._assumed: set[str] = set()
        # Upper bounds of numbers of steps in runs that have such a step.
        self._inside: dict[str, Size] = {}

    # Defined before a run

    def defined(
        self, size: Size, what: str, signed: bool = False, bound: Size | None = None
    ) -> Size:
        """Give a size a symbol of its own if it depends on values of inputs, or is computed.

        It keeps expressions short. Unless `signed`, the size must not be negative, and from there
        on it is known not to be.

        bound: an upper bound that is better than that of its parts.
        """
        require = self._require
        is_long = bool(computed(size)) and not is_polynomial(size)
        if not isinstance(size, Dim) or not (
            is_long or is_signed(size) or require.is_data_dependent(size)
        ):
            if not signed:
                require.nonnegative(size, what)
            return size
        if str(size) in require.data_dependent and (signed or not is_signed(size)):
            return size
        if not signed and not is_nonnegative(size):
            require.nonnegative(size, what)
            size = maximum(size, 0)
        return self.named(size, signed, bound)

    def named(self, size: Size, signed: bool = False, bound: Size | None = None) -> Size:
        """Give a size a symbol of its own, which keeps expressions short, unless it is one.

        bound: as in `defined`.
        """
        if not isinstance(size, Dim) or is_symbol(size):
            return size
        if computed(size):
            return size if signed else self._computed_anew(size, bound)
        data_dependent = self._require.data_dependent
        if size not in self._defined:
            self._defined[size] = name = f"{self._draft.node}.{len(data_dependent)}"
            self._meaning[name] = size
            data_dependent.add(name)
            self._draft.define(name, size)
        return symbol(self._defined[size], signed)

    def is_given(self, size: Size) -> bool:
        """Whether a size follows from the inputs of the model, not from values of other stages."""
        values = {name for interface in self._draft.inputs for name in interface.values}
        definitions = dict(self._draft.definitions)
        names = list(symbols(size))
        while names:
            name = names.pop()
            if name in definitions:
                names += symbols(definitions[name])
            elif name in self._require.data_dependent and name not in values:
                return False
        return True

    # Computed by kernels

    def computed(self, value: Expr, bound: Size, what: str) -> Size:
        """Make an int64 that a kernel computes a size: a symbol of its own from here on.

        value: from 0 to `bound`, which is known before the run: memory is laid out by it.
        what: says what the size is.
        """
        size = self.declared(bound, what)
        self.compute(size, value)
        return size

    def declared(self, bound: Size, what: str) -> Size:
        """As `computed`; `compute` has to come before any use, once on each way there."""
        most = self._limits.upper(bound)
        name = self._draft.size_buffer(what, most)
        if most != bound:
            self._most[name] = bound
        self._require.data_dependent.add(name)
        return symbol(name, computed=True)

    def measured(self, value: Expr) -> Size:
        """Make an integer that a step of a loop computes a size, which may be negative."""
        name = self._draft.size_buffer("value", FAR)
        self._require.data_dependent.add(name)
        size = symbol(name, signed=True, computed=True)
        self.compute(size, cast(value, "int64"))
        return size

    def compute(self, size: Size, value: Expr, reductions: Sequence[Reduce] = ()) -> None:
        """Give a declared size its value."""
        self._emit.kernel((), [Store(Access(str(size), 0, ()), value)], reductions)

    def step(self, axis: Axis, steps: Size, is_rest: bool = False) -> Size:
        """Make the number of a loop's step a size, by which values that grow get their memory.

        steps: at most this many run. is_rest: whether all of them run, and the number is expressed
        by how many come after it, so that what shrinks is a sum.
        """
        name = self._draft.size_buffer("step", maximum(self._limits.most(steps) - 1, 0))
        if not isinstance(steps, int) or steps < FAR:
            self._require.reached.add(name)
        size = symbol(name, computed=True)
        if not is_rest:
            self.compute(size, Index(axis))
            return size
        self._inside[name] = steps - 1
        self.compute(size, Extent(steps - 1) - Index(axis))
        return steps - 1 - size

    def varying(self, bound: Size, what: str) -> Size:
        """As `declared`, for a size that each step of a loop may compute anew for the next one."""
        size = self.declared(bound, what)
        self._assumed.add(str(size))
        self._require.reached.add(str(size))
        return size

    def either(self, left: Size, right: Size, bound: Size, what: str) -> Size:
        """As `declared`, for a size that is one of two."""
        size = self.declared(bound, what)
        self._either[str(size)] = left, right
        if self._require.is_reached(left, right):
            self._require.reached.add(str(size))
        return size

    def most_added(self, new: Size, old: Size, depth: int = _MOST_CHOICES) -> Size:
        """An upper bound of the difference of two sizes.

        depth: how many nested choices are taken apart.
        """
        if str(new) in self._either:
            left, right = (self.most_added(one, old, depth) for one in self._either[str(new)])
            return maximum(left, right)
        added = self._limits.most(new - old)
        if not computed(new - old):
            return added
        if str(new) in self._most:
            return minimum(added, self.most_added(self._most[str(new)], old, depth))
        ways = one_of(new, computed(old)) if depth else None
        if ways is None:
            return added
        # The common part of both ways cancels in each way by itself.
        left, right = (self.most_added(way, old, depth - 1) for way in ways[1])
        return minimum(added, (maximum if ways[0] == "max" else minimum)(left, right))

    def decided(self, size: Size) -> Size:
        """Simplify a size in a loop by choices that the facts about its steps decide.

        An assumption decides nothing: what the choice says about the state may refute it.
        """
        if not self._emit.is_inside:
            return size
        bounds = {n: most for n, most in self._draft.bounds.items() if n not in self._assumed}
        return decided(size, {**bounds, **self._inside})

    def meaning(self, size: Size) -> Size:
        """The size for which a symbol of its own stands; any other size as it is."""
        while is_symbol(size) and str(size) in self._meaning:
            size = self._meaning[str(size)]
        return size

    def lost(self, new: Size, old: Size) -> int | None:
        """By how many one size is less than another, as long as it is not 0; None if unclear."""
        new = self.meaning(new)
        choice = one_of(new)
        if choice is not None and choice[0] == "max" and 0 in choice[1]:
            new = next(size for size in choice[1] if size != 0)
        less = old - new
        return less if isinstance(less, int) else None

    def most_apart(self, size: Size, other: Size) -> Size | None:
        """An upper bound of a size for any value of `other`, a part of it; None if unclear."""
        while is_symbol(size) and str(size) in self._most:
            size = self._most[str(size)]
        apart = computed(other)
        bounds = {name: most for name, most in self._draft.bounds.items() if name not in apart}
        return upper(size, bounds)

    def _computed_anew(self, size: Size, bound: Size | None) -> Size:
        """Compute a size made of computed ones as one of its own; once in a list of statements."""
        body, known = self._remade.get(size, (None, size))
        if body is not self._draft.body:
            most = self._limits.most(size) if bound is None else bound
            known = self.computed(Extent(size), most, "")
            self._meaning[str(known)] = size
            if bound is None:
                self._most[str(known)] = size
            if self._require.is_reached(size):
                self._require.reached.add(str(known))
            self._remade[size] = self._draft.body, known
        return known

    def forget(self) -> None:
        """Forget computed sizes: the statements that computed them may have been dropped."""
        self._remade.clear()
