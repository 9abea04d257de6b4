"""How much each weight matrix costs in accuracy, and the narrowest types that meet a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ostinato.caller import warn
from ostinato.errors import InputError
from ostinato.graph.writer import Array
from ostinato.model.write import to_model_proto
from ostinato.quantization.formats import FORMATS, Format
from ostinato.quantization.samples import Sample, outputs_of, signal_to_noise
from ostinato.quantization.sites import Site
from ostinato.quantization.weights import Stored
from ostinato.runtime.session import InferenceSession


class UnreachedWeights(RuntimeWarning):
    """Weights of which no sample shows what narrow ones cost."""


class Trial:
    """A model whose weights are inputs: one compilation for any choice of storage types.

    Raises `InputError` for samples of which the model makes what is not finite.
    """

    def __init__(
        self,
        model: ir.Model,
        sites: Sequence[Site],
        samples: Sequence[Sample],
        states: Mapping[str, str],
    ) -> None:
        self._samples, self._states = samples, states
        self._weights = {str(site.weight.name): site.array for site in sites}
        clone = model.clone()
        for name, array in self._weights.items():
            value = clone.graph.initializers.pop(name)
            value.const_value, value.shape = None, ir.Shape(array.shape)
            clone.graph.inputs.append(value)
        self._session = InferenceSession(to_model_proto(clone), cache_dir=None)
        self._expected = self._run({})
        ratios = signal_to_noise(self._expected, self._expected)
        if not ratios:
            raise InputError("calibration: the model has no output of floats to measure a SNR of")
        for name, ratio in ratios.items():
            if np.isnan(ratio):
                raise InputError(
                    f"calibration: output {name!r} of the model as it is has elements that are not "
                    "finite: give samples of what the model is made for"
                )

    def _run(self, weights: Mapping[str, Array]) -> list[dict[str, Array]]:
        constants = self._weights | dict(weights)
        return list(outputs_of(self._session, self._samples, self._states, constants))

    def reaches(self, stored: Stored) -> bool:
        """Whether these weights, narrow or all 0, change any output on the samples.

        Those of a recurrence do not in a first step from states of zeros. Weights that narrow ones
        equal cost nothing, whatever the samples are.
        """
        name, array = str(stored.site.weight.name), stored.site.array
        if np.array_equal(stored.values, array) or any(self.noise([stored]).values()):
            return True
        return any(signal < np.inf for signal in self._ratios({name: np.zeros_like(array)}))

    def _ratios(self, weights: Mapping[str, Array]) -> list[float]:
        return list(signal_to_noise(self._expected, self._run(weights)).values())

    def noise(self, stored: Sequence[Stored]) -> dict[str, float]:
        """The energy of the error of each output over its own, with these weights narrow."""
        found = self._run({str(item.site.weight.name): item.values for item in stored})
        ratios = signal_to_noise(self._expected, found)
        return {name: float(10 ** (-ratio / 10)) for name, ratio in ratios.items()}


def decibels(noise: Mapping[str, float]) -> float:
    """The SNR of the worst output."""
    worst = max(noise.values(), default=0.0)
    return float("inf") if worst == 0 else float(-10 * np.log10(worst))


@dataclass(eq=False)
class _Choice:
    """The storage types of one weight matrix, from narrow to wide, and which is chosen.

    options: the last one leaves the weights alone. noise: of each option alone, by output.
    """

    options: list[list[Stored]]
    bytes: list[int]
    noise: list[dict[str, float]]
    level: int = 0

    def gain(self, budget: float, over: Sequence[str]) -> float:
        """What the next wider type takes off the outputs `over` a budget, for each byte it adds."""
        if self.level + 1 == len(self.options):
            return -1.0
        now, then = self.noise[self.level], self.noise[self.level + 1]
        less = max((min(now[o], 10 * budget) - then[o] for o in over), default=0.0)
        return max(less, 0.0) / max(self.bytes[self.level + 1] - self.bytes[self.level], 1)


def narrowest(
    trial: Trial,
    sites: Sequence[Site],
    form: Format,
    target: float,
    store: Callable[[Site, Format], Stored | None],
) -> list[Stored]:
    """The stored weights with which all outputs keep a SNR of `target` dB on the samples.

    Each matrix starts in the type `form`. While the errors of all matrices, each measured alone,
    add up to more than the target allows, the matrix whose next wider type gains most for its
    bytes takes it; then the same until the measured SNR of all together is the target. A matrix
    for which no type is narrow enough stays as it is, and so does one that no sample reaches, of
    which `UnreachedWeights` warns. `store` gives None for a type that cannot hold the weights.
    """
    forms = list(FORMATS.values())
    wanted = forms[forms.index(form) :]
    by_weight: dict[str, list[Site]] = {}
    for site in sites:
        by_weight.setdefault(str(site.weight.name), []).append(site)
    choices = _reached(
        trial, [_options(trial, group, wanted, store) for group in by_weight.values()]
    )
    if not choices:
        return []
    budget = 10 ** (-target / 10)
    outputs = list(choices[0].noise[0])
    while True:
        total = {o: sum(choice.noise[choice.level][o] for choice in choices) for o in outputs}
        over = [o for o in outputs if total[o] > budget]
        if not over:
            stored = [item for choice in choices for item in choice.options[choice.level]]
            total = trial.noise(stored)
            over = [o for o in outputs if total[o] > budget]
            if not over:
                return stored
        best = max(choices, key=lambda choice: choice.gain(budget, over))
        if best.gain(budget, over) < 0:
            return [item for choice in choices for item in choice.options[choice.level]]
        best.level += 1


def _reached(trial: Trial, choices: Sequence[_Choice]) -> list[_Choice]:
    """The choices that the samples tell something of."""
    unreached = [c for c in choices if c.options[0] and not trial.reaches(c.options[0][0])]
    if unreached:
        names = ", ".join(repr(choice.options[0][0].site.name) for choice in unreached)
        warn(
            f"the samples do not show what narrow weights cost at {names}, which stay as they are: "
            "give samples that reach them, of several steps for those of a recurrence",
            UnreachedWeights,
        )
    return [choice for choice in choices if choice not in unreached]


def _options(
    trial: Trial,
    sites: Sequence[Site],
    forms: Sequence[Format],
    store: Callable[[Site, Format], Stored | None],
) -> _Choice:
    tried = [[store(site, form) for site in sites] for form in forms]
    options = [[item for item in items if item is not None] for items in tried if None not in items]
    options.append([])
    noise = [trial.noise(items[:1]) for items in options]
    sizes = [items[0].nbytes if items else sites[0].array.nbytes for items in options]
    return _Choice(options, sizes, noise)
