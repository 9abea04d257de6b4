"""Declared states: which input a model reads a state from, and which output gives the next one."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.arguments import is_whole
from ostinato.codegen.artifact import UNKNOWN_RANK, Argument
from ostinato.element_types import numpy_dtype
from ostinato.errors import InputError
from ostinato.native.arguments import as_input, as_mapping, check_names, describe, describe_array
from ostinato.native.memory import require_memory
from ostinato.runtime.archive import Entry, Kind, read_arrays, write_arrays

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# Copies of a state in memory: its value, and two buffers.
_BUFFERS = 3

Declaration = Mapping[str, str] | Iterable[tuple[str, str]]
"""The output of each state by its input."""


class ChangedShapeError(InputError):
    """Raised where a step would change the shape of a state that has memory of its own."""


@dataclass(frozen=True)
class Pair:
    """A state: `input` reads what `output` wrote a step earlier.

    read, written: positions among the model's inputs and among its outputs.
    """

    input: Argument
    output: Argument
    read: int
    written: int

    @property
    def name(self) -> str:
        """The name of the state, which is that of its input."""
        return self.input.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of both."""
        return numpy_dtype(self.input.dtype)

    @property
    def sizes(self) -> tuple[int | None, ...] | None:
        """The sizes that the model fixes, None for others; None for an unknown rank."""
        if self.input.shape == UNKNOWN_RANK:
            return None
        return tuple(size if isinstance(size, int) else None for size in self.input.shape)

    @property
    def may_change(self) -> bool:
        """Whether the model does not say that what it writes has the shape of what it reads."""
        return self.input.shape != self.output.shape

    def require_same(self, read: Shape, written: Shape) -> None:
        """Raise `ChangedShapeError` unless the output has the shape that the input has."""
        if read != written:
            raise ChangedShapeError(
                f"state {self.name!r} is {list(read)} and output {self.output.name!r} became "
                f"{list(written)}: the state of a stream keeps its shape"
            )


def declared_pairs(
    states: Declaration, inputs: Sequence[Argument], outputs: Sequence[Argument]
) -> tuple[Pair, ...]:
    """The pairs in the order of the model's inputs.

    Raises `InputError` for names that do not exist or come twice, and for an input and an output
    that cannot have one dtype and shape.
    """
    rows = named_pairs(states)
    sources = {argument.name: place for place, argument in enumerate(inputs)}
    targets = {argument.name: place for place, argument in enumerate(outputs)}
    check_names("input", [name for name, _ in rows], list(sources), complete=False)
    check_names("output", [name for _, name in rows], list(targets), complete=False)
    for kind, column in (("input", 0), ("output", 1)):
        names = [row[column] for row in rows]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"states: {kind} {name!r} is in two pairs; a state has its own")
    pairs = []
    for read, written in rows:
        source, target = inputs[sources[read]], outputs[targets[written]]
        _require_match(source, target)
        pairs.append(Pair(source, target, sources[read], targets[written]))
    return tuple(sorted(pairs, key=lambda pair: pair.read))


def named_pairs(states: object) -> list[tuple[str, str]]:
    """The names in a declaration. Raises `InputError` for what is none."""
    expected = "states: expected {input: output}, the names of every state's input and output"
    if isinstance(states, Mapping):
        states = states.items()
    if isinstance(states, str) or not isinstance(states, Iterable):
        # Results of `streaming.convert` have this attribute, and some functions accept them.
        has_some = isinstance(getattr(states, "states", None), Mapping)
        more = ", whose attribute 'states' is one" if has_some else ""
        raise InputError(f"{expected}; got {type(states).__name__}{more}")
    try:
        given = list(states)
    except TypeError as error:  # an array without axes
        raise InputError(f"{expected}; got {type(states).__name__}") from error
    rows = []
    for row in given:
        if not isinstance(row, tuple) or len(row) != 2:
            raise InputError(f"{expected}; got {row!r}")
        rows.append((row[0], row[1]))
    return rows


def _require_match(source: Argument, target: Argument) -> None:
    both = f"input {source.name!r} is {describe(source)}, output {target.name!r} {describe(target)}"
    if source.dtype != target.dtype:
        raise InputError(f"states: {both}: a state has one dtype")
    if not source.is_tensor or source.dtype == "string":
        raise InputError(f"states: {both}: a state is a tensor of numbers")
    if UNKNOWN_RANK in (source.shape, target.shape):
        return
    fixed = [
        pair
        for pair in zip(source.shape, target.shape, strict=False)
        if all(isinstance(size, int) for size in pair)
    ]
    if len(source.shape) != len(target.shape) or any(a != b for a, b in fixed):
        raise InputError(f"states: {both}: a state keeps its shape")


def checked_sizes(sizes: object, inputs: Sequence[Argument]) -> dict[str, int]:
    """Sizes by the name of a run-time dimension of `inputs`. Raises `InputError`."""
    sizes = as_mapping("sizes", {} if sizes is None else sizes)
    known = list(dict.fromkeys(d for a in inputs for d in a.shape if isinstance(d, str)))
    check_names("dimension", sizes, known, complete=False)
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise InputError(f"sizes: {name} is {size!r}, expected a number of elements")
    return {name: int(size) for name, size in sizes.items()}


def checked_initial(initial: object, pairs: Sequence[Pair]) -> dict[str, Array]:
    """Arrays of the declared dtype and rank by the state's name; sizes are compared later."""
    initial = as_mapping("initial", {} if initial is None else initial)
    named = {pair.name: pair.input for pair in pairs}
    check_names("state", initial, list(named), complete=False)
    arrays = {}
    for name, value in initial.items():
        array = checked_rank(named[name], as_input(named[name], value))
        arrays[name] = np.array(array, order="C")
    return arrays


def checked_rank(argument: Argument, array: Array) -> Array:
    """`array`, or `InputError` where it has another number of axes than the state."""
    if argument.shape != UNKNOWN_RANK and array.ndim != len(argument.shape):
        raise mismatch(argument, array)
    return array


def checked_rows(rows: object, what: str = "rows") -> int | None:
    """Check the number of rows of a growing state to reserve, or None. Raises `InputError`."""
    if rows is None:
        return None
    if not is_whole(rows) or rows < 1:
        raise InputError(f"{what} is {rows!r}, expected a number of rows")
    return int(rows)


def checked_count(rows: object) -> int:
    """Check the number of rows to rewind. Raises `InputError`."""
    if not is_whole(rows) or rows < 0:
        raise InputError(f"rewind: {rows!r} rows, expected a number of rows")
    return int(rows)


def mismatch(argument: Argument, array: Array, shape: Shape | None = None) -> InputError:
    """The error for an `array` that is no value of a state, which has `shape` where it is known."""
    expected = argument if shape is None else Argument(argument.name, argument.dtype, shape)
    return InputError(
        f"state {argument.name!r}: expected {describe(expected)}, got {describe_array(array)}"
    )


def resolve(
    pairs: Sequence[Pair],
    sizes: Mapping[str, int],
    initial: Mapping[str, Array],
    is_final: bool = True,
) -> dict[str, Shape] | None:
    """The shape of every state, None when a size is not known yet.

    A size that is in nothing else is that of the initial value. An axis of size 1 of that stands
    for any size, which may still become known unless this `is_final`.
    """
    known: dict[str, int] = {}
    for pair in pairs:
        array = initial.get(pair.name)
        if array is not None and pair.input.shape != UNKNOWN_RANK:
            dims = zip(pair.input.shape, array.shape, strict=True)
            named = ((name, size) for name, size in dims if isinstance(name, str))
            known.update((name, size) for name, size in named if is_final or size != 1)
    known.update(sizes)
    shapes: dict[str, Shape] = {}
    for pair in pairs:
        declared = pair.input.shape
        if declared == UNKNOWN_RANK:
            if pair.name not in initial:
                return None
            declared = initial[pair.name].shape
        if any(isinstance(size, str) and size not in known for size in declared):
            return None
        shapes[pair.name] = tuple(known[s] if isinstance(s, str) else int(s) for s in declared)
    return shapes


def unresolved(
    pairs: Sequence[Pair], sizes: Mapping[str, int], initial: Mapping[str, Array]
) -> InputError:
    """The error for states whose shape neither inputs nor caller told."""
    for pair in pairs:
        missing = [d for d in pair.input.shape if isinstance(d, str) and d not in sizes]
        if missing and pair.name not in initial:
            if pair.input.shape == UNKNOWN_RANK:
                return InputError(f"state {pair.name!r} has no declared shape; pass `initial`")
            given = ", ".join(f'"{name}": ...' for name in missing)
            return InputError(
                f"state {describe(pair.input)} {pair.name!r}: the inputs do not tell the size of "
                f"{', '.join(missing)}; pass `sizes={{{given}}}` or `initial`"
            )
    raise AssertionError("every state has a shape")


def filled(pair: Pair, shape: Shape, initial: Mapping[str, Array]) -> Array:
    """The state before the first step: zeros, or the initial value.

    An axis of size 1 of the initial value stands for a run-time dimension of any size. Raises
    `InputError` where the value does not fit, `RunError` where it and its two buffers do not fit
    into memory.
    """
    size = _BUFFERS * math.prod(shape) * pair.dtype.itemsize
    require_memory(size, f"the buffers of state {pair.name!r}")
    array = initial.get(pair.name)
    if array is None:
        return np.zeros(shape, pair.dtype)
    declared = shape if pair.input.shape == UNKNOWN_RANK else pair.input.shape
    if array.ndim != len(shape) or not all(
        size == wanted or (size == 1 and isinstance(name, str))
        for size, wanted, name in zip(array.shape, shape, declared, strict=True)
    ):
        raise mismatch(pair.input, array, shape)
    return np.array(np.broadcast_to(array, shape), order="C")


_SAVED = Kind("saved state", "the state of another model")
_PREFIX = "state "


def write_states(
    path: str | os.PathLike[str], fingerprint: str, states: Mapping[str, Array]
) -> None:
    """Write states by name to a file, with the fingerprint of their model."""
    write_arrays(path, fingerprint, {_PREFIX + name: array for name, array in states.items()})


def read_states(
    path: str | os.PathLike[str], fingerprint: str, expected: Mapping[str, Entry]
) -> dict[str, Array]:
    """The states that `write_states` wrote; raises what `read_arrays` raises."""
    entries = {_PREFIX + name: entry for name, entry in expected.items()}
    saved = read_arrays(path, _SAVED, fingerprint, entries)
    return {name.removeprefix(_PREFIX): array for name, array in saved.items()}


def table(
    pairs: Sequence[Pair],
    shapes: Sequence[Sequence[object]],
    heading: str = "",
    last: Sequence[str] = (),
) -> str:
    """States as a table, with a last column of this heading."""
    rows = [("state", "next state", "shape", "dtype", heading)]
    for pair, shape, text in zip(pairs, shapes, last or [""] * len(pairs), strict=True):
        listed = f"[{', '.join(map(str, shape))}]"
        rows.append((pair.name, pair.output.name, listed, pair.input.dtype, text))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
