"""Random models as C libraries: steps and runs have the bits of the session.

    python -m tools.fuzz libraries --seconds 60

A library is called in this process, with arrays beside pages that cannot be touched: steps and runs
of random sizes, states read, saved, loaded and reset, and mistakes, which must be refused with
nothing written. Some are called by C programs for other machines; others are graphs and loops
without states, called as a whole.
"""

from __future__ import annotations

import ctypes
import logging
import random as randoms
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import ostinato
from ostinato import OstinatoError
from ostinato.aot.build import make_library
from ostinato.aot.interface import Interface, error
from tests.aot.caller import Caller, linked, pointer, sizes_of
from tools.fuzz.graphs import Outcome, in_child
from tools.fuzz.guarded import Guards
from tools.fuzz.library_calls import call
from tools.fuzz.random_loops import random_loop
from tools.fuzz.random_models import random_model
from tools.fuzz.random_states import Values, random_states
from tools.fuzz.seeds import try_seeds
from tools.fuzz.state_trial import Trial, WrongError, require
from tools.fuzz.text import Array
from tools.programs import MACHINES, Built, Unavailable

CHILD_SECONDS = 200.0
OPERATIONS = 40
# The most frames of a step, and rows of a state that grows.
FRAMES, ROWS = 5, 12
# One library of so many is for another machine.
ELSEWHERE = 8
STEPS = 4


@dataclass
class Library:
    """An object of a library, and what its states must be."""

    trial: Trial
    caller: Caller
    batch: int
    values: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = self.trial.first(self.batch)
        self.guards = Guards(randoms.Random(int(self.trial.random.integers(1 << 30))))

    @property
    def interface(self) -> Interface:
        return self.caller.interface

    def operate(self) -> None:
        trial = self.trial
        operations: list[tuple[int, Callable[[], None]]] = [(10, self.step), (3, self.mistaken)]
        operations += [(1, self.reset), (2, self.saved)]
        if not self.interface.growing:
            operations += [(4, self.run), (2, self.set), (2, self.compare)]
        elif trial.can_rewind:
            operations += [(2, self.rewind)]
        operation = trial.weighed(operations)
        trial.log.append(operation.__name__)
        operation()

    # Calls

    def frame(self, frames: int | None = None) -> Values:
        trial, count = self.trial, frames
        if count is None:
            count = int(trial.random.integers(0, FRAMES + 1))
        wrong = trial.chance(0.08)
        rows = trial.rows(self.values)
        feeds = trial.made.frame(trial.random, self.batch, count, rows, wrong=wrong)
        trial.log.append(f"  {count} frames of {self.batch}")
        return {name: self.guards.copy(array) for name, array in feeds.items()}

    def outputs(self, name: str, known: Mapping[str, int]) -> list[Array]:
        """Memory for what a call writes, full of marks."""
        made = self.caller._outputs(known)
        arrays = [self.guards.like(made[i]) for i in self.interface.places[name][1]]
        for array in arrays:
            array.reshape(-1).view(np.uint8)[:] = 0xA5
        return arrays

    def called(self, name: str, feeds: Values) -> tuple[int, list[Array]]:
        """The code, and what has been written."""
        tensors = [self.interface.inputs[i] for i in self.interface.places[name][0]]
        given = [feeds[tensor.name] for tensor in tensors]
        known = self.caller.sizes | sizes_of(tensors, given)
        outputs = self.outputs(name, known)
        sizes = self.interface.run_sizes if name == "run" else self.interface.step_sizes
        pointers = map(pointer, [*given, *outputs])
        code = self.caller.call(
            name, self.caller.object, *self.caller._sizes(sizes, known), *pointers
        )
        return code, outputs

    def is_full(self, feeds: Values) -> bool:
        more = feeds["x"].shape[1]
        return any(n + more > ROWS for n in self.trial.rows(self.values).values())

    def judge(self, name: str, feeds: Values, after: Callable[[Values], None]) -> None:
        """Compare a call; `after` gets the states behind it."""
        states = {} if name == "step" else self.values
        wanted = None if self.is_full(feeds) else self.trial.expected(feeds, self.values)
        code, got = self.called(name, feeds | states)
        if wanted is None:
            require(code != 0, f"{name} does not fail")
            self.trial.log.append(f"  failed: {self.caller.text(code)}")
            return
        require(code == 0, f"{name} fails: {code}: {self.caller.text(code)}")
        outputs, following = wanted
        own = [n for n in self.trial.names if n not in self.trial.declared.values()]
        every = dict(zip(own, outputs, strict=True))
        every |= {self.trial.declared[n]: value for n, value in following.items()}
        names = [self.interface.outputs[i].name for i in self.interface.places[name][1]]
        self.trial.same(got, [every[n] for n in names], name)
        after(following)

    def step(self) -> None:
        def after(values: Values) -> None:
            self.values = values

        self.judge("step", self.frame(), after)

    def run(self) -> None:
        """A whole call with states of the caller's, which leaves those of the object."""
        self.judge("run", self.frame(), lambda values: None)

    def mistaken(self) -> None:
        """A call with a mistake, which writes nothing."""
        trial, feeds = self.trial, self.frame(2)
        places = self.interface.places["step"]
        tensors = [self.interface.inputs[i] for i in places[0]]
        given = [feeds[tensor.name] for tensor in tensors]
        known = self.caller.sizes | sizes_of(tensors, given)
        outputs = self.outputs("step", known)
        pointers = [*map(pointer, [*given, *outputs])]
        sizes = self.caller._sizes(self.interface.step_sizes, known)
        kind = trial.choose(("NULL", "ALIGNMENT", "OVERLAP", "SIZE"))
        place = int(trial.random.integers(len(pointers)))
        array = [*given, *outputs][place]
        if kind == "NULL":
            pointers[place] = None
        elif kind == "ALIGNMENT":
            if array.itemsize == 1:
                return
            pointers[place] = ctypes.c_void_p(array.ctypes.data + 1)
        elif kind == "OVERLAP":
            if not outputs:
                return
            number = len(given) + int(trial.random.integers(len(outputs)))
            if number == place:
                return
            pointers[number] = pointers[place]
        elif sizes:
            sizes[0] = ctypes.c_size_t(int(trial.choose((2**62, 2**63, 2**64 - 1))))
        else:
            return
        if 0 in (array.size, *(a.size for a in outputs)):
            return
        trial.log.append(f"  {kind} of {place}, sizes {sizes}")
        code = self.caller.call("step", self.caller.object, *sizes, *pointers)
        # Sizes are looked at before memory is, and rows that fit in nowhere before both.
        is_right = code != 0 if kind == "SIZE" else code == error(kind)
        require(is_right, f"{kind} of argument {place}: {code}")
        marked = all((a.reshape(-1).view(np.uint8) == 0xA5).all() for a in outputs)
        require(marked, f"{kind}: something was written")

    # States

    def reset(self) -> None:
        self.caller.call("reset", self.caller.object)
        self.values = self.trial.first(self.batch)

    def _memory(self, name: str) -> Array:
        """A state in the memory of the object."""
        value = self.values[name]
        address = self.caller.state(name).value
        assert address is not None
        memory = (ctypes.c_uint8 * value.nbytes).from_address(address)
        return np.frombuffer(memory, np.uint8).view(value.dtype).reshape(value.shape)

    def compare(self) -> None:
        found = {name: self._memory(name) for name in self.values}
        self.trial.same_state(found, self.values, "object")

    def set(self) -> None:
        values = self.trial.other(self.values)
        for name, value in values.items():
            self._memory(name)[...] = value
        self.values = self.values | values

    def saved(self) -> None:
        size = self.caller.call("save_bytes", self.caller.object)
        data = self.guards.empty(size)[0]
        self.caller.check(
            self.caller.call("save", self.caller.object, pointer(data), ctypes.c_size_t(size))
        )
        before = self.values
        self.step()
        if self.trial.chance(0.3):
            other = data.copy()
            other[int(self.trial.random.integers(size))] ^= 1 << int(self.trial.random.integers(8))
            require(self._load(other) == error("SAVED"), "damaged states are loaded")
            self.step()
        self.caller.check(self._load(data))
        self.values = before

    def _load(self, data: Array) -> int:
        return self.caller.call(
            "load", self.caller.object, pointer(data), ctypes.c_size_t(data.nbytes)
        )

    def rewind(self) -> None:
        rows = self.trial.rows(self.values)
        count = int(self.trial.random.integers(0, min(rows.values()) + 1))
        for length, number in rows.items():
            function = self.caller._linked[f"model_state_length_of_{length}"]
            function.restype = ctypes.POINTER(ctypes.c_int64)
            place = function(self.caller.object)
            require(place[0] == number, f"{place[0]} rows of {length}, not {number}")
            place[0] = number - count
        self.values = self.trial.cut(self.values, count)


def model_of(seed: int) -> onnx.ModelProto:
    """The model of a seed."""
    if seed % 4 == 1:
        return random_loop(seed)[0]
    return random_model(seed)[0] if seed % 4 == 2 else random_states(seed).model


def check(seed: int) -> Outcome:
    """Build the model of a seed and operate on an object of it."""
    logging.disable()
    warnings.simplefilter("ignore")
    random = np.random.default_rng(seed + 2**33)
    if seed % 4 in (1, 2):
        model, feeds = random_loop(seed) if seed % 4 == 1 else random_model(seed)
        return call(model, feeds, seed)
    made = random_states(seed)
    if any(value.name.startswith("mP") for value in made.model.graph.input):
        return Outcome("masked")
    session = ostinato.InferenceSession(made.model, cache_dir=None)
    states = {state.name: state.following for state in made.states}
    try:
        built = make_library(made.model, "host", states, "model", made.initial, "inside", {})
    except OstinatoError as problem:
        return Outcome("refused", str(problem))
    batch = int(random.choice((1, 1, 2, 3)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trial = Trial(random, made, session, folder)
        if seed % ELSEWHERE == 0:
            return elsewhere(trial)
        lengths = {size.name: ROWS for size in built.interface.sizes if size.kind == "capacity"}
        sizes = {"N": batch, "T": FRAMES} | lengths
        caller = Caller(built, linked(built, folder), sizes)
        try:
            library = Library(trial, caller, batch)
            for _ in range(OPERATIONS):
                library.operate()
        except (WrongError, OstinatoError, AssertionError) as problem:
            text = f"{type(problem).__name__}: {problem}\n" + "\n".join(trial.log[-12:])
            return Outcome("differ", text)
    return Outcome("agree")


def elsewhere(trial: Trial) -> Outcome:
    """Let a C program for another machine make steps of one size."""
    random, made = trial.random, trial.made
    frames = int(random.choice((1, 1, 2, 3)))
    machine = MACHINES[int(random.integers(len(MACHINES)))]
    values, calls, wanted = trial.first(1), [], []
    own = [name for name in trial.names if name not in trial.declared.values()]
    while len(calls) < STEPS:
        feeds = made.frame(random, 1, frames, trial.rows(values))
        found = trial.expected(feeds, values)
        if found is None:
            return Outcome("steps fail")
        calls.append(feeds)
        wanted.append(dict(zip(own, found[0], strict=True)))
        values = found[1]
    built = Built.of(made.model, machine.target, trial.declared, calls, made.initial)
    try:
        results = built.results({n: [w[n].shape for w in wanted] for n in own}, machine)
    except Unavailable as problem:
        return Outcome("not here", f"{machine.title}: {problem}")
    except AssertionError as problem:
        return Outcome("differ", f"{machine.title}: {problem}")
    try:
        for step, (got, expected) in enumerate(zip(results, wanted, strict=True)):
            trial.same([got[n] for n in own], [expected[n] for n in own], f"step {step}")
    except WrongError as problem:
        return Outcome("differ", f"{machine.title}: {problem}")
    return Outcome(f"agree, {machine.title}")


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each model in a process of its own."""

    def apart(seed: int) -> Outcome:
        return in_child(lambda: (check(seed), []), CHILD_SECONDS)[0]  # type: ignore[no-any-return]

    return try_seeds(apart, model_of, seconds, seed, count, folder)
