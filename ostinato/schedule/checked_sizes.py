"""What the checks of a program say of sizes is written into them.

    check (h + 1) // 2 - 1 >= 0            h is at least 1
    check 2*(h // 2) = h'                  b[c, y] at 2*(h // 2) * c + y,  y < 2*(h // 2)
    b[c, y] at h' * c + y, y < h'    =>    a[c, y] at 2*(h // 2) * c + y,  y < 2*(h // 2)
    a[c, y] at 2*(h // 2) * c + y

A detector joins what strides have left of an image with what was made larger again. Both have as
many rows in every run that passes the checks, as other expressions: nothing that compares sizes,
such as the layout of an image, sees that one lies within the other. Nor that what windows leave of
an image, one row less than half of it, is no negative number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Check, Interface, Loop, Program, Stmt, bodies, with_bodies
from ostinato.program.resized import Resized
from ostinato.sizes.dims import (
    Apply,
    Atom,
    Dim,
    Size,
    Symbol,
    exact_quotient,
    is_nonnegative,
    linear,
    terms_of,
)
from ostinato.sizes.substitution import replaced

# Others in place of symbols and functions.
_Others: TypeAlias = "dict[Atom, Size]"


def checked_sizes(program: Program) -> Program:
    """Write equal sizes alike, and what dimensions are at least, as the checks of a program say."""
    lows = _lows(program.checks)
    known = _known(program.checks, lows)
    if not lows and not known:
        return program

    @cache
    def above(size: Size) -> Size:
        return replaced(size, lows)

    @cache
    def alike(size: Size) -> Size:
        return replaced(above(size), known)

    resized = Resized(alike)

    def statements(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(statement, body))

    def statement(one: Stmt) -> Stmt:
        if isinstance(one, Kernel):
            return resized.of(one)
        if isinstance(one, Loop):
            one = replace(one, axis=resized.axis(one.axis))
        return with_bodies(one, statements) if bodies(one) else one

    # What a call gives tells the dimensions.
    given = {one.buffer for one in program.inputs}
    return replace(
        program,
        inputs=tuple(_shaped(one, above) for one in program.inputs),
        outputs=tuple(_shaped(one, alike) for one in program.outputs),
        buffers={
            name: replace(buffer, size=(above if name in given else alike)(buffer.size))
            for name, buffer in program.buffers.items()
        },
        body=statements(program.body),
    )


def _shaped(interface: Interface, change: Callable[[Size], Size]) -> Interface:
    return replace(interface, shape=tuple(map(change, interface.shape)))


def least_sizes(checks: tuple[Check, ...]) -> _Others:
    """What sizes are at least since checks say what `x // n` is: `n` times that.

    Those of a program behind `checked_sizes`.
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
    """Dimensions that checks say are not 0, as symbols that know what they are at least."""
    lows: dict[Symbol, int] = {}
    for check in checks:
        count, one, number = linear(check.size) or (0, None, 0)
        if one is None or count < 1:
            continue
        least = -(number // count)
        # A dimension or, rounded down, some part of it.
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
    """Functions of sizes in terms of others: differences that are neither below 0 nor above."""
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
    """A function of which there is a whole number in terms of the rest, if the difference is 0.

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
    """What the atom is if the difference is 0."""
    count = dict(terms_of(difference))[(atom,)]
    size = exact_quotient(difference - count * Dim((((atom,), 1),)), -count)
    assert size is not None
    return size
