"""Random models whose states are inputs and outputs.

A model takes `x [N, T, width]`, maybe indices `i [N]` and others, a few of which exist in no table,
and a count `n` that is the same for all rows of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from tools.fuzz.cell_blocks import random_cells
from tools.fuzz.cells import GROUP, SLOTS, State
from tools.fuzz.text import Array

Values = dict[str, Array]


@dataclass(frozen=True)
class Stateful:
    """A model, its states, and first values of some of them, for one row of the batch."""

    model: onnx.ModelProto
    states: tuple[State, ...]
    initial: dict[str, Array]
    width: int

    def frame(
        self,
        random: np.random.Generator,
        batch: int,
        frames: int,
        rows: Mapping[str, int],
        *,
        wrong: bool = False,
    ) -> Values:
        """Inputs of a step, of which an index may exist nowhere. rows: how many there are."""
        shape = (batch, frames, self.width)
        values: Values = {"x": random.standard_normal(shape).astype(np.float32)}
        values["i"] = random.integers(0, SLOTS, batch)
        values["b"], values["o"] = (
            random.integers(0, batch, batch),
            random.integers(0, GROUP, GROUP),
        )
        if wrong:
            place = random.choice(("i", "b", "o"))
            values[place][-1] = random.choice((SLOTS, -SLOTS - 1, 2**40))
        values["n"] = np.array(random.choice((0, 1, 3)), np.int64)
        for length, count in rows.items():
            mask = random.standard_normal((batch, count + frames))
            values[f"m{length}"] = mask.astype(np.float32)
        return {v.name: values[v.name] for v in self.model.graph.input if v.name in values}


def random_states(seed: int) -> Stateful:
    """The model of a seed."""
    c = random_cells(np.random.default_rng(seed))
    chosen = {name: f"float[N, T, {c.width}]" for name in c.seqs[1:][-2:]}
    vecs = [*c.results, *(name for name in c.vecs[-2:] if c.chance(0.7))]
    chosen |= {name: f"float[N, {c.width}]" for name in vecs}
    outputs = {c.emit(f"Identity ({name})"): type_ for name, type_ in chosen.items()}
    model = c.with_states([f"float[N, T, {c.width}] x"], outputs)
    initial = {}
    for state in c.states:
        if c.chance(0.3) and state.axis is None:
            zeros = state.zeros(1)
            initial[state.name] = c.random.integers(0, 2, zeros.shape).astype(zeros.dtype)
    return Stateful(model, tuple(c.states), initial, c.width)
