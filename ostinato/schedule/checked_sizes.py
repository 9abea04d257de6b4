"""Sizes that checks prove to be equal get one form, and dimensions their lower bounds.

    check (h + 1) // 2 - 1 >= 0            h is at least 1
    check 2*(h // 2) = h'                  b[c, y] at 2*(h // 2) * c + y,  y < 2*(h // 2)
    b[c, y] at h' * c + y, y < h'    =>    a[c, y] at 2*(h // 2) * c + y,  y < 2*(h // 2)
    a[c, y] at 2*(h // 2) * c + y

A detector joins a downsampled image with an upsampled one. Both have as many rows in every run that
passes the checks, but in different expressions: passes that compare sizes, such as `layout`, cannot
see that one lies within the other. Nor that the output extent of a window, half the image less one,
is not negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from ostinato.program.kernel import Kernel
from ostinato.program.nodes import (
    Branch,
    Check,
    Interface,
    Loop,
    Program,
    Require,
    Stmt,
    bodies,
    with_bodies,
)
from ostinato.program.resized import Resized
from ostinato.sizes.dims import (
    Apply,
    Atom,
    Dim,
    Size,
    Symbol,
    computed,
    exact_quotient,
    is_nonnegative,
    linear,
    terms_of,
)
from ostinato.sizes.substitution import replaced

# Replacements of symbols and functions.
_Others: TypeAlias = "dict[Atom, Size]"


def checked_sizes(program: Program) -> Program:
    """Give equal sizes one form, and dimensions their lower bounds, as the checks of a program say.

    A condition that a branch requires holds for the statements behind it in the same branch.
    """
    known = _Known(program)
    body = known.statements(program.body, program.checks)
    if body == program.body:
        return program
    everywhere = known.sizes(program.checks)
    # The inputs of a call tell the dimensions.
    given = {one.buffer for one in program.inputs}
    return replace(
        program,
        inputs=tuple(_shaped(one, everywhere.above) for one in program.inputs),
        outputs=tuple(_shaped(one, everywhere.alike) for one in program.outputs),
        buffers={
            name: replace(
                buffer,
                size=everywhere.above(buffer.size)
                if name in given
                else known.of_buffer(name, everywhere).alike(buffer.size),
            )
            for name, buffer in program.buffers.items()
        },
        body=body,
    )


class _Sizes:
    """Rewrites sizes by what checks say of them."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        lows = _lows(checks)
        known = _known(checks, lows)
        self.says_nothing = not lows and not known
        self.above = cache(lambda size: replaced(size, lows))
        self.alike = cache(lambda size: replaced(self.above(size), known))
        self.resized = Resized(self.alike)


class _Known:
    """Facts about sizes at each statement of a program."""

    def __init__(self, program: Program) -> None:
        self._meanings: _Others = {}
        for name, size in program.definitions:
            meaning = replaced(size, self._meanings)
            self._meanings |= {Symbol(name, signed=signed): meaning for signed in (False, True)}
        self.sizes = cache(_Sizes)
        self._users: dict[str, set[_Sizes]] = {}

    def statements(
        self, body: tuple[Stmt, ...], checks: tuple[Check, ...], is_way: bool = False
    ) -> tuple[Stmt, ...]:
        """Rewrite statements for which these checks hold. is_way: of a branch."""
        made = []
        for one in body:
            # Steps of a loop may be moved out of it, to where nothing is required.
            if is_way and isinstance(one, Require):
                checks = (*checks, *self._said(one))
            made.append(self._statement(one, checks))
        return tuple(made)

    def _said(self, require: Require) -> tuple[Check, ...]:
        """The checks of a statement, on sizes that are known before a run, as memory has to be."""
        if require.size is None or computed(require.size):
            return ()
        return (Check(replaced(require.size, self._meanings), require.message),)

    def _statement(self, one: Stmt, checks: tuple[Check, ...]) -> Stmt:
        if bodies(one):
            is_way = isinstance(one, Branch)
            one = with_bodies(one, lambda body: self.statements(body, checks, is_way))
        if not isinstance(one, Kernel | Loop):
            return one
        sizes = self.sizes(checks)
        touched = one.reads() | one.writes() if isinstance(one, Kernel) else one.carried
        for name in touched:
            self._users.setdefault(name, set()).add(sizes)
        if sizes.says_nothing:
            return one
        if isinstance(one, Kernel):
            return sizes.resized.of(one)
        return replace(one, axis=sizes.resized.axis(one.axis))

    def of_buffer(self, name: str, otherwise: _Sizes) -> _Sizes:
        """The facts that hold wherever a buffer is used."""
        users = self._users.get(name, set())
        return next(iter(users)) if len(users) == 1 else otherwise


def _shaped(interface: Interface, change: Callable[[Size], Size]) -> Interface:
    return replace(interface, shape=tuple(map(change, interface.shape)))


def least_sizes(checks: tuple[Check, ...]) -> _Others:
    """Lower bounds of sizes from checks on `x // n`: `n` times that.

    For a program behind `checked_sizes`.
    """
    found: _Others = {}
    for rounded, size in _known(checks, _lows(checks)).items():
        part = _rounded(rounded)
        if part is None:
            continue
        atom, number, below = part
        low = below * size - number
        if is_nonnegative(low - found.get(atom, low)):
            found[atom] = low
    return found


def _lows(checks: tuple[Check, ...]) -> _Others:
    """Dimensions that checks say are not 0, as symbols with a lower bound."""
    lows: dict[Symbol, int] = {}
    for check in checks:
        count, one, number = linear(check.size) or (0, None, 0)
        if one is None or count < 1:
            continue
        least = -(number // count)
        # A dimension, or a part of it that is rounded down.
        atom, added, below = _rounded(one) or (one, 0, 1)
        if isinstance(atom, Symbol) and not atom.signed and not atom.computed:
            lows[atom] = max(lows.get(atom, 0), below * least - added)
    return {
        symbol: Dim((((replace(symbol, low=low),), 1),)) for symbol, low in lows.items() if low > 0
    }


def _rounded(atom: Atom) -> tuple[Atom, int, int] | None:
    """The `x`, the number `a` and the number `n` of `(x + a) // n`."""
    if not isinstance(atom, Apply) or atom.function != "floordiv":
        return None
    above, below = atom.args
    count, inner, number = linear(above) or (0, None, 0)
    if inner is None or count != 1 or not isinstance(below, int) or below < 1:
        return None
    return inner, number, below


def _known(checks: tuple[Check, ...], lows: _Others) -> _Others:
    """Express functions of sizes by others: differences that are neither below 0 nor above it."""
    sizes = {check.size for check in checks}
    known: _Others = {}
    for check in checks:
        if -check.size not in sizes:
            continue
        difference = replaced(replaced(check.size, lows), known)
        atom = _solvable(difference)
        if atom is not None:
            found: _Others = {atom: _solved(difference, atom)}
            known = {name: replaced(size, found) for name, size in known.items()} | found
    return known


def _solvable(difference: Size) -> Atom | None:
    """A function with an integer solution in terms of the rest, if the difference is 0.

    Or a dimension, if the rest are functions.
    """
    terms = terms_of(difference)
    atoms = [atom for monomial, _ in terms for atom in monomial]
    is_of_functions = sum(isinstance(a, Symbol) for a in atoms) == 1 < len(atoms)
    kinds = (Apply, Symbol) if is_of_functions else (Apply,)
    for monomial, count in terms:
        atom = monomial[0] if len(monomial) == 1 else None
        others = [(m, c) for m, c in terms if m != monomial]
        is_apart = all(atom not in m and c % count == 0 for m, c in others)
        if isinstance(atom, kinds) and is_apart:
            return atom
    return None


def _solved(difference: Size, atom: Atom) -> Size:
    """Solve `difference = 0` for the atom."""
    count = dict(terms_of(difference))[(atom,)]
    size = exact_quotient(difference - count * Dim((((atom,), 1),)), -count)
    assert size is not None
    return size
