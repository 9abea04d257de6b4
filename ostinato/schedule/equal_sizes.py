"""Sizes that checks say are equal are written alike.

    check 2*(h // 2) = h'                  b[c, y] at 2*(h // 2) * c + y,  y < 2*(h // 2)
    b[c, y] at h' * c + y, y < h'    =>    a[c, y] at 2*(h // 2) * c + y,  y < 2*(h // 2)
    a[c, y] at 2*(h // 2) * c + y

A detector joins what strides have left of an image with what was made larger again. Both have as
many rows in every run that passes the checks, as other expressions: nothing that compares sizes,
such as the layout of an image, sees that one lies within the other.
"""

from __future__ import annotations

from dataclasses import replace

from ostinato.program.nodes import (
    Check,
    Interface,
    Kernel,
    Loop,
    Program,
    Stmt,
    bodies,
    with_bodies,
)
from ostinato.program.resized import Resized
from ostinato.sizes.dims import Apply, Atom, Dim, Size, exact_quotient, terms_of
from ostinato.sizes.substitution import renamed


def equal_sizes(program: Program) -> Program:
    """Put one expression for sizes that the checks of a program say are equal."""
    known = _known(program.checks)
    if not known:
        return program
    resized = Resized(lambda size: _in_terms_of(known, size))

    def interface(one: Interface) -> Interface:
        return replace(one, shape=tuple(_in_terms_of(known, size) for size in one.shape))

    def statements(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(statement, body))

    def statement(one: Stmt) -> Stmt:
        if isinstance(one, Kernel):
            return resized.of(one)
        if isinstance(one, Loop):
            one = replace(one, axis=resized.axis(one.axis))
        return with_bodies(one, statements) if bodies(one) else one

    buffers = program.buffers.items()
    return replace(
        program,
        outputs=tuple(map(interface, program.outputs)),
        buffers={name: replace(b, size=_in_terms_of(known, b.size)) for name, b in buffers},
        body=statements(program.body),
    )


def least_sizes(checks: tuple[Check, ...]) -> dict[Atom, Size]:
    """What sizes are at least since checks say what `x // n` is: `n` times that."""
    found: dict[Atom, Size] = {}
    for rounded, size in _known(checks).items():
        if not isinstance(rounded, Apply) or rounded.function != "floordiv":
            continue
        above, below = rounded.args
        (monomial, count), *_ = terms_of(above)
        if not len(monomial) == count == 1 or not isinstance(below, int) or below < 1:
            continue
        number = above - Dim(((monomial, count),))
        if isinstance(number, int):
            found[monomial[0]] = below * size - number
    return found


def _known(checks: tuple[Check, ...]) -> dict[Atom, Size]:
    """Functions of sizes in terms of others: differences that are neither below 0 nor above."""
    sizes = {check.size for check in checks}
    known: dict[Atom, Size] = {}
    for check in checks:
        if -check.size not in sizes:
            continue
        difference = _in_terms_of(known, check.size)
        atom = _solvable(difference)
        if atom is not None:
            found: dict[Atom, Size] = {atom: _solved(difference, atom)}
            known = {name: _in_terms_of(found, size) for name, size in known.items()} | found
    return known


def _in_terms_of(known: dict[Atom, Size], size: Size) -> Size:
    return renamed(size, lambda atom: known.get(atom, Dim((((atom,), 1),))))


def _solvable(difference: Size) -> Apply | None:
    """A function of which there is a whole number in terms of the rest, if the difference is 0."""
    terms = terms_of(difference)
    for monomial, count in terms:
        atom = monomial[0] if len(monomial) == 1 else None
        others = [(m, c) for m, c in terms if m != monomial]
        is_apart = all(atom not in m and c % count == 0 for m, c in others)
        if isinstance(atom, Apply) and is_apart:
            return atom
    return None


def _solved(difference: Size, atom: Apply) -> Size:
    """What the atom is if the difference is 0."""
    count = dict(terms_of(difference))[(atom,)]
    size = exact_quotient(difference - count * Dim((((atom,), 1),)), -count)
    assert size is not None
    return size
