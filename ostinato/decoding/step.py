"""The step of a decoder: what its inputs and outputs are to a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from ostinato.arguments import is_one_of
from ostinato.errors import ModelError, OptionError
from ostinato.model.load import ModelLike, load_model
from ostinato.passes.normalise.portable import portable

_OLDEST_OPSET = 13
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)


@dataclass(frozen=True)
class Port:
    """An input or output: its name, its element type, and a number or a name for each axis."""

    name: str
    dtype: int
    dims: tuple[int | str, ...]

    @staticmethod
    def of(value: onnx.ValueInfoProto, kind: str) -> Port:
        """Raises `ModelError` where type or rank are not declared."""
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise ModelError(f"{kind} {value.name!r} of the step has no declared shape")
        dims = tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param
            for dim in tensor.shape.dim
        )
        return Port(value.name, tensor.elem_type, dims)


@dataclass(frozen=True)
class Step:
    """A model of one step of a decoder, and the parts that its inputs and outputs play.

    states: inputs that the outputs are given to in the next step. others: inputs that are the same
    in every step. batch: the name of the axis of rows; None where there is one row only.
    """

    model: onnx.ModelProto
    opset: int
    token: Port
    logits: Port
    states: tuple[tuple[Port, Port], ...]
    position: Port | None
    mask: Port | None
    others: tuple[Port, ...]

    @property
    def batch(self) -> str | None:
        """The first axis of the token, unless all states have one row: then it counts tokens."""
        first = self.token.dims[0] if self.token.dims else 1
        carried = [before.dims for before, _ in self.states]
        if not isinstance(first, str) or (carried and all(first not in dims for dims in carried)):
            return None
        return first

    @property
    def tokens(self) -> str | None:
        """The name of the axis along which a call takes several tokens, if it says so."""
        last = self.token.dims[-1] if self.token.dims else 1
        return last if isinstance(last, str) and last and last != self.batch else None

    def one_at_a_time(self) -> str | None:
        """Why a call takes one token only, or None where it takes several, one after the other."""
        if self.tokens is None:
            return f"token {self.token.name!r} of shape {list(self.token.dims)} is one of each row"
        for port in (*self.others, *(before for before, _ in self.states)):
            if self.tokens in port.dims:
                return f"input {port.name!r} of shape {list(port.dims)} has a part for each token"
        if self.position is None:
            return None
        named = [self.position.dims[axis] for axis in self.growing_axes(self.position)]
        if named in ([], [self.tokens]):
            return None
        return (
            f"position {self.position.name!r} of shape {list(self.position.dims)} has axes other "
            f"than that of the tokens, {self.tokens!r}"
        )

    def batch_axis(self, port: Port) -> int | None:
        """The axis of rows of an input or output."""
        return port.dims.index(self.batch) if self.batch in port.dims else None

    def growing_axes(self, port: Port) -> list[int]:
        """The axes that have neither a number nor rows: those that grow."""
        named = [axis for axis, dim in enumerate(port.dims) if isinstance(dim, str)]
        return [axis for axis in named if axis != self.batch_axis(port)]


def read_step(
    model: ModelLike,
    states: Mapping[str, str],
    token: str | None,
    logits: str | None,
    position: str | None,
    mask: str | None,
) -> Step:
    """Check a step model and the parts that its inputs and outputs are said to play."""
    proto = portable(load_model(model))
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset < _OLDEST_OPSET:
        raise OptionError(
            f"the step imports opset {opset}, expected {_OLDEST_OPSET} or newer; convert it first "
            "(onnx.version_converter)"
        )
    inputs = {value.name: Port.of(value, "input") for value in proto.graph.input}
    outputs = {value.name: Port.of(value, "output") for value in proto.graph.output}
    if not isinstance(states, Mapping):
        raise OptionError(f"states is {states!r}, expected outputs by inputs, {{'h': 'next'}}")
    _check_names(states.keys(), inputs, "input", "states")
    _check_names(states.values(), outputs, "output", "states")
    given = [name for name in (token, position, mask) if name is not None]
    _check_names(given, inputs, "input", "the call")
    taken = {*states, position, mask}
    if token is None:
        found = [p.name for p in inputs.values() if p.name not in taken and p.dtype in _INTEGERS]
        token = _only(found, "token", "inputs of integers")
    if logits is None:
        free = [p.name for p in outputs.values() if p.name not in set(states.values())]
        logits = _only(free, "logits", "outputs that are no states")
    _check_names([logits], outputs, "output", "the call")
    step = Step(
        proto,
        opset,
        inputs[token],
        outputs[logits],
        tuple((inputs[i], outputs[o]) for i, o in states.items()),
        None if position is None else inputs[position],
        None if mask is None else inputs[mask],
        tuple(port for name, port in inputs.items() if name not in {*taken, token}),
    )
    _check_types(step)
    if step.mask is not None and len(axes := step.growing_axes(step.mask)) != 1:
        raise OptionError(
            f"mask {step.mask.name!r} of shape {list(step.mask.dims)} has {len(axes)} axes that "
            "grow, expected one"
        )
    return step


def _check_names(names: Iterable[str], known: Mapping[str, Port], kind: str, where: str) -> None:
    for name in names:
        if not is_one_of(name, known):
            raise OptionError(
                f"{where} name{'s' * (where != 'states')} {name!r}, which is no {kind} of the "
                f"step; there are {', '.join(map(repr, known))}"
            )


def _only(found: Sequence[str], what: str, described: str) -> str:
    if len(found) != 1:
        raise OptionError(
            f"{what}= has to say which it is: the step has {len(found)} {described}"
            + (f" ({', '.join(map(repr, found))})" if found else "")
        )
    return found[0]


def _check_types(step: Step) -> None:
    for port, ranks, types, what in (
        (step.token, (0, 1, 2), _INTEGERS, "int64 or int32 of shape [], [rows] or [rows, 1]"),
        (
            step.logits,
            (1, 2, 3),
            _FLOATS,
            "floats of shape [tokens], [rows, tokens] or [rows, 1, tokens]",
        ),
    ):
        if len(port.dims) not in ranks or port.dtype not in types:
            raise OptionError(
                f"{port.name!r} of the step is {onnx.TensorProto.DataType.Name(port.dtype)}"
                f"{list(port.dims)}, expected {what}"
            )
    if (
        len(step.token.dims) == 2
        and step.token.dims[1] not in (1,)
        and step.token.dims[1] == step.batch
    ):
        raise OptionError(f"both axes of {step.token.name!r} have the name {step.batch!r}")
    for before, after in step.states:
        if before.dtype != after.dtype or len(before.dims) != len(after.dims):
            raise OptionError(
                f"state {before.name!r} and its next value {after.name!r} differ in type or rank"
            )
