"""Random networks over sequences, run in every way there is: the same bits.

    python -m tools.fuzz everywhere --seconds 60

A model is run as a whole: by the session, row by row, by two threads, as `optimize` writes it, and
with gradients beside its outputs. Converted into a stream, its steps over chunks of random sizes
are those of a session that is given states, of a stream, of a C library, and those over chunks of
one size of a pool and of C programs for other machines, WebAssembly among them. Frames of the steps
have the bits of the whole.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ostinato
from ostinato import OstinatoError
from ostinato.aot.build import make_library
from ostinato.autodiff import gradient
from ostinato.cli.stream_check import Arrays, compare, runner
from ostinato.quantization import quantize
from ostinato.streaming import Conversion, ConversionError, convert
from ostinato.streaming.timing import CUT_AND_PADDED
from tests.aot.caller import Caller, linked
from tools.fuzz import rewriting_loops
from tools.fuzz.edited import change
from tools.fuzz.graphs import Outcome, difference, in_child, same_bits
from tools.fuzz.rewriting import Rewriter
from tools.fuzz.seeds import try_seeds
from tools.fuzz.state_trial import WrongError, require
from tools.fuzz.stream_models import RECURRENT, random_model
from tools.fuzz.stream_pools import compare_pool
from tools.programs import MACHINES, Built, Unavailable

CHILD_SECONDS = 200.0
BATCH, FRAMES = 2, 24
# How far attention looks back, and the rows of states that grow: more than there are frames of any
# rate.
CONTEXT = 32 * FRAMES
# Steps of a C program, and one model of so many that is one.
STEPS, ELSEWHERE = 4, 3
# How often weights are narrow.
NARROW = 0.3


def model_of(seed: int) -> onnx.ModelProto:
    """The model of a seed: half of them recurrent, some rewritten, some with narrow weights."""
    random = np.random.default_rng(seed + 2**34)
    model = random_model(seed, None, RECURRENT if random.random() < 0.5 else ())
    rewriter = Rewriter(random, model, {})
    for _ in range(int(random.choice((0, 0, 1, 2)))):
        change(rewriter, rewriting_loops.__name__)
    if random.random() < NARROW:
        with contextlib.suppress(OstinatoError):
            return quantize(model, str(random.choice(("int8", "int4", "bf16", "f16"))))
    return model


@dataclass
class Trial:
    """A model, its inputs, and what it gives. ways: those in which it has been run."""

    random: np.random.Generator
    model: onnx.ModelProto
    feeds: Arrays
    session: ostinato.InferenceSession
    whole: Arrays
    ways: list[str] = field(default_factory=list)

    def same(self, way: str, got: Sequence[Any], wanted: Sequence[Any]) -> None:
        self.ways.append(way)
        require(same_bits(got, wanted), f"{way}: {difference(got, wanted)}")


# The whole


def wholes(trial: Trial) -> None:
    """All ways to run the model at once."""
    wanted = list(trial.whole.values())
    trial.same("again", trial.session.run(None, trial.feeds), wanted)
    for way, model, options in (
        ("threads", trial.model, {"threads": 2}),
        ("optimised", ostinato.optimize(trial.model), {}),
        ("gradients", _with_gradients(trial.model), {}),
    ):
        if model is not None:
            session = ostinato.InferenceSession(model, cache_dir=None, **options)
            trial.same(way, session.run(list(trial.whole), trial.feeds), wanted)


def _with_gradients(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with the gradients of a sum of an output; None where an operator has none."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    name = copy.graph.output[0].name
    loss = onnx.helper.make_node("ReduceSum", [name], ["loss"], keepdims=0)
    copy.graph.node.append(loss)
    copy.graph.output.append(onnx.helper.make_tensor_value_info("loss", 1, []))
    try:
        return gradient(copy, "loss", ["x"])
    except OstinatoError:
        return None


# Steps


@dataclass
class Steps:
    """Chunks of the inputs, and what a session that is given states makes of each."""

    trial: Trial
    conversion: Conversion
    session: ostinato.InferenceSession
    chunks: list[Arrays]
    wanted: list[Arrays] = field(default_factory=list)

    @property
    def initial(self) -> Arrays:
        return self.conversion.initial_values({"N": BATCH})

    def carried(self) -> Iterator[Arrays]:
        """The outputs of each step but the states, which calls are given and return."""
        run, state = runner(self.session), self.initial
        for feeds in self.chunks:
            outputs = run(feeds | state)
            state = {name: outputs.pop(after) for name, after in self.conversion.states.items()}
            yield outputs

    def same(self, way: str, step: int, got: Sequence[Any]) -> None:
        self.trial.same(f"{way}, step {step}", got, list(self.wanted[step].values()))

    def stream(self) -> None:
        """A stream, some of whose steps write into arrays that they are given."""
        stream = self.session.stream(
            self.conversion.states, self.conversion.initial_values({"N": 1}), {"N": BATCH}
        )
        for step, feeds in enumerate(self.chunks):
            out = None
            if self.trial.random.random() < 0.3:
                out = {name: np.full_like(a, 7) for name, a in self.wanted[step].items()}
            self.same("stream", step, stream.step(feeds, out))

    def library(self) -> None:
        """A C library in this process."""
        states = dict(self.conversion.states)
        first = self.conversion.initial_values({"N": 1})
        built = make_library(
            self.conversion.model, "host", states or None, "model", first, "inside", {}
        )
        sizes = {size.name: CONTEXT for size in built.interface.sizes}
        sizes |= {"N": BATCH, "T": max(chunk["x"].shape[2] for chunk in self.chunks)}
        places = built.interface.places["step" if states else "run"]
        names = [built.interface.inputs[i].name for i in places[0]]
        outputs = [built.interface.outputs[i].name for i in places[1]]
        with tempfile.TemporaryDirectory() as folder:
            caller = Caller(built, linked(built, Path(folder)), sizes)
            call = caller.step if states else caller.run
            for step, feeds in enumerate(self.chunks):
                given = [np.ascontiguousarray(feeds[name]) for name in names]
                made = dict(zip(outputs, call(given), strict=True))
                self.same("library", step, [made[name] for name in self.wanted[step]])
            caller.close()

    def elsewhere(self) -> None:
        """A C program for another machine, whose steps have one size."""
        machine = MACHINES[int(self.trial.random.integers(len(MACHINES)))]
        first = self.conversion.initial_values({"N": 1})
        states = dict(self.conversion.states) or None
        try:
            built = Built.of(self.conversion.model, machine.target, states, self.chunks, first)
            shapes = {name: [w[name].shape for w in self.wanted] for name in self.wanted[0]}
            for step, made in enumerate(built.results(shapes, machine)):
                self.same(machine.title, step, [made[name] for name in self.wanted[step]])
        except Unavailable:
            return


def chunks_of(trial: Trial, conversion: Conversion, sizes: Sequence[int]) -> list[Arrays]:
    """The frames of the inputs, so many at a time."""
    ends = np.cumsum(sizes)
    return [
        {
            name: np.ascontiguousarray(array[..., end - size : end])
            if name in conversion.time
            else array
            for name, array in trial.feeds.items()
        }
        for size, end in zip(sizes, ends, strict=True)
    ]


def steps(trial: Trial, conversion: Conversion) -> None:
    """All ways to run the converted model."""
    unit, sizes = conversion.chunk or conversion.multiple, []
    while sum(sizes) + unit <= FRAMES:
        count = 1 if conversion.chunk else int(trial.random.choice((1, 1, 2, 3, 7)))
        sizes.append(min(count * unit, (FRAMES - sum(sizes)) // unit * unit))
    if not sizes:
        return
    session = ostinato.InferenceSession(conversion.model, cache_dir=None)
    several = Steps(trial, conversion, session, chunks_of(trial, conversion, sizes))
    several.wanted = list(several.carried())
    if sum(sizes) == FRAMES and all(n.text != CUT_AND_PADDED for n in conversion.notes):
        trial.ways.append("steps")
        for found in compare(trial.whole, several.wanted, conversion, 0):
            require(not found.wrong, f"steps of {sizes}: {found}")
    several.stream()
    several.library()
    if trial.random.random() < 1 / ELSEWHERE:
        same_size = [unit * int(trial.random.choice((1, 2)) if conversion.chunk is None else 1)]
        chunks = chunks_of(trial, conversion, same_size * min(STEPS, FRAMES // same_size[0]))
        alike = Steps(trial, conversion, session, chunks)
        alike.wanted = list(alike.carried())
        alike.elsewhere()
    trial.ways.append("pool")
    require(not (text := compare_pool(conversion, trial.feeds)), text)


def check(seed: int) -> Outcome:
    """Run the model of a seed in every way."""
    logging.disable()
    warnings.simplefilter("ignore")
    random = np.random.default_rng(seed)
    model = model_of(seed)
    shapes = {"x": (BATCH, 3, FRAMES), "z": (BATCH, 2, FRAMES), "s": (BATCH, 2)}
    feeds = {
        value.name: random.standard_normal(shapes[value.name]).astype(np.float32)
        for value in model.graph.input
    }
    try:
        session = ostinato.InferenceSession(model, cache_dir=None)
        whole = runner(session)(feeds)
    except OstinatoError as error:
        return Outcome("invalid", str(error))
    if session.report().interpreted:
        return Outcome("interpreted")
    trial = Trial(random, model, feeds, session, whole)
    try:
        wholes(trial)
        times = {name: 2 for name in feeds if name != "s"}
        context: Any = "all" if random.random() < 0.2 else CONTEXT
        chunk = None
        try:
            conversion = convert(model, times, None, context=context)
            if random.random() < 0.3 and context != "all":
                chunk = conversion.multiple * int(random.integers(1, 4))
                conversion = convert(model, times, chunk, context=context)
        except ConversionError as error:
            return Outcome("as a whole", str(error))
        steps(trial, conversion)
    except (WrongError, OstinatoError, AssertionError) as error:
        return Outcome("differ", f"{type(error).__name__}: {error}; before: {trial.ways[-3:]}")
    return Outcome("agree")


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each model in a process of its own."""

    def apart(seed: int) -> Outcome:
        return in_child(lambda: (check(seed), []), CHILD_SECONDS)[0]  # type: ignore[no-any-return]

    return try_seeds(apart, model_of, seconds, seed, count, folder)
