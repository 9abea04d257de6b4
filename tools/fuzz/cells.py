"""A model with states while it is made: its values, and states that are inputs and outputs.

Values are sequences `[N, T, width]` and vectors `[N, width]`. Rows of the batch do not depend on
each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tools.fuzz.text import Array, Text

OPSET = 21
# Rows of caches of a fixed length, and of a group of which rows change their places.
SLOTS, GROUP = 4, 3
TYPES = {"float": "f4", "double": "f8", "float16": "f2", "int64": "i8", "int32": "i4"}
TYPES |= {"bool": "?", "uint8": "u1"}
_NUMBERS = {"float": 1, "uint8": 2, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "double": 11}


@dataclass(frozen=True)
class State:
    """A state `name` of which a step makes `following`.

    sizes: numbers, or names of dimensions. axis: along which it grows, if it does. in_front: where
    its rows are added. moves: whether a step gives rows other places first.
    """

    name: str
    following: str
    kind: str
    sizes: tuple[int | str, ...]
    axis: int | None = None
    in_front: bool = False
    moves: bool = False

    def zeros(self, batch: int) -> Array:
        """Its value before the first step."""
        known = {"N": batch}
        sizes = [s if isinstance(s, int) else known.get(s, 0) for s in self.sizes]
        return np.zeros(sizes, TYPES[self.kind])


@dataclass
class Cells(Text):
    """A model that grows; `seqs` are `[N, T, width]`, `vecs` `[N, width]`."""

    width: int = 4
    seqs: list[str] = field(default_factory=lambda: ["x"])
    vecs: list[str] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    lengths: list[str] = field(default_factory=list)

    def weights(self, *shape: int) -> str:
        scale = 0.9 / max(1.0, shape[-1]) ** 0.5
        return self.constant(scale * self.random.standard_normal(shape), "f4")

    def cast(self, value: str, kind: str) -> str:
        return str(self.emit(f"Cast <to={_NUMBERS[kind]}> ({value})"))

    def vec(self) -> str:
        """Some `[N, width]`: one that is there, or the last frame of a sequence."""
        if self.vecs and self.chance(0.6):
            return str(self.choose(self.vecs))
        index = self.constant(-1)
        name = self.emit(f"Gather <axis=1> ({self.choose(self.seqs)}, {index})")
        self.vecs.append(name)
        return str(name)

    def seq(self) -> str:
        return self.seqs[-1] if self.chance(0.5) else str(self.choose(self.seqs))

    def layer(self, value: str) -> str:
        product = self.emit(f"MatMul ({value}, {self.weights(self.width, self.width)})")
        return str(self.emit(f"Tanh ({product})"))

    def put(self, name: str, value: str, kind: str, *sizes: int | str, **grows: Any) -> None:
        """The next value of a state; it is an output, so it has a name of its own."""
        following = self.emit(f"Identity ({value})") if self.chance(0.5) else value
        taken = {s.following for s in self.states} | {s.name for s in self.states} | {name, "x"}
        if following in taken or not following.startswith("v"):
            following = self.emit(f"Identity ({value})")
        self.states.append(State(name, following, kind, sizes, **grows))

    def index(self) -> str:
        """Indices `[N]` below `SLOTS`, of the caller's or counted, which are always right."""
        if self.chance(0.6):
            return "i"
        name = self.name("s")
        self.put(name, self.emit(f"Add ({name}, {self.constant(1)})"), "int64", "N")
        return str(self.emit(f"Mod ({name}, {self.constant(SLOTS)})"))

    def with_states(
        self, inputs: list[str], outputs: Mapping[str, str], known: Collection[str] = ()
    ) -> onnx.ModelProto:
        """The model, with its states and whatever else it reads, in any order.

        inputs: types with names. outputs: types by name. known: what is no input.
        """
        text, listed = "\n".join(self.lines), dict(outputs)
        asked = {"i": "int64[N]", "b": "int64[N]", "o": f"int64[{GROUP}]", "n": "int64"}
        asked |= {f"m{length}": f"float[N, M{length}]" for length in self.lengths}
        for name, type_ in asked.items():
            if name not in known and re.search(rf"\b{name}[,)]", text):
                inputs.append(f"{type_} {name}")
        for state in self.states:
            inputs.append(f"{state.kind}[{', '.join(map(str, state.sizes))}] {state.name}")
            sizes = [s if isinstance(s, int) or s == "N" else f"{s}T" for s in state.sizes]
            listed[state.following] = f"{state.kind}[{', '.join(map(str, sizes))}]"
        names = list(listed)
        self.random.shuffle(inputs)
        self.random.shuffle(names)
        return self.model(inputs, [f"{listed[name]} {name}" for name in names], OPSET)
