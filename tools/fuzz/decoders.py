"""Random decoders: the loop around the steps generates what the steps do.

    python -m tools.fuzz decoders --seconds 60

`decoding.loop` makes a search of a step, greedily, with given random numbers or with beams. A
search in Python over `session.run` of the step gives the same tokens, and so does onnxruntime.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ostinato
from ostinato import OstinatoError, decoding
from tests import witness
from tools.fuzz.graphs import Outcome, difference, in_child, same_bits
from tools.fuzz.modes import Array
from tools.fuzz.random_decoders import TOKENS, Decoder, random_decoder
from tools.fuzz.seeds import try_seeds

CHILD_SECONDS = 120.0
# Scores of beams that differ by less are equal but for roundings.
_TIE = 1e-6
Values = dict[str, Array]


@dataclass
class Steps:
    """Steps of a decoder one by one."""

    made: Decoder
    session: ostinato.InferenceSession
    count: int = 0

    def __post_init__(self) -> None:
        self.names = [output.name for output in self.session.get_outputs()]
        self.token = next(i for i in self.session.get_inputs() if i.name == "t")

    def first(self, batch: int) -> Values:
        return {state.name: state.zeros(batch) for state in self.made.states}

    def step(self, tokens: Array, values: Values, count: int) -> tuple[Array, Values]:
        """Logits and states after the token with so many before it."""
        feeds = {"t": tokens if len(self.token.shape) == 1 else tokens[:, None]} | values
        if self.made.mask:
            feeds[self.made.mask] = np.ones((len(tokens), count + 1), np.float32)
        results = dict(zip(self.names, self.session.run(None, feeds), strict=True))
        following = {state.name: results.pop(state.following) for state in self.made.states}
        (logits,) = results.values()
        return logits, following

    def read(self, prompt: Array) -> tuple[Array, Values]:
        """Logits and states after a prompt."""
        values = self.first(len(prompt))
        for count in range(prompt.shape[1]):
            logits, values = self.step(prompt[:, count], values, count)
        return logits, values

    def chosen(
        self, prompt: Array, new: int, end: int | None, choose: Callable[..., Array]
    ) -> Array:
        """Tokens of each row, one chosen after the other."""
        logits, values = self.read(prompt)
        done, tokens = np.zeros(len(prompt), bool), []
        for number in range(new):
            token = choose(logits, number)
            if end is not None:
                token = np.where(done, end, token)
                done |= token == end
            tokens.append(token)
            if done.all() or number + 1 == new:
                break
            logits, values = self.step(token, values, prompt.shape[1] + number)
        return np.stack(tokens, 1) if tokens else np.zeros((len(prompt), 0), np.int64)

    def beams(self, prompt: Array, new: int, end: int | None, beams: int) -> list[list[int]]:
        """The most likely sequences of one row, the best first."""
        logits, values = self.read(prompt)
        found: list[Any] = [((), 0.0, False, logits[0], values)]
        for number in range(new):
            candidates: list[Any] = []
            for tokens, score, done, logits, values in found:
                if done:
                    candidates.append(((*tokens, end), score, True, logits, values))
                    continue
                wide = logits.astype(np.float64)
                logs = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
                candidates += [
                    ((*tokens, t), score + logs[t], t == end, logits, values) for t in range(TOKENS)
                ]
            best = sorted(candidates, key=lambda one: -one[1])[:beams]
            found = []
            for tokens, score, done, logits, values in best:
                if not done:
                    count = prompt.shape[1] + number
                    following, values = self.step(np.array(tokens[-1:]), values, count)
                    logits = following[0]
                found.append((tokens, score, done, logits, values))
            if all(done for _, _, done, _, _ in found):
                break
        length = [t.index(end) + 1 if end in t else len(t) for t, *_ in found]
        order = sorted(range(len(found)), key=lambda i: -found[i][1] / max(length[i], 1))
        return [list(found[i][0]) for i in order]

    def score(self, prompt: Array, tokens: Array, end: int | None) -> float:
        """The mean of the logarithms of the tokens of one row, up to the end."""
        logits, values = self.read(prompt)
        total, count = 0.0, 0
        for token in tokens:
            wide = logits[0].astype(np.float64)
            total += wide[token] - wide.max() - np.log(np.exp(wide - wide.max()).sum())
            count += 1
            if token == end:
                break
            logits, values = self.step(np.array([token]), values, prompt.shape[1] + count - 1)
        return float(total / max(count, 1))


def check(seed: int) -> Outcome:
    """Compare the searches of one decoder."""
    logging.disable()
    warnings.simplefilter("ignore")
    try:
        made = random_decoder(seed)
    except LookupError as error:
        return Outcome("no decoder", str(error))
    random = np.random.default_rng(seed + 2**32)
    steps = Steps(made, ostinato.InferenceSession(made.model, cache_dir=None))
    method = str(random.choice(("greedy", "greedy", "sample", "beam")))
    batch = 1 if method == "beam" else int(random.choice((1, 2, 3)))
    new = int(random.choice((1, 5, 12) if method == "beam" else (0, 1, 5, 12)))
    end = 3 if random.random() < 0.5 else None
    prompt = random.integers(0, TOKENS, (batch, int(random.choice((1, 2, 5)))))
    options: dict[str, Any] = {"method": method, "end_token": end, "mask": made.mask}
    feeds: Values = {"prompt": prompt, "max_tokens": np.array(new)}
    if method == "sample":
        feeds["uniform"] = random.random((batch, new), np.float32)
    if method == "beam":
        options["beams"] = int(random.choice((1, 2, 3)))
    states = {state.name: state.following for state in made.states}
    try:
        model = decoding.loop(made.model, states=states, token="t", **options)
    except OstinatoError as error:
        return Outcome("refused", str(error))
    session = ostinato.InferenceSession(model, cache_dir=None)
    try:
        wanted = _wanted(steps, prompt, new, end, options, feeds)
    except OstinatoError:
        try:
            session.run(None, feeds)
        except OstinatoError:
            return Outcome("agree, steps fail")
        # A loop that is to generate nothing takes no step.
        return Outcome("differ" if new else "agree, no step", "a step fails, the loop does not")
    got = session.run(None, feeds)
    again = session.run(None, feeds)
    if not same_bits(got, again):
        return Outcome("bits", f"a second run: {difference(got, again)}")
    kind = "" if session.report().native else ", not native"
    if found := difference(got[:1], [wanted]):
        if method == "beam" and got[0].shape == wanted.shape:
            pairs = zip(got[0][0], wanted[0], strict=True)
            scores = [[steps.score(prompt, row, end) for row in pair] for pair in pairs]
            if all(abs(mine - other) < _TIE for mine, other in scores):
                return Outcome("agree, beams tie")
        try:
            other = difference(got, witness.run(model.SerializeToString(), feeds), 1e-4)
        except witness.WitnessError as error:
            other = str(error)
        return Outcome("differ", f"{options} {new}: {found}; onnxruntime: {other or 'agrees'}")
    return Outcome(f"agree, {method}{kind}")


def _wanted(
    steps: Steps,
    prompt: Array,
    new: int,
    end: int | None,
    options: dict[str, Any],
    feeds: Values,
) -> Array:
    """The tokens that steps find."""
    if options["method"] == "beam":
        found = steps.beams(prompt, new, end, options["beams"])
        length = len(found[0])
        return np.array(found, np.int64).reshape(1, -1, length)

    def choose(logits: Array, number: int) -> Array:
        if options["method"] == "greedy":
            return logits.argmax(1)
        return _drawn(logits, feeds["uniform"][:, number])

    return steps.chosen(prompt, new, end, choose)


def _drawn(logits: Array, uniform: Array) -> Array:
    """The token of each row that a number from [0, 1) stands for, in the order of tokens."""
    wide = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    sums = np.cumsum(wide, 1)
    rows = zip(sums, (1 - uniform) * sums[:, -1], strict=True)
    return np.array([int(np.searchsorted(row, draw)) for row, draw in rows])


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each decoder in a process of its own."""

    def apart(seed: int) -> Outcome:
        return in_child(lambda: (check(seed), []), CHILD_SECONDS)[0]  # type: ignore[no-any-return]

    return try_seeds(apart, lambda seed: random_decoder(seed).model, seconds, seed, count, folder)
