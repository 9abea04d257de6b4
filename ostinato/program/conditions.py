"""What a run of a program may find that does not hold, by its message."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.program.nodes import Check, Program, Require, statements
from ostinato.sizes.dims import Size, primitive, terms_of


def telling(checks: Sequence[Check]) -> list[Check]:
    """Those of the checks that others do not imply, in their order.

    `count * size + number >= 0` says that a size is at least `-number / count`: of those that speak
    of the same size, the strictest. Steps of a network that need memory for more and more channels
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
    """What `size` is at least where `multiple`, some times it, and `number` are not negative."""
    if multiple == 0:
        return -number
    return -(number // (terms_of(multiple)[0][1] // terms_of(size)[0][1]))


def messages(program: Program) -> list[str]:
    """Messages of the codes of `layout` and `entry`: `i + 1` stands for message `i`."""
    required = [s.message for s in statements(program.body) if isinstance(s, Require)]
    return [check.message for check in program.checks] + list(dict.fromkeys(required))


def guards(program: Program) -> list[str]:
    """The messages that belong to guards."""
    required = [s for s in statements(program.body) if isinstance(s, Require)]
    conditions: list[Check | Require] = [*program.checks, *required]
    return list(dict.fromkeys(c.message for c in conditions if c.is_guard))


def before_stores(program: Program) -> list[str]:
    """The messages of what fails only while nothing of the caller's is written yet."""
    outside = {name for name, b in program.buffers.items() if b.kind in ("input", "output")}
    stores = (place for place, s in enumerate(program.body) if not outside.isdisjoint(s.writes()))
    first = next(stores, len(program.body))
    late = {s.message for s in statements(program.body[first:]) if isinstance(s, Require)}
    return [message for message in dict.fromkeys(messages(program)) if message not in late]
