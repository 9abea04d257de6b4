"""A model with states under random operations, and what its states must be: plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ostinato
from ostinato import OstinatoError
from tools.fuzz.choosing import Chooser
from tools.fuzz.graphs import difference, same_bits
from tools.fuzz.random_states import Stateful, Values
from tools.fuzz.text import Array

OPERATIONS = 40


class WrongError(Exception):
    """What a stream did that calls with explicit states do not."""


def require(holds: bool, text: str) -> None:
    """Raise `WrongError` with a text where something does not hold."""
    if not holds:
        raise WrongError(text)


@dataclass
class Trial(Chooser):
    """One model under random operations; `log` has what was done, for whoever reads a failure."""

    made: Stateful
    session: ostinato.InferenceSession
    folder: Path
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.declared = {state.name: state.following for state in self.made.states}
        self.grown = {s.name: s for s in self.made.states if s.axis is not None}
        self.can_rewind = len(self.grown) == len(self.made.states)
        self.names = [output.name for output in self.session.get_outputs()]

    def first(self, batch: int) -> Values:
        values = {state.name: state.zeros(batch) for state in self.made.states}
        for state in self.made.states:
            if state.name in self.made.initial:
                values[state.name][...] = self.made.initial[state.name]
        return values

    def expected(self, feeds: Values, values: Values) -> tuple[list[Array], Values] | None:
        """Outputs and states after a step; None where it fails."""
        try:
            results = self.session.run(None, feeds | values)
        except OstinatoError:
            return None
        after = dict(zip(self.names, results, strict=True))
        following = {name: after.pop(output) for name, output in self.declared.items()}
        return list(after.values()), following

    def rows(self, values: Values) -> dict[str, int]:
        """How many rows there are of each length."""
        return {
            str(s.sizes[s.axis]): values[s.name].shape[s.axis]
            for s in self.grown.values()
            if s.axis is not None
        }

    def cut(self, values: Values, dropped: int) -> Values:
        """The states without the rows that came last."""
        result = dict(values)
        for name, state in self.grown.items():
            assert state.axis is not None
            count = values[name].shape[state.axis]
            kept = range(dropped, count) if state.in_front else range(count - dropped)
            result[name] = np.take(values[name], kept, axis=state.axis)
        return result

    def other(self, values: Values) -> Values:
        """Other values of these sizes, of some states."""
        chosen = [n for n in values if self.chance(0.6)]
        return {
            name: (4 * self.random.standard_normal(values[name].shape)).astype(values[name].dtype)
            for name in chosen
        }

    def same(self, got: Any, wanted: Any, what: str) -> None:
        require(
            same_bits(list(got), list(wanted)), f"{what}: {difference(list(got), list(wanted))}"
        )

    def same_state(self, got: Mapping[str, Array], wanted: Values, what: str) -> None:
        require(got.keys() == wanted.keys(), f"{what}: states {list(got)}, not {list(wanted)}")
        for name, value in wanted.items():
            self.same([got[name]], [value], f"{what}, state {name}")
