"""Move checks of indices to the front: a failing call fails before it works or stores anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ostinato.program.expr import INTEGERS
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Buffer, Program, Require, Stmt

_KINDS = {"bool", *INTEGERS}


def checks_first(program: Program) -> Program:
    """Move checks, with the kernels that compute their conditions from integers, to the front."""
    if not any(isinstance(statement, Require) for statement in program.body):
        return program
    order = _Order(program.body, program.buffers)
    early: set[int] = set()
    for place, statement in enumerate(program.body):
        if isinstance(statement, Require):
            early |= order.needed_by(place)
    first = [s for place, s in enumerate(program.body) if place in early]
    last = [s for place, s in enumerate(program.body) if place not in early]
    return program.with_body((*first, *last))


class _Order:
    """Which buffers the statements of a body read and write."""

    def __init__(self, body: Sequence[Stmt], buffers: Mapping[str, Buffer]) -> None:
        self._body, self._buffers = body, buffers
        self._writers: dict[str, list[int]] = {}
        self._users: dict[str, list[int]] = {}
        for place, statement in enumerate(body):
            for name in statement.writes():
                self._writers.setdefault(name, []).append(place)
            for name in statement.reads() | statement.writes():
                self._users.setdefault(name, []).append(place)

    def needed_by(self, check: int) -> set[int]:
        """Return a check and the kernels it needs; nothing where these cannot move to the front."""
        found, left = {check}, [check]
        while left:
            place = left.pop()
            for name in self._body[place].reads():
                for writer in self._writers.get(name, ()):
                    if writer >= place or writer in found:
                        continue
                    if not self._is_of_integers(self._body[writer]):
                        return set()
                    found.add(writer)
                    left.append(writer)
        return found if all(self._is_free(place, found) for place in found) else set()

    def _is_of_integers(self, statement: Stmt) -> bool:
        names = statement.writes()
        return isinstance(statement, Kernel) and {self._buffers[n].dtype for n in names} <= _KINDS

    def _is_free(self, place: int, found: set[int]) -> bool:
        """Whether no statement that stays behind uses what the statement writes."""
        users = (user for name in self._body[place].writes() for user in self._users[name])
        return all(user >= place or user in found for user in users)
