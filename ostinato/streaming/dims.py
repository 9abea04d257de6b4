"""Sizes of values as numbers, or as sizes that the inputs name.

Shape inference with names loses sizes where it cannot compute with them: behind a Slice up to a
length, say, every size gets a name of its own. With numbers in place of names it loses fewer. So
where some are lost it is done twice more, with other numbers: what is the same both times is a
number, what is the number of a name both times is that name, and what is a multiple of it is
called one of that name (`Multiples`). Elements that shapes give are found in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant, discard
from ostinato.graph.facts import facts_of, sources
from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.model.graphs import is_if, is_standard
from ostinato.model.names import Names
from ostinato.model.values import constant_array, optional_input
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.simplify.constant_folding import constant_folding, store_constant
from ostinato.passes.simplify.dead_code import dead_code

Dims = tuple["int | str | None", ...]
Shapes: TypeAlias = "Mapping[str, Dims]"
Constants: TypeAlias = "Mapping[str, np.ndarray]"
Multiples: TypeAlias = "dict[str, tuple[int, str]]"
"""The number and the name that sizes are products of, by what they are called in `Dims`."""

# Operators of arithmetic of sizes; those that saturate, such as a minimum, are left out.
_OF_SIZES = frozenset("Add Cast ConstantOfShape Div Equal Mul Sub Where".split())
# Operators that move elements as sizes say.
_BY_SIZES = frozenset(("Expand", "Reshape"))
_MOST_ELEMENTS = 64

# Lengths of sequences that strides divide; the second one is twice as long. Other sizes are primes
# that nothing else is.
_FRAMES = (10080, 5040, 2520, 1680, 840, 420, 240, 120, 60)
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
    others, probes = _probes(model, axes)
    if not probes:
        return found, multiples
    (first, known), (second, more) = (_with_numbers(model, probe) for probe in probes)
    constants = known, more
    _store_constants(model, constants, _saturated(model, (first, second), constants))
    for name in first.keys() & second.keys():
        if len(first[name]) == len(second[name]):
            pairs = list(zip(first[name], second[name], strict=True))
            given = found.get(name) or (None,) * len(pairs)
            found[name] = tuple(
                _meaning(size, pair, probes, others, multiples)
                for size, pair in zip(given, pairs, strict=True)
            )
    return found, multiples


def _probes(model: ir.Model, axes: Mapping[str, int]) -> tuple[list[str], list[dict[str, int]]]:
    """The names of sizes that are no lengths, and two sets of numbers; none for too many names."""
    timed = {
        str(value.shape[axes[str(value.name)]])
        for value in model.graph.inputs
        if str(value.name) in axes and value.shape is not None
    }
    names = named_sizes(model)
    others = [name for name in names if name not in timed]
    if len(others) > len(_PRIMES[0]):
        return others, []
    most = _most_frames(model)
    frames = next((n for n in _FRAMES if 2 * n <= most), _FRAMES[0])
    return others, [
        dict(zip(others, primes, strict=False)) | {name: length for name in names if name in timed}
        for primes, length in zip(_PRIMES, (frames, 2 * frames), strict=True)
    ]


def _most_frames(model: ir.Model) -> float:
    """A bound of sequences: fixed tables have a row for each frame, and a length cuts them."""
    most = math.inf
    for node in model.graph:
        if is_standard(node, "Slice") and len(node.inputs) > 2:
            table = constant_array(node.inputs[0])
            if table is not None and table.ndim and constant_array(node.inputs[2]) is None:
                axes = constant_array(optional_input(node, 3))
                cut = range(table.ndim) if axes is None else np.ravel(axes)
                most = min(most, max(table.shape[axis] for axis in cut))
    return most


def decide_branches(model: ir.Model, axes: Mapping[str, int]) -> list[ir.Node]:
    """Let each If that sizes decide have the condition of long sequences; returns these nodes."""
    branches = [node for node in model.graph if is_if(node)]
    conditions = {
        node: node.inputs[0] for node in branches if constant_array(node.inputs[0]) is None
    }
    probes = _probes(model, axes)[1] if conditions else []
    if not probes:
        return []
    (_, first), (_, second) = (_with_numbers(model, probe) for probe in probes)
    names, decided = Names(model), []
    for node, condition in conditions.items():
        assert condition is not None
        one, other = first.get(str(condition.name)), second.get(str(condition.name))
        if one is not None and other is not None and np.array_equal(one, other):
            name = names.fresh(f"{condition.name}_decided")
            node.replace_input_with(0, add_constant(model, name, one))
            decided.append(node)
    return decided


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


def _with_numbers(model: ir.Model, numbers: Mapping[str, int]) -> tuple[Shapes, Constants]:
    """The sizes of all values, and the constants that these numbers make of them."""
    numbered = model.clone()
    for value in numbered.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape(
                numbers[str(size.value)] if isinstance(size, ir.SymbolicDim) else size
                for size in value.shape
            )
    for value in (value for node in numbered.graph for value in node.outputs):
        value.shape = None
    infer_shapes(numbered)
    while constant_folding(numbered):
        infer_shapes(numbered)
    known = {
        name: array
        for name, value in numbered.graph.initializers.items()
        if name not in model.graph.initializers and (array := constant_array(value)) is not None
    }
    return {n: a.shape for n, a in known.items()} | infer_sizes(numbered), known


def _store_constants(
    model: ir.Model, known: tuple[Constants, Constants], saturated: Collection[str]
) -> None:
    """Store the few elements that shapes give, and that are the same for all numbers."""
    names, of_sizes = Names(model), set[str]()
    for node in tuple(model.graph):
        if len(node.outputs) != 1 or not _is_of_sizes(node, of_sizes, saturated):
            continue
        (value,) = node.outputs
        of_sizes.add(str(value.name))
        one, other = (constants.get(str(value.name)) for constants in known)
        if one is None or other is None or one.size > _MOST_ELEMENTS:
            continue
        if np.array_equal(one, other):
            store_constant(model, names, value, one)
            discard(node)
    dead_code(model)


def _is_of_sizes(node: ir.Node, of_sizes: Collection[str], saturated: Collection[str]) -> bool:
    """Whether a result follows from shapes by arithmetic that does the same for all sizes."""
    if is_standard(node, "Shape"):
        return not any(str(value.name) in saturated for value in node.inputs if value is not None)
    if not _is_even(node):
        return False
    moves = facts_of(node.op_type, node.domain).moves
    # A range up to a size ends at the end of an axis, however long the sequence is.
    free = sources(node) if moves and node.op_type not in _BY_SIZES else node.inputs
    return (moves or node.op_type in _OF_SIZES) and all(
        constant_array(value) is not None or (value in free and str(value.name) in of_sizes)
        for value in node.inputs
        if value is not None
    )


def _is_even(node: ir.Node) -> bool:
    """Whether arithmetic does not tell short sequences from long ones, as `7 // length` does."""
    numbers = [constant_array(value) for value in node.inputs]
    if node.op_type == "Div":
        return numbers[0] is None or numbers[1] is not None
    if node.op_type == "Equal":
        return any(number is not None and bool((number < 0).all()) for number in numbers)
    return True


def _saturated(
    model: ir.Model, dims: tuple[Shapes, Shapes], known: tuple[Constants, Constants]
) -> set[str]:
    """Values that are as they are for long sequences only: 7 of the last frames, if there are 7.

    dims: the sizes of all values for two lengths; known: the constants that these make.
    """
    found = set[str]()
    for node in model.graph:
        read = [str(value.name) for value in node.inputs if value is not None]
        cuts = _cuts_off(node, dims, known) if node.op_type == "Slice" else _levels_off(node, known)
        if cuts or not found.isdisjoint(read):
            found.update(str(value.name) for value in node.outputs)
    return found


def _levels_off(node: ir.Node, known: tuple[Constants, Constants]) -> bool:
    """Whether arithmetic that may tell long sequences from short ones is the same for two lengths.

    As a minimum is, or a quotient by the length.
    """
    moves = facts_of(node.op_type, node.domain).moves
    if moves or (_is_even(node) and node.op_type in {*_OF_SIZES, "Shape"}):
        return False
    one, other = known
    read = [str(value.name) for value in node.inputs if value is not None]
    made = [str(value.name) for value in node.outputs if str(value.name) in one]
    return any(name in other and np.array_equal(one[name], other[name]) for name in made) and any(
        not np.array_equal(one[name], other[name]) for name in read if name in one and name in other
    )


def _cuts_off(
    node: ir.Node, dims: tuple[Shapes, Shapes], known: tuple[Constants, Constants]
) -> bool:
    """Whether a Slice takes as much of two lengths: but for the first or last frame, which is."""
    (read, longer), (made, more) = (
        [shapes.get(str(value.name), ()) for shapes in dims]
        for value in (*sources(node), *node.outputs)
        if value is not None
    )
    axes = enumerate(zip(read, longer, made, more, strict=False))
    return any(
        one != other
        and size == same
        and not (size == 1 and _is_an_end(node, (axis, len(read)), one, known))
        for axis, (one, other, size, same) in axes
    )


def _is_an_end(
    node: ir.Node,
    place: tuple[int, int],
    length: int | str | None,
    known: tuple[Constants, Constants],
) -> bool:
    """Whether the single frame that a Slice takes of `length` is the first or the last one.

    place: the axis, and how many there are.
    """
    named = constant_array(optional_input(node, 3))
    value = optional_input(node, 1)
    starts = constant_array(value)
    if starts is None and value is not None:
        starts = known[0].get(str(value.name))
    if starts is None or not isinstance(length, int):
        return True
    axes = range(starts.size) if named is None else np.ravel(named).tolist()
    axis, rank = place
    begins = {n % rank: start for n, start in zip(axes, np.ravel(starts).tolist(), strict=False)}
    return begins.get(axis, 0) in (0, -1, length - 1)


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
