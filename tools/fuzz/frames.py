"""Random nodes and graphs of which any axis is time, converted into streams.

A conversion is refused, or it agrees bit for bit: frame `i + delay` of the steps with frame `i` of
the whole model; a value without a time axis with the whole model on the frames so far. The axis is
of a fixed length, or open: then the whole model runs on the first frames, too. So this finds nodes
that relate frames to each other, or number them, where a rule says that they do not.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

import ostinato
from ostinato import OstinatoError
from ostinato.cli.stream_check import Arrays, Run, compare, runner, step_by_step
from ostinato.streaming import Conversion, convert
from ostinato.streaming.timing import CUT_AND_PADDED
from tools.fuzz.moves import OPERATORS as MOVES
from tools.fuzz.nodes import random_node
from tools.fuzz.random_models import OPERATORS
from tools.fuzz.random_models import random_model as random_graph
from tools.fuzz.seeds import try_seeds
from tools.fuzz.streams import Outcome

CONTEXT = 64
CHUNKS = (1, 2, 3)
MOST_NODES = 7


def random_model(seed: int) -> tuple[onnx.ModelProto, Arrays]:
    """A model of one node or of a few, and its inputs."""
    kind = seed % 4
    if kind < 2:
        model, feeds = random_node(seed)
    else:
        model, feeds = random_graph(seed, OPERATORS if kind == 2 else MOVES, MOST_NODES)
    return model, dict(feeds)


def timed(seed: int) -> tuple[onnx.ModelProto, Arrays, dict[str, int]]:
    """A model, its inputs, and the axis of some of them that is time."""
    model, feeds = random_model(seed)
    random = np.random.default_rng(seed + 2**35)
    places = [(n, i) for n, a in feeds.items() for i, size in enumerate(a.shape) if size > 1]
    if not places:
        return model, feeds, {}
    name, axis = places[int(random.integers(len(places)))]
    size, times = feeds[name].shape[axis], {name: axis}
    for other, array in feeds.items():
        alike = [i for i, n in enumerate(array.shape) if n == size]
        if other != name and alike and random.random() < 0.6:
            times[other] = int(random.choice(alike))
    is_open = random.random() < 0.6
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for i, dim in enumerate(dims):
            if times.get(value.name) == i:
                dim.Clear()
                if is_open:
                    dim.dim_param = "time"
                else:
                    dim.dim_value = size
            elif random.random() < 0.8:
                dim.Clear()
                dim.dim_value = feeds[value.name].shape[i]
    return model, feeds, times


def _first(feeds: Arrays, times: dict[str, int], count: int) -> Arrays:
    return {
        name: np.ascontiguousarray(np.take(array, range(count), times[name]))
        if name in times
        else array
        for name, array in feeds.items()
    }


def _run(model: onnx.ModelProto) -> Run:
    return runner(ostinato.InferenceSession(model, cache_dir=None))


def check(seed: int) -> Outcome:
    """Convert the model of `seed`, and compare its steps with the whole."""
    model, feeds, times = timed(seed)
    if not times:
        return Outcome("no axis")
    name, axis = next(iter(times.items()))
    (value,) = (v for v in model.graph.input if v.name == name)
    is_open, total = bool(value.type.tensor_type.shape.dim[axis].dim_param), feeds[name].shape[axis]
    try:
        conversions = [convert(model, times, None, context=CONTEXT)]
        unit = conversions[0].multiple
        conversions.append(convert(model, times, (1 + seed % 2) * unit, context=CONTEXT))
    except OstinatoError as error:
        first = str(error).splitlines()[-1]
        return Outcome("refused", first)
    try:
        whole_run = _run(model)
        whole = whole_run(feeds)
    except OstinatoError:
        return Outcome("invalid")
    wrong = [text for made in conversions for text in _differences(made, feeds, whole, total)]
    if is_open and not wrong:
        wrong = list(_so_far(conversions[0], times, feeds, whole_run, total))
    return Outcome("wrong" if wrong else "converted", "; ".join([f"{times}", *wrong]))


def _differences(made: Conversion, feeds: Arrays, whole: Arrays, total: int) -> Iterator[str]:
    """How steps differ from the whole."""
    unit = made.chunk or made.multiple
    count = total // unit * unit
    if not count:
        return
    run = _run(made.model)
    may_differ = any(note.text == CUT_AND_PADDED for note in made.notes)
    for chunk in CHUNKS if made.chunk is None else (1,):
        given = _first(feeds, made.time, count)
        parts = list(step_by_step(run, made, given, chunk * unit))
        for difference in compare(whole, parts, made, chunk):
            timing = made.outputs[difference.output]
            is_end = timing.axis is None and (count < total or timing.first > total)
            if difference.wrong and not is_end and not may_differ:
                yield f"{difference}, {timing}"


def _so_far(
    made: Conversion, times: dict[str, int], feeds: Arrays, whole_run: Run, total: int
) -> Iterator[str]:
    """How steps differ from the whole of the frames so far."""
    unit = made.multiple
    run = _run(made.model)
    if any(note.text == CUT_AND_PADDED for note in made.notes):
        return
    for count in range(unit, total, unit):
        given = _first(feeds, times, count)
        try:
            whole = whole_run(given)
        except OstinatoError:
            continue
        parts = list(step_by_step(run, made, given, unit))
        for difference in compare(whole, parts, made, 1):
            timing = made.outputs[difference.output]
            is_early = timing.axis is None and timing.first > count
            if difference.wrong and not is_early:
                yield f"of {count} frames: {difference}, {timing}"


def tried(seed: int) -> Outcome:
    """As `check`, where an exception that nobody expects is wrong too."""
    logging.disable()
    warnings.simplefilter("ignore")
    try:
        with np.errstate(all="ignore"):
            return check(seed)
    except Exception as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}")


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try models from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: timed(n)[0], seconds, seed, count, folder)
