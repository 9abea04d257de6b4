"""Streams that step, fork, rewind, are set, saved and loaded, against calls that carry states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato import InputError, OstinatoError, StreamError
from tools.fuzz.random_states import Values
from tools.fuzz.state_trial import OPERATIONS, Trial, WrongError, require
from tools.fuzz.text import Array


@dataclass
class Stepped:
    """A stream and what its states must be. limit: of rows."""

    trial: Trial
    stream: Any
    values: Values
    batch: int
    limit: int | None

    def operate(self) -> None:
        trial = self.trial
        operations: list[tuple[int, Callable[[], None]]] = [
            (12, self.step),
            (3, self.bound),
            (2, self.rewind),
            (1, self.reset),
            (2, self.set),
            (2, self.saved),
            (2, self.compare),
        ]
        operation = trial.weighed(operations)
        trial.log.append(operation.__name__)
        operation()
        if trial.chance(0.5):
            self.compare()

    def compare(self) -> None:
        self.trial.same_state(dict(self.stream.state) or self.values, self.values, "stream")

    def frame(self) -> Values:
        frames = int(self.trial.choose((1, 1, 1, 1, 2, 3, 7, 0)))
        wrong = self.trial.chance(0.06)
        feeds: Values = self.trial.made.frame(
            self.trial.random, self.batch, frames, self.trial.rows(self.values), wrong=wrong
        )
        if self.trial.chance(0.2):
            feeds["x"] = np.asfortranarray(feeds["x"])
        return feeds

    def is_full(self, feeds: Values) -> bool:
        rows = self.trial.rows(self.values)
        more = feeds["x"].shape[1]
        return self.limit is not None and any(n + more > self.limit for n in rows.values())

    def advance(self, feeds: Values, step: Callable[[], list[Array]], what: str) -> None:
        wanted = None if self.is_full(feeds) else self.trial.expected(feeds, self.values)
        try:
            got = step()
        except OstinatoError as error:
            require(wanted is None, f"{what} fails: {type(error).__name__}: {error}")
            self.trial.log.append("  raised")
            self.found()
            return
        if wanted is None:
            raise WrongError(f"{what} does not fail")
        self.trial.same(got, wanted[0], what)
        self.values = wanted[1]

    def found(self) -> None:
        """Go back to the beginning where a step lost the states, as those that move rows may."""
        try:
            dict(self.stream.state)
        except StreamError:
            require(any(state.moves for state in self.trial.made.states), "states are lost")
            self.reset()

    def step(self) -> None:
        feeds = self.frame()
        out = None
        if self.trial.chance(0.3):
            wanted = self.trial.expected(feeds, self.values)
            if wanted is not None:
                names = [n for n in self.trial.names if n not in self.trial.declared.values()]
                out = {n: np.full_like(a, 7) for n, a in zip(names, wanted[0], strict=True)}
        self.trial.log.append(f"  {feeds['x'].shape[1]} frames, out {out is not None}")
        self.advance(feeds, lambda: list(self.stream.step(feeds, out)), "step")

    def bound(self) -> None:
        feeds = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in self.frame().items()}
        if self.is_full(feeds) or self.trial.expected(feeds, self.values) is None:
            return
        call = self.stream.bind(feeds)
        for _ in range(int(self.trial.choose((1, 2, 3)))):

            def step() -> list[Array]:
                call()
                return [call.outputs[n] for n in self.names()]

            self.advance(feeds, step, "bound step")
            count, rows = feeds["x"].shape[1], self.trial.rows(self.values)
            fresh = self.trial.made.frame(self.trial.random, self.batch, count, rows)
            if any(feeds[name].shape != array.shape for name, array in fresh.items()):
                return
            for name, array in fresh.items():
                feeds[name][...] = array

    def names(self) -> list[str]:
        return [n for n in self.trial.names if n not in self.trial.declared.values()]

    def rewind(self) -> None:
        least = min(self.trial.rows(self.values).values(), default=0)
        count = int(self.trial.random.integers(0, least + 2))
        try:
            self.stream.rewind(count)
        except (StreamError, InputError):
            require(not self.trial.can_rewind or count > least, "rewind fails")
            return
        require(self.trial.can_rewind and count <= least, f"rewind by {count} of {least} rows")
        self.values = self.trial.cut(self.values, count)

    def reset(self) -> None:
        self.stream.reset()
        self.values = self.trial.first(self.batch)

    def set(self) -> None:
        if not dict(self.stream.state):
            return
        values = self.trial.other(self.values)
        if self.trial.chance(0.3) and self.trial.grown:
            least = min(self.trial.rows(self.values).values())
            values = self.trial.cut(self.values, int(self.trial.random.integers(least + 1)))
        self.stream.state.update(values)
        self.values = self.values | values

    def saved(self) -> None:
        if not dict(self.stream.state):
            return
        path = self.trial.folder / "state.npz"
        self.stream.save(path)
        before = self.values
        if self.trial.chance(0.5):
            self.step()
        self.stream.load(path)
        self.values = before

    def forked(self) -> Stepped:
        return Stepped(self.trial, self.stream.fork(), dict(self.values), self.batch, self.limit)


def streams(trial: Trial) -> None:
    """Streams of one session, each operated on in turn."""
    batch = int(trial.choose((1, 1, 2, 3)))
    limit = int(trial.choose((2, 5, 30))) if trial.grown and trial.chance(0.4) else None
    options = {} if limit is None else {"capacity": limit}

    def opened() -> Stepped:
        stream = trial.session.stream(trial.declared, trial.made.initial, {"N": batch}, **options)
        return Stepped(trial, stream, trial.first(batch), batch, limit)

    live = [opened()]
    for _ in range(OPERATIONS):
        place = int(trial.random.integers(len(live)))
        trial.log.append(f"stream {place}:")
        live[place].operate()
        if trial.chance(0.1) and len(live) < 4:
            trial.log.append(f"fork {place}")
            live.append(live[place].forked())
        elif trial.chance(0.05):
            trial.log.append(f"close {place}")
            live[place].stream.close()
            try:
                live[place].stream.step(live[place].frame())
            except StreamError:
                live[place] = opened()
            else:
                raise WrongError("a closed stream steps")
    for one in live:
        one.compare()
