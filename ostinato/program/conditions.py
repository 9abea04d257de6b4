"""What a run of a program may find that does not hold, by its message."""

from __future__ import annotations

from ostinato.program.nodes import Check, Program, Require, statements


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
