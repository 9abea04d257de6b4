"""Samples of a model's inputs: reading them, and what the model makes of them."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ostinato.errors import InputError
from ostinato.graph.writer import Array
from ostinato.runtime.session import InferenceSession, NodeArg

Sample: TypeAlias = "Mapping[str, Array]"
Calibration: TypeAlias = "Sample | Iterable[Sample] | str | os.PathLike[str]"


def read_samples(
    calibration: Calibration, arguments: Sequence[NodeArg], states: Mapping[str, str]
) -> list[dict[str, Array]]:
    """The samples in `calibration`, checked against the inputs of a model.

    calibration: arrays by the names of inputs, a list of such samples, or an .npz file with an
    array for each input. Arrays with one axis more than their inputs hold a sample in each row.
    arguments: the inputs. states: those of them that need not be given, and their outputs.

    Raises `InputError` for names, types and shapes that do not fit, and for a file that is none.
    """
    if isinstance(calibration, str | os.PathLike):
        calibration = _read_file(calibration)
    given = [calibration] if isinstance(calibration, Mapping) else calibration
    is_scalar = isinstance(given, np.ndarray) and not given.ndim
    if is_scalar or not isinstance(given, Iterable):
        raise InputError(
            "calibration: expected arrays by the names of inputs, a list of these, or a path, "
            f"got {type(calibration).__name__}"
        )
    samples = [sample for item in given for sample in _split(item, arguments, states)]
    if not samples:
        raise InputError("calibration: there are no samples")
    return samples


def _read_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.lib.npyio.NpzFile):
            with file:
                return {name: file[name] for name in file.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else "no .npz file of numbers"
        raise InputError(f"calibration: {os.fspath(path)}: {what}") from error
    raise InputError(
        f"calibration: {os.fspath(path)} holds one array, expected an .npz file with an array for "
        "each input"
    )


def _split(
    given: Any, arguments: Sequence[NodeArg], states: Mapping[str, str]
) -> Iterator[dict[str, Array]]:
    if not isinstance(given, Mapping):
        raise InputError(
            f"calibration: expected a dict of arrays by name, got {type(given).__name__}"
        )
    by_name = {argument.name: argument for argument in arguments}
    for name in given:
        if name not in by_name:
            raise InputError(
                f"calibration: the model has no input {name!r}, it has {list(by_name)}"
            )
    missing = [name for name in by_name if name not in given and name not in states]
    if missing:
        raise InputError(f"calibration: input {missing[0]!r} is missing")
    arrays = {name: np.asarray(value) for name, value in given.items()}
    counts = {}
    for name, array in arrays.items():
        shape = by_name[name].shape
        if shape is not None and array.ndim == len(shape) + 1:
            counts[name] = len(array)
    if len(set(counts.values())) > 1 or (counts and len(counts) < len(arrays)):
        raise InputError(
            f"calibration: expected as many samples of each input, got shapes "
            f"{ {name: list(array.shape) for name, array in arrays.items()} }"
        )
    rows = range(next(iter(counts.values()))) if counts else [None]
    for row in rows:
        sample = arrays if row is None else {name: a[row] for name, a in arrays.items()}
        for name, array in sample.items():
            _check(by_name[name], array)
        yield sample


def _check(argument: NodeArg, array: Array) -> None:
    shape = argument.shape
    fits = shape is None or (
        array.ndim == len(shape)
        and all(not isinstance(n, int) or n == m for n, m in zip(shape, array.shape, strict=True))
    )
    if not fits:
        raise InputError(
            f"calibration: input {argument.name!r} has shape {list(shape or ())}, got an array of "
            f"shape {list(array.shape)}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"calibration: input {argument.name!r} has elements that are not finite")


def outputs_of(
    session: InferenceSession,
    samples: Iterable[Sample],
    states: Mapping[str, str],
    constants: Sample | None = None,
) -> Iterator[dict[str, Array]]:
    """The outputs of `session` for each sample, by name.

    states: the output of each state by its input. A sample that does not give a state takes that of
    the sample before, the first one zeros. constants: further inputs, the same each time.
    """
    names = [output.name for output in session.get_outputs()]
    carried: dict[str, Array] = {}
    for sample in samples:
        feeds = with_states({**(constants or {}), **carried, **sample}, session, states)
        results = dict(zip(names, session.run(None, feeds), strict=True))
        carried = {name: results[output] for name, output in states.items()}
        yield results


def with_states(
    feeds: Sample, session: InferenceSession, states: Mapping[str, str]
) -> dict[str, Array]:
    """The feeds, with zeros for the states that they leave out, in the sizes that others say.

    Raises `InputError` for one that is no float.
    """
    arguments = {argument.name: argument for argument in session.get_inputs()}
    sizes: dict[int | str | None, int] = {}
    for name, array in feeds.items():
        shape = arguments[name].shape if name in arguments else None
        sizes.update(zip(shape or (), array.shape, strict=False))
    complete = dict(feeds)
    for name in states:
        if name not in complete:
            sized: list[int] = [
                n if isinstance(n, int) else sizes.get(n, 1) for n in arguments[name].shape or ()
            ]
            dtype = _STATES.get(arguments[name].type)
            if dtype is None:
                raise InputError(
                    f"states: {name!r} is {arguments[name].type}: give its first value"
                )
            complete[name] = np.zeros(sized, dtype)
    return complete


_STATES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


def signal_to_noise(expected: Sequence[Sample], found: Sequence[Sample]) -> dict[str, float]:
    """The signal-to-noise ratio of each float output over all samples, in dB.

    Infinite where they are equal, minus infinity where only the error is not finite, NaN where the
    output itself is not. Of a list all tensors count.
    """
    result = {}
    for name in expected[0]:
        pairs = [
            (_floats(reference[name]), _floats(other[name]))
            for reference, other in zip(expected, found, strict=True)
        ]
        if not any(tensors for tensors, _ in pairs):
            continue
        signal = noise = 0.0
        for one, two in pairs:
            signal += sum(float(np.sum(a * a)) for a in one)
            agree = [a.shape for a in one] == [b.shape for b in two]
            errors = (float(np.sum((a - b) ** 2)) for a, b in zip(one, two, strict=False))
            noise += sum(errors) if agree else math.inf
        if not math.isfinite(signal):
            result[name] = math.nan
        elif noise == 0:
            result[name] = math.inf
        elif signal == 0:
            result[name] = -math.inf
        else:
            result[name] = 10 * math.log10(signal / noise) if noise < math.inf else -math.inf
    return result


def _floats(value: Any) -> list[np.ndarray]:
    """The tensors of floats that a value is, or that are in a list, as float64."""
    if isinstance(value, list):
        return [tensor for element in value for tensor in _floats(element)]
    array = np.asarray(value)
    return [array.astype(np.float64)] if array.dtype.kind == "f" else []
