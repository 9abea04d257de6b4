"""Sizes of values as numbers, or as sizes that the inputs name.

Shape inference with names loses sizes where it cannot compute with them: behind a Slice up to a
length, say, every size gets a name of its own. With numbers in place of names it loses fewer. So
where some are lost it is done twice more, with other numbers: what is the same both times is a
number, what is the number of a name both times is that name, and what is a multiple of it is
called one of that name (`Multiples`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import onnx_ir as ir

from ostinato.graph.inferred_sizes import infer_sizes

Dims = tuple["int | str | None", ...]
Multiples: TypeAlias = "dict[str, tuple[int, str]]"
"""The number and the name that sizes are products of, by what they are called in `Dims`."""

# Lengths of sequences that strides divide; other sizes are primes that nothing else is.
_FRAMES = (10080, 20160)
_PRIMES = (
    (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061),
    (2003, 2011, 2017, 2027, 2029, 2039, 2053, 2063, 2069, 2081),
)


def name_sizes(model: ir.Model) -> None:
    """Give the sizes of inputs that are neither numbers nor named a name each."""
    taken = set(named_sizes(model))
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        dims = list(value.shape)
        for axis, size in enumerate(dims):
            if isinstance(size, ir.SymbolicDim) and not size.value:
                name = f"{value.name}_{axis}"
                while name in taken:
                    name += "_"
                taken.add(name)
                dims[axis] = ir.SymbolicDim(name)
        value.shape = ir.Shape(dims)


def named_sizes(model: ir.Model) -> list[str]:
    """The names that the inputs of `model` give to their sizes, each once."""
    return list(
        dict.fromkeys(
            str(size.value)
            for value in model.graph.inputs
            for size in value.shape or ()
            if isinstance(size, ir.SymbolicDim) and size.value
        )
    )


def find_sizes(
    model: ir.Model, axes: Mapping[str, int]
) -> tuple[dict[str, Dims | None], Multiples]:
    """The sizes of all values by name; names that no input has are of sizes that are not known.

    axes: the time axis of each input that has one.
    """
    found: dict[str, Dims | None] = dict(infer_sizes(model))
    names = named_sizes(model)
    multiples: Multiples = {}
    if not names or not _is_lost(model, found, names):
        return found, multiples
    timed = {
        str(value.shape[axes[str(value.name)]])
        for value in model.graph.inputs
        if str(value.name) in axes and value.shape is not None
    }
    others = [name for name in names if name not in timed]
    if len(others) > len(_PRIMES[0]):
        return found, multiples
    probes = [
        dict(zip(others, primes, strict=False)) | {name: frames for name in names if name in timed}
        for primes, frames in zip(_PRIMES, _FRAMES, strict=True)
    ]
    first, second = (_with_numbers(model, probe) for probe in probes)
    for name in first.keys() & second.keys():
        if len(first[name]) == len(second[name]):
            pairs = list(zip(first[name], second[name], strict=True))
            given = found.get(name) or (None,) * len(pairs)
            found[name] = tuple(
                _meaning(size, pair, probes, others, multiples)
                for size, pair in zip(given, pairs, strict=True)
            )
    return found, multiples


def _is_lost(model: ir.Model, found: Mapping[str, Dims | None], names: list[str]) -> bool:
    """Whether a value of the graph has a size that is neither a number nor named by an input."""
    known = set(names)
    return any(
        (dims := found.get(str(value.name))) is None
        or any(not isinstance(size, int) and size not in known for size in dims)
        for node in model.graph
        for value in node.outputs
        if value.name
    )


def _with_numbers(model: ir.Model, numbers: Mapping[str, int]) -> Mapping[str, Dims]:
    numbered = model.clone()
    for value in numbered.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape(
                numbers[str(size.value)] if isinstance(size, ir.SymbolicDim) else size
                for size in value.shape
            )
    return infer_sizes(numbered)


def _meaning(
    size: int | str | None,
    pair: tuple[int | str | None, int | str | None],
    probes: list[dict[str, int]],
    others: list[str],
    multiples: Multiples,
) -> int | str | None:
    """Find the name or number of a size from its values in two probes, `pair`; else `size`.

    A multiple of one of `others`, which are not the length, is added to `multiples`.
    """
    first, second = pair
    if isinstance(size, int) or not (isinstance(first, int) and isinstance(second, int)):
        return size
    if first == second:
        return first
    names = [name for name in probes[0] if (probes[0][name], probes[1][name]) == pair]
    if names:
        return names[0]
    for name in others:
        factor, rest = divmod(first, probes[0][name])
        if factor and not rest and factor * probes[1][name] == second:
            called = f"{factor} * {name}"
            multiples[called] = factor, name
            return called
    return size
