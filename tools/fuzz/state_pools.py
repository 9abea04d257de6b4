"""Streams of a pool that come, stall, fail, fork, rewind and go, against calls of one row each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ostinato import InputError, PoolError, StreamError, UnsupportedError
from tools.fuzz.random_states import Values
from tools.fuzz.state_trial import OPERATIONS, Trial, require

CAPACITY = 4


def pools(trial: Trial) -> str:
    """Operate on a pool; a reason where there is none."""
    limit = int(trial.choose((2, 5, 30))) if trial.grown and trial.chance(0.4) else None
    options: dict[str, Any] = {} if limit is None else {"rows": limit}
    frames = int(trial.choose((1, 1, 2, 3)))
    sample = trial.made.frame(trial.random, 1, frames, {})
    options["shared"] = {name: sample[name] for name in ("n", "o") if name in sample}
    try:
        pool = trial.session.pool(trial.declared, CAPACITY, "N", trial.made.initial, **options)
    except (InputError, UnsupportedError) as error:
        return str(error)
    with pool:
        Pooled(trial, pool, frames, options["shared"], limit).operate()
    return ""


@dataclass
class Pooled:
    """A pool, and what the states of its streams must be."""

    trial: Trial
    pool: Any
    frames: int
    shared: Values
    limit: int | None
    live: dict[int, Values] = field(default_factory=dict)

    def operate(self) -> None:
        trial = self.trial
        for _ in range(OPERATIONS):
            if not self.live or (len(self.live) < CAPACITY and trial.chance(0.2)):
                self.open()
            handle = int(trial.choose(list(self.live)))
            draw = trial.random.random()
            if draw < 0.05:
                trial.log.append(f"pool: close {handle}")
                self.pool.close(handle)
                del self.live[handle]
            elif draw < 0.15 and len(self.live) < CAPACITY:
                made = self.pool.fork(handle)
                trial.log.append(f"pool: fork {handle} to {made}")
                self.live[made] = dict(self.live[handle])
            elif draw < 0.25:
                self.rewind(handle)
            elif draw < 0.32:
                values = self.some(handle) if trial.chance(0.6) else {}
                trial.log.append(f"pool: reset {handle}")
                self.pool.reset(handle, values)
                self.live[handle] = trial.first(1) | values
            elif draw < 0.4:
                trial.log.append(f"pool: look {handle}")
                trial.same_state(self.pool.state(handle), self.live[handle], "pool")
            else:
                self.step()
        for handle, values in self.live.items():
            trial.same_state(self.pool.state(handle), values, "pool")

    def some(self, handle: int) -> Values:
        values = self.trial.other(self.live[handle])
        grown = {n: self.live[handle][n] for n in self.trial.grown}
        return grown | values

    def open(self) -> None:
        values: Values = {}
        if self.live and self.trial.chance(0.4):
            values = self.some(int(self.trial.choose(list(self.live))))
        handle = self.pool.open(values)
        self.trial.log.append(f"pool: open {handle}, {list(values)}")
        self.live[handle] = self.trial.first(1) | values

    def rewind(self, handle: int) -> None:
        trial = self.trial
        least = min(trial.rows(self.live[handle]).values(), default=0)
        count = int(trial.random.integers(0, least + 2))
        trial.log.append(f"pool: rewind {handle} by {count}")
        try:
            self.pool.rewind(handle, count)
        except (StreamError, InputError):
            require(not trial.can_rewind or count > least, "rewind in a pool fails")
            return
        require(trial.can_rewind and count <= least, f"rewind by {count} of {least} rows")
        self.live[handle] = trial.cut(self.live[handle], count)

    def step(self) -> None:
        trial = self.trial
        share, wrong = trial.choose((0.3, 0.7, 1.0)), trial.chance(0.15)
        wanted: dict[int, Any] = {}
        for handle, values in self.live.items():
            if not trial.chance(share):
                continue
            rows = trial.rows(values)
            bad = wrong and trial.chance(0.4)
            feeds = trial.made.frame(trial.random, 1, self.frames, rows, wrong=bad) | self.shared
            is_full = self.limit is not None and any(
                n + self.frames > self.limit for n in rows.values()
            )
            wanted[handle] = None if is_full else trial.expected(feeds, values)
            self.pool.push(handle, {n: a for n, a in feeds.items() if n not in self.shared})
        trial.log.append(f"pool: step {list(wanted)}, fail {[h for h in wanted if not wanted[h]]}")
        errors: Any = {}
        try:
            results = self.pool.step()
        except PoolError as error:
            errors, results = error.errors, error.results
        failing = {handle for handle, one in wanted.items() if one is None}
        require(errors.keys() == failing, f"streams that fail: {dict(errors)}, not {failing}")
        require(results.keys() == wanted.keys() - failing, f"results of {list(results)}")
        for handle, arrays in results.items():
            trial.same(arrays, wanted[handle][0], f"pool, stream {handle}")
            self.live[handle] = wanted[handle][1]
