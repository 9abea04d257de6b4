"""The common part of streams, whether or not their states grow: inputs, outputs, and their end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ostinato.errors import InputError, StreamError
from ostinato.native.arguments import (
    as_buffer,
    as_input,
    as_mapping,
    as_outputs,
    check_names,
    overlapping,
)
from ostinato.runtime.states import (
    Declaration,
    Pair,
    checked_initial,
    checked_rank,
    checked_sizes,
    declared_pairs,
    write_states,
)
from ostinato.runtime.stepper import Quick
from ostinato.runtime.uncopied import Uncopied
from ostinato.stages.stage import Array, CompiledModel

if TYPE_CHECKING:
    from ostinato.runtime.session import InferenceSession


_S = TypeVar("_S", bound="Stepped")


class Stepped(Uncopied):
    """Steps of a session's model, whose inputs and outputs that are no states are arguments.

    model: as the caller knows it. states, initial, sizes: as in `InferenceSession.stream`.
    """

    _instead = "`fork()` gives another one with its state, `save` writes the state"

    def __init__(
        self,
        session: InferenceSession,
        model: CompiledModel,
        states: Declaration,
        initial: Mapping[str, Any] | None,
        sizes: Mapping[str, int] | None,
    ) -> None:
        self._session, self._model = session, model
        self._pairs = declared_pairs(states, model.inputs, model.outputs)
        self._initial = checked_initial(initial, self._pairs)
        self._sizes = checked_sizes(sizes, model.inputs)
        names = {pair.name for pair in self._pairs}
        written = {pair.output.name for pair in self._pairs}
        self._inputs = {a.name: a for a in model.inputs if a.name not in names}
        self._outputs = {a.name: a for a in model.outputs if a.name not in written}
        self._is_closed = False
        self._quick: Quick | None = None

    def step(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> list[Any]:
        """Compute the outputs that are no states, in the model's order, and advance the states.

        feeds: an array per input that is no state, as `InferenceSession.run` takes them.
        out: arrays to write outputs into, by name, as there.

        Returns the arrays of `out`, and fresh ones that belong to the caller. A step that raises
        leaves the states as they were; one that is interrupted while it changes a state in place,
        or fails when rows of one have other places (`Gather(past, indices)`), loses it. Raises what
        `InferenceSession.run` raises, and `StreamError` for a stream that is closed, in use by
        another thread, full (`capacity`), or has lost its states.
        """
        quick = self._quick
        if quick is not None and type(feeds) is dict and len(feeds) == len(self._inputs):
            try:
                outputs = quick(feeds, out)
            except (KeyError, TypeError):
                outputs = None
            if outputs is not None:
                return outputs
        return self._step_checked(feeds, out)

    def _step_checked(self, feeds: object, out: object) -> list[Any]:
        """`step` for whatever the caller passed: new shapes, lists, strided arrays, mistakes."""
        raise NotImplementedError

    @property
    def state(self) -> Mapping[str, Array]:
        """The states by the name of their input."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the states to an .npz file, with the fingerprint of the model.

        Raises `StreamError` before a first step has told the sizes, `OSError` where the file cannot
        be written.
        """
        states = self.state
        if not states:
            raise StreamError("the states have no sizes before the first step")
        write_states(path, self._fingerprint, states)

    def close(self) -> None:
        """Free the memory of the stream; every later use of it raises `StreamError`."""
        raise NotImplementedError

    def __enter__(self: _S) -> _S:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise closed()

    def _arguments(self, feeds: object, out: object) -> tuple[dict[str, Any], dict[str, Array]]:
        """The arrays that a step reads, none of which it writes, and those that it writes."""
        inputs = self._checked(feeds, as_input)
        given = {} if out is None else as_outputs(out, self._outputs)
        for name, value in inputs.items():
            if given and isinstance(value, np.ndarray) and overlapping(value, given.values()):
                inputs[name] = value.copy()
        return inputs, given

    def _memory(self, feeds: object, outputs: object) -> tuple[dict[str, Any], dict[str, Array]]:
        """The arrays whose memory a bound step reads, and those whose memory it writes."""
        inputs = self._checked(feeds, lambda a, value: as_buffer("input", a, value))
        given = {} if outputs is None else as_outputs(outputs, self._outputs)
        for name, array in given.items():
            if overlapping(array, inputs.values()):
                raise InputError(f"output {name!r} overlaps an input; bind a separate array")
        return inputs, given

    def _checked(self, feeds: object, check: Callable[[Any, object], Any]) -> dict[str, Any]:
        self._require_open()
        feeds = as_mapping("feeds", feeds)
        for pair in self._pairs:
            if pair.name in feeds:
                raise InputError(
                    f"input {pair.name!r} is a state of this stream; set `stream.state"
                    f"[{pair.name!r}]` to change it"
                )
        check_names("input", feeds, list(self._inputs), complete=True)
        return {name: check(argument, feeds[name]) for name, argument in self._inputs.items()}

    @property
    def _fingerprint(self) -> str:
        return str(self._model.report.get("fingerprint", ""))

    def _declared(self) -> list[tuple[str, str]]:
        return [(pair.name, pair.output.name) for pair in self._pairs]

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name} <- {output}" for name, output in self._declared())
        return f"<{type(self).__name__} {pairs}{', closed' if self._is_closed else ''}>"


def as_state(pair: Pair, value: object) -> Array:
    """`value` checked; NumPy's files keep elements of types it does not know as plain bytes."""
    plain = np.dtype(f"V{pair.dtype.itemsize}")
    if isinstance(value, np.ndarray) and value.dtype == plain:
        value = value.view(pair.dtype)
    return checked_rank(pair.input, as_input(pair.input, value))


def closed() -> StreamError:
    """The error of a stream that is used after its end."""
    return StreamError("this stream is closed; make another one with `session.stream`")
