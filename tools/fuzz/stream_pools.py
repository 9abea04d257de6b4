"""Streams of a converted model that a pool steps together, against each of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np

import ostinato
from ostinato import InputError, UnsupportedError
from ostinato.cli.stream_check import Arrays
from ostinato.streaming import Conversion

# Frames of each stream; one more is opened in the place of the first that ends.
LENGTHS = (5, 9, 2, 7)
CAPACITY = 3


def compare_pool(conversion: Conversion, given: Arrays) -> str:
    """How streams of a pool that come, stall and go differ from single ones; empty if not at all.

    Pools refuse models whose batch is not an axis of all states and inputs.
    """
    session = ostinato.InferenceSession(conversion.model, cache_dir=None)
    initial = conversion.initial_values({"N": 1})
    unit = conversion.chunk or conversion.multiple
    frames = [_frames(conversion, given, number, unit) for number in range(len(LENGTHS))]
    try:
        pool = session.pool(conversion.states, CAPACITY, "N", initial)
        expected = [_alone(session, conversion, initial, steps) for steps in frames]
        # Rows that depend on each other are no streams.
        if _mixes_rows(session, conversion, [steps[-1] for steps in frames]):
            return ""
    except (InputError, UnsupportedError):
        return ""
    random = np.random.default_rng(unit)
    places: dict[int, int] = {}
    waiting, got = list(range(len(LENGTHS))), [[] for _ in LENGTHS]  # type: list[int], list[Any]
    with pool:
        while waiting or places:
            while waiting and len(places) < CAPACITY:
                places[pool.open()] = waiting.pop(0)
            for handle, number in places.items():
                if random.random() < 0.7:
                    pool.push(handle, frames[number][len(got[number])])
            for handle, outputs in pool.step().items():
                got[places[handle]].append(outputs)
            for handle, number in list(places.items()):
                if len(got[number]) == LENGTHS[number]:
                    pool.close(handle)
                    del places[handle]
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        for step, (a, b) in enumerate(zip(one, other, strict=True)):
            if not all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)):
                return f"stream {number} of a pool differs from a single one in step {step}"
    return ""


def _frames(conversion: Conversion, given: Arrays, number: int, unit: int) -> list[Arrays]:
    """The inputs of each step of a stream: one row of the batch, from some frame on."""
    row = {name: array[number % 2 : number % 2 + 1] for name, array in given.items()}
    first = 3 * number
    steps = []
    for step in range(LENGTHS[number]):
        places = [(first + step * unit + i) % given["x"].shape[2] for i in range(unit)]
        steps.append(
            {
                name: np.ascontiguousarray(array[..., places]) if array.ndim == 3 else array
                for name, array in row.items()
            }
        )
    return steps


def _mixes_rows(
    session: ostinato.InferenceSession, conversion: Conversion, rows: list[Arrays]
) -> bool:
    """Whether a step of several rows gives others than steps of one row each."""
    each = [
        _alone(session, conversion, conversion.initial_values({"N": 1}), [row])[0] for row in rows
    ]
    joined = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    first = conversion.initial_values({"N": len(rows)})
    (together,) = _alone(session, conversion, first, [joined])
    return any(
        not np.array_equal(np.concatenate(parts), whole, equal_nan=True)
        for parts, whole in zip(zip(*each, strict=True), together, strict=True)
    )


def _alone(
    session: ostinato.InferenceSession, conversion: Conversion, initial: Arrays, steps: list[Arrays]
) -> list[list[Any]]:
    """The outputs of each step, without the states."""
    state = dict(initial)
    names = [output.name for output in session.get_outputs()]
    results = []
    for feeds in steps:
        outputs = dict(zip(names, session.run(None, feeds | state), strict=True))
        state = {name: outputs.pop(after) for name, after in conversion.states.items()}
        results.append(list(outputs.values()))
    return results
