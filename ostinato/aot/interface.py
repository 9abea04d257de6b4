"""The C interface of a compiled model: tensors, states, sizes, messages.

`declared` finds it from the compiled function; `header` prints it, `library_ir` makes its code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from ostinato.aot.identifiers import plain, unique
from ostinato.codegen.artifact import UNKNOWN_RANK, Argument, Artifact
from ostinato.element_types import numpy_dtype
from ostinato.runtime.states import Pair
from ostinato.sizes.dims import MEMORY, SPARE
from ostinato.stages.stage import NO_ROOM

Array = np.ndarray[Any, Any]

_C_TYPES = {"float32": "float", "float64": "double"}
# Parameters of the functions beside sizes and tensors.
_PARAMETERS = ("object", "memory", "bytes", "weights", "weights_bytes", "code", "index", "sizes")

# Inputs of a program for growing states, by the name of the axis: how many rows fit in, how many
# there may be, and, a state itself, how many there are; of an input as long as states are after the
# step how long it is.
CAPACITY, LIMIT, LENGTH, EXTENT = "capacity of ", "limit of ", "length of ", "extent of "

ERRORS = {
    "NULL": "an argument is NULL",
    "ALIGNMENT": "memory is not aligned as it must be",
    "MEMORY": "the memory is too small for these sizes",
    "SIZE": "a size is too large or contradicts another one",
    "OVERLAP": "an output shares memory with another argument",
    "OBJECT": "no object of this model, or one that was destroyed",
    "SAVED": "no saved state of this model and these sizes, or a damaged one",
    "WEIGHTS": "not the weights of this build, or damaged ones",
    "HEAP": "the system has no memory left",
}
"""Errors of the interface itself; the code of the first is -1, of the next -2, and so on."""


def error(kind: str) -> int:
    """The code of an error of `ERRORS`."""
    return -1 - list(ERRORS).index(kind)


@dataclass(frozen=True)
class Tensor:
    """An input or output.

    name: as in the model. shape: sizes, names of run-time dimensions, or expressions of them.
    c_type, item_bytes: of an element; types that C lacks are integers that hold their bits.
    dims: the identifiers of run-time dimensions, numbers for others; None for expressions.
    """

    name: str
    identifier: str
    dtype: str
    shape: tuple[int | str, ...]
    c_type: str
    item_bytes: int
    dims: tuple[int | str | None, ...]

    @property
    def described(self) -> str:
        """`float32[T, 1, 64]`."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def elements(self) -> int | None:
        """The number of elements, where it is known beforehand."""
        count = 1
        for size in self.shape:
            if not isinstance(size, int):
                return None
            count *= size
        return count


@dataclass(frozen=True)
class State:
    """An input and an output, by position, that an object keeps for its steps.

    initial: the value before the first step, None for zeros; an axis of size 1 stands for any size.
    buffers: 2 that take turns, or 1 that a step changes in place.
    """

    read: int
    written: int
    initial: Array | None
    buffers: int


@dataclass(frozen=True)
class GrowingState:
    """Memory of an object for the rows of a state that steps only append to.

    name: of the state. written: the position of the output that is this memory.
    """

    name: str
    written: int


@dataclass(frozen=True)
class Size:
    """A number that a call is planned for.

    kind: "state": a dimension of a state, the same in all steps of an object; "capacity": how many
        rows of growing states an object has room for; "call": another dimension; "value": an
        element of an input; "spare": bytes for what nobody knows beforehand.
    symbol: its place in the function's table, None where no code asks for it.
    source: of a "value", the position of the input and of the element.
    """

    name: str
    identifier: str
    kind: Literal["state", "capacity", "call", "value", "spare"]
    symbol: int | None
    source: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Interface:
    """The C interface of a model.

    name: the prefix of all functions. title: of the model, for people.
    growing: states that steps append to; a library that has some has no `run`.
    sizes: in the order in which functions take them.
    own_sizes: positions of the inputs that are sizes of the object, and the places of these.
    checks: the model's own; the code of the first is 1.
    guards: those checks that exclude sizes this build was not made for.
    shapes: as `Artifact` has them.
    own_memory: the symbol whose value is the memory of the machine, if any.
    fingerprint: of the model and its states. constant_bytes: of the weights.
    """

    name: str
    title: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    states: tuple[State, ...]
    growing: tuple[GrowingState, ...]
    sizes: tuple[Size, ...]
    own_sizes: tuple[tuple[int, int], ...]
    checks: tuple[str, ...]
    guards: tuple[str, ...]
    symbols: int
    shapes: tuple[tuple[int, int], ...]
    own_memory: int | None
    weights_in_file: bool
    constant_bytes: int
    fingerprint: int

    @property
    def prefix(self) -> str:
        """The prefix of constants."""
        return self.name.upper()

    @property
    def full(self) -> dict[str, int]:
        """The checks that fail where a step adds more rows than fit in, by a constant's name."""
        codes = {text: code for code, text in enumerate(self.checks, 1)}
        found = {}
        for size in self.sizes:
            if size.kind == "capacity":
                axis = size.name.removeprefix(CAPACITY)
                name = f"{self.prefix}_FULL{size.identifier.removeprefix(plain(CAPACITY))}"
                found[name] = codes[f"the rows of axis {axis!r} {NO_ROOM}"]
        return found

    @property
    def max_rank(self) -> int:
        """The highest rank of a tensor, at least 1."""
        return max([1, *(len(t.shape) for t in (*self.inputs, *self.outputs))])

    @property
    def places(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The inputs and outputs, by position, that `run` takes, and `step` where there is one."""
        every = tuple(range(len(self.inputs))), tuple(range(len(self.outputs)))
        step = self.step_inputs, self.step_outputs
        if not self.states:
            return {"run": every}
        return {"step": step} if self.growing else {"run": every, "step": step}

    @property
    def shown(self) -> tuple[tuple[str, Tensor], ...]:
        """Functions that show memory of states, and what lies there: values, and rows that grow."""
        values = [self.inputs[state.read] for state in self.states]
        rows = [self.outputs[state.written] for state in self.growing]
        parts = (("state", values), ("rows", rows))
        return tuple((f"{kind}_{t.identifier}", t) for kind, tensors in parts for t in tensors)

    @property
    def told_inputs(self) -> tuple[int, ...]:
        """Positions of the inputs that a program knows: all that are no sizes of the object."""
        own = {place for place, _ in self.own_sizes}
        return tuple(i for i in range(len(self.inputs)) if i not in own)

    @property
    def step_inputs(self) -> tuple[int, ...]:
        """Positions of the inputs that are neither states nor sizes of the object."""
        read = {state.read for state in self.states}
        return tuple(i for i in self.told_inputs if i not in read)

    @property
    def step_outputs(self) -> tuple[int, ...]:
        """Positions of the outputs that are no states."""
        written = {state.written for state in self.states}
        written |= {state.written for state in self.growing}
        return tuple(i for i in range(len(self.outputs)) if i not in written)

    @property
    def run_sizes(self) -> tuple[Size, ...]:
        """The sizes that `run` takes; it finds values in the inputs."""
        return tuple(size for size in self.sizes if size.kind in ("state", "call"))

    @property
    def step_sizes(self) -> tuple[Size, ...]:
        """The sizes that `step` takes."""
        return tuple(size for size in self.sizes if size.kind == "call")

    @property
    def has_plain_outputs(self) -> bool:
        """Whether the shape of every output is spelled out."""
        return all(None not in tensor.dims for tensor in self.outputs)


def declared(
    name: str,
    title: str,
    artifact: Artifact,
    pairs: Sequence[Pair],
    initial: Mapping[str, Array],
    weights_in_file: bool,
    identity: str,
    kept: Sequence[Pair] = (),
    shapes: Mapping[str, Sequence[int | str]] = MappingProxyType({}),
) -> Interface:
    """The interface of a compiled function.

    pairs, initial: its states and their first values. kept: those that grow, for which it was
    compiled. identity: text that is another one for every model, whatever the target. shapes: what
    the model says of its outputs.
    """
    artifact = _with_capacities(artifact, kept)
    arguments = (*artifact.inputs, *artifact.outputs)
    sizes = _sizes(name, artifact, pairs, kept)
    taken = (*_PARAMETERS, name, *(size.identifier for size in sizes))
    identifiers = unique([argument.name for argument in arguments], taken)
    dims: dict[int | str, str] = {s.name: s.identifier for s in sizes if s.kind in DIMENSIONS}
    inner = [name for name in artifact.symbols if name not in {size.name for size in sizes}]
    told = [_with_names(argument, inner, dims, shapes) for argument in arguments]
    tensors = [_tensor(a, i, dims) for a, i in zip(told, identifiers, strict=True)]
    count = len(artifact.inputs)
    states = [
        State(
            pair.read,
            pair.written,
            _unless_zero(initial.get(pair.name)),
            buffers=1 if artifact.keeps(pair.read, pair.written) else 2,
        )
        for pair in pairs
    ]
    written = [argument.name for argument in artifact.outputs]
    symbols, report = list(artifact.symbols), artifact.report
    return Interface(
        name=name,
        title=title,
        inputs=tuple(tensors[:count]),
        outputs=tuple(tensors[count:]),
        states=tuple(states),
        growing=tuple(GrowingState(p.name, written.index(p.output.name)) for p in kept),
        sizes=sizes,
        own_sizes=tuple(_own_sizes(artifact, sizes)),
        checks=tuple(report.get("checks", ())),
        guards=tuple(report.get("assumptions", ())),
        symbols=len(symbols),
        shapes=artifact.shapes,
        own_memory=symbols.index(MEMORY) if MEMORY in symbols else None,
        weights_in_file=weights_in_file,
        constant_bytes=len(artifact.constants),
        fingerprint=_fingerprint(artifact, states, identity),
    )


DIMENSIONS = ("state", "capacity", "call")
"""Kinds of sizes that are dimensions, which go by the model's name."""


def _with_capacities(artifact: Artifact, kept: Sequence[Pair]) -> Artifact:
    """The same with memory of growing states as long as "capacity of N" rows of their axis N."""
    capacities = {name for name in (a.name for a in artifact.inputs) if name.startswith(CAPACITY)}
    pairs = {pair.output.name: pair.input.shape for pair in kept}

    def named(argument: Argument) -> Argument:
        declared_shape = pairs.get(argument.name)
        if declared_shape is None:
            return argument
        rows = [n for n in declared_shape if n not in argument.shape]
        (name,) = (CAPACITY + str(n) for n in rows if CAPACITY + str(n) in capacities)
        shape = tuple(
            n if isinstance(n, int) or n in declared_shape else name for n in argument.shape
        )
        return replace(argument, shape=shape)

    return replace(artifact, outputs=tuple(map(named, artifact.outputs)))


def _sizes(
    library: str, artifact: Artifact, pairs: Sequence[Pair], kept: Sequence[Pair]
) -> tuple[Size, ...]:
    places = {name: place for place, name in enumerate(artifact.symbols)}
    grown = {pair.output.name for pair in kept}
    memory = [argument for argument in artifact.outputs if argument.name in grown]
    states = [*(pair.input for pair in pairs), *memory]
    own = {d for argument in states for d in argument.shape if isinstance(d, str)}
    dims = dict.fromkeys(d for a in artifact.inputs for d in a.shape if isinstance(d, str))
    rows, values = [], []
    for position, names in artifact.values:
        name = artifact.inputs[position].name
        if kept and name.startswith(CAPACITY):
            rows.append((name, names[0]))
        else:
            values += [(symbol, (position, i)) for i, symbol in enumerate(names)]
    spare = [SPARE] if SPARE in places else []
    named = [*dims, *(name for name, _ in rows)]
    spelled = [*named, *(_value_name(artifact.inputs[p], i) for _, (p, i) in values)]
    identifiers = iter(unique([*spelled, *("spare_bytes" for _ in spare)], (*_PARAMETERS, library)))
    found = [
        Size(dim, next(identifiers), "state" if dim in own else "call", places.get(dim))
        for dim in dims
    ]
    found += [Size(name, next(identifiers), "capacity", places[symbol]) for name, symbol in rows]
    found += [Size(s, next(identifiers), "value", places[s], source) for s, source in values]
    found += [Size(SPARE, next(identifiers), "spare", places[SPARE]) for _ in spare]
    return tuple(found)


def _own_sizes(artifact: Artifact, sizes: Sequence[Size]) -> Iterator[tuple[int, int]]:
    """The inputs that say how many rows there is room for, and how many there may be: as many."""
    places = {size.name: i for i, size in enumerate(sizes) if size.kind == "capacity"}
    for position, argument in enumerate(artifact.inputs):
        name = re.sub(f"^{LIMIT}", CAPACITY, argument.name)
        if name in places:
            yield position, places[name]


def _with_names(
    argument: Argument,
    inner: Sequence[str],
    dims: Container[int | str],
    shapes: Mapping[str, Sequence[int | str]],
) -> Argument:
    """The same with the model's names, or `?`, for sizes of which only the compiler has one.

    inner: names that the compiler made. dims: those of sizes that functions take.
    """
    declared_shape = shapes.get(argument.name, ())
    names = declared_shape if len(declared_shape) == len(argument.shape) else argument.shape

    def told(size: int | str, name: int | str) -> int | str:
        if isinstance(size, int) or not any(symbol in size for symbol in inner):
            return size
        is_told = isinstance(name, str) and name not in dims and name not in (size, *UNKNOWN_RANK)
        return name if is_told else "?"

    return replace(argument, shape=tuple(map(told, argument.shape, names)))


def _value_name(argument: Argument, element: int) -> str:
    return f"{argument.name}_{element}" if argument.shape else f"{argument.name}_value"


def _tensor(argument: Argument, identifier: str, dims: Mapping[int | str, str]) -> Tensor:
    dtype = numpy_dtype(argument.dtype)
    return Tensor(
        argument.name,
        identifier,
        argument.dtype,
        argument.shape,
        c_type(dtype),
        dtype.itemsize,
        tuple(d if isinstance(d, int) else dims.get(d) for d in argument.shape),
    )


def c_type(dtype: np.dtype[Any]) -> str:
    """The type of C that holds an element."""
    if dtype.kind in "iu" and dtype.isbuiltin == 1:
        return f"{dtype.name}_t"
    return _C_TYPES.get(dtype.name, f"uint{8 * dtype.itemsize}_t")


def _unless_zero(value: Array | None) -> Array | None:
    return None if value is None or not value.tobytes().strip(b"\0") else value


def _fingerprint(artifact: Artifact, states: Sequence[State], identity: str) -> int:
    """Of what decides whether a saved state means the same to another build, of any target."""
    shapes = [(artifact.inputs[s.read], artifact.outputs[s.written].name) for s in states]
    text = repr([artifact.inputs, artifact.outputs, shapes, identity])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
