"""The conditions that a run of a program checks, each known by its message."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.program.nodes import Check, Program, Require, statements
from ostinato.sizes.dims import Size, primitive, terms_of


def telling(checks: Sequence[Check]) -> list[Check]:
    """Drop the checks that others imply; keep the order of the rest.

    `count * size + number >= 0` holds where `size` is at least `-number / count`: of the checks on
    one size, the strictest is kept. Layers of a network that need memory for more and more channels
    of as many points are an example.
    """
    strictest: dict[tuple[Size, bool], tuple[int, int]] = {}
    for place, check in enumerate(checks):
        number = dict(terms_of(check.size)).get((), 0)
        size = primitive(check.size - number)
        least = _least(check.size - number, size, number)
        before = strictest.get((size, check.is_guard))
        if before is None or least > before[0]:
            strictest[size, check.is_guard] = least, place
    return [checks[place] for place in sorted(place for _, place in strictest.values())]


def _least(multiple: Size, size: Size, number: int) -> int:
    """Find the least `size` where a multiple of it, `multiple`, and `number` are not negative."""
    if multiple == 0:
        return -number
    return -(number // (terms_of(multiple)[0][1] // terms_of(size)[0][1]))


def messages(program: Program) -> list[str]:
    """List the messages of the codes of `layout` and `entry`: code `i + 1` is message `i`."""
    required = [s.message for s in statements(program.body) if isinstance(s, Require)]
    return [check.message for check in program.checks] + list(dict.fromkeys(required))


def guards(program: Program) -> list[str]:
    """List the messages of conditions that are guards."""
    required = [s for s in statements(program.body) if isinstance(s, Require)]
    conditions: list[Check | Require] = [*program.checks, *required]
    return list(dict.fromkeys(c.message for c in conditions if c.is_guard))


def before_stores(program: Program) -> list[str]:
    """List the messages of conditions that fail only before anything of the caller's is written."""
    outside = {name for name, b in program.buffers.items() if b.kind in ("input", "output")}
    stores = (place for place, s in enumerate(program.body) if not outside.isdisjoint(s.writes()))
    first = next(stores, len(program.body))
    late = {s.message for s in statements(program.body[first:]) if isinstance(s, Require)}
    return [message for message in dict.fromkeys(messages(program)) if message not in late]
