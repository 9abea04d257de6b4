"""A stream: a model stepped frame by frame, with its state in an object of its own.

The model stays pure. A stream owns two buffers for every state; a step reads one, writes the other
and exchanges their addresses, so no state is ever copied. One that the model only stores into has
one buffer, in which it is changed. Where a step changes the shape of a state, the arrays that steps
make are the states from then on (`carried.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import OstinatoError, StreamError
from ostinato.native.arguments import as_mapping, bind_shapes, check_names, describe_array
from ostinato.native.workspace import BUSY
from ostinato.runtime.archive import Entry
from ostinato.runtime.call import BoundCall, deoptimising
from ostinato.runtime.carried import Carried
from ostinato.runtime.states import (
    ChangedShapeError,
    Declaration,
    filled,
    mismatch,
    read_states,
    resolve,
    table,
    unresolved,
)
from ostinato.runtime.stepped import Stepped, as_state, closed
from ostinato.runtime.stepper import Stepper, lost

if TYPE_CHECKING:
    from ostinato.native.function import NativeFunction
    from ostinato.runtime.session import InferenceSession

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# Steps in a row that leave the shapes of carried states, until these have memory of their own.
# Where a later one changes them, which costs some 300 us, it takes twice as many the next time.
_STEADY = 2


class Stream(Stepped):
    """Steps of a session's model whose declared states are kept from one step to the next.

    Made by `InferenceSession.stream`. A stream is used by one thread at a time; different streams
    of a session may be stepped by different threads at the same time, and a step that takes longer
    than some 20 us lets other Python threads run. Arrays that are passed to a step must not be
    written by other threads while it runs.

    Raises `InputError` for pairs, initial values and sizes that do not fit the model.
    """

    def __init__(
        self,
        session: InferenceSession,
        states: Declaration,
        initial: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(session, session._flow.model, states, initial, sizes)
        self._stepper: Stepper | None = None
        self._shapes: tuple[Shape, ...] = ()
        self._first: tuple[Shape, ...] = ()
        self._may_change = any(pair.may_change for pair in self._pairs)
        self._carried: Carried | None = None
        self._patience = _STEADY
        self._start(self._sizes, is_final=False)

    # Stepping

    def _step_checked(self, feeds: object, out: object) -> list[Any]:
        """`step` for whatever the caller passed: new shapes, lists, strided arrays, mistakes."""
        inputs, given = self._arguments(feeds, out)
        stepper = self._started(inputs)
        if stepper is not None:
            try:
                return self._step_in_place(stepper, inputs, given)
            except ChangedShapeError:
                if not self._may_change:
                    raise
        carried = self._carry()
        results = carried.step(inputs, given)
        self._quick = carried.quick
        if carried.is_steady:
            self._hold([carried.values[pair.name] for pair in self._pairs])
            self._carried = self._quick = None
        return results

    def _step_in_place(
        self, stepper: Stepper, inputs: Mapping[str, Any], given: Mapping[str, Array]
    ) -> list[Any]:
        """A step of states that keep their shape, and the shortest way to repeat it."""
        values = [*inputs.values()]
        results = stepper.run(values, self._shapes, given)
        step, names = stepper.repeated(values, self._shapes), list(self._inputs)
        self._quick = None if step is None else step.on_dicts(names, list(self._outputs))
        return results

    def bind(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Array] | None = None
    ) -> BoundCall:
        """A step that reads and writes the memory of these arrays each time it is called.

        It allocates nothing. Arrays are as in `InferenceSession.bind`, for inputs and outputs that
        are no states. Bound steps, `step` and other uses of the stream may take turns. Raises what
        `InferenceSession.bind` raises, and `StreamError` for a stream that is closed.
        """
        inputs, given = self._memory(feeds, outputs)
        stepper = self._started(inputs)
        bound = None if stepper is None else self._bound(stepper, inputs, given)
        if bound is not None:
            native, call, arrays = bound
            targets = dict(zip(self._outputs, arrays, strict=True))
            stepping = _stepping(self, inputs, targets)
            if native.guards:
                call = deoptimising(call, native, stepping)
            if self._may_change:
                call = self._while_in_place(call, stepping)
            return BoundCall(call, partial(self._failure, native), inputs, targets)
        if len(given) < len(self._outputs):
            # The shapes of outputs that no native function makes are known when they were made.
            made = self.fork().step(inputs)
            given = dict(zip(self._outputs, made, strict=True)) | given
        call = _stepping(self, inputs, given)
        return BoundCall(call, lambda code: OstinatoError(f"code {code}"), inputs, given)

    def _bound(
        self, stepper: Stepper, inputs: Mapping[str, Any], given: Mapping[str, Array]
    ) -> tuple[NativeFunction, Callable[[], int | None], list[Array]] | None:
        try:
            return stepper.bind([*inputs.values()], self._shapes, given)
        except ChangedShapeError:
            if not self._may_change:
                raise
        return None

    def _while_in_place(
        self, bound: Callable[[], int | None], stepping: Callable[[], int | None]
    ) -> Callable[[], int | None]:
        """A bound step until the memory that it was bound for is no longer that of the states."""
        stepper = self._stepper
        return lambda: bound() if self._stepper is stepper else stepping()

    def _failure(self, native: NativeFunction, code: int) -> OstinatoError:
        return closed() if code == BUSY and self._is_closed else native.failure(code)

    # The state

    def _carry(self) -> Carried:
        """Let the states be arrays that steps make, which may have other shapes."""
        if self._carried is None:
            self._patience *= 2
            self._adopt(dict(self.state))
        assert self._carried is not None
        return self._carried

    def _carries(self, arrays: Mapping[str, Array]) -> bool:
        """Whether states are carried, or have to be to become these arrays."""
        if self._stepper is None or not self._may_change:
            return self._carried is not None
        shapes = {p.name: shape for p, shape in zip(self._pairs, self._shapes, strict=True)}
        return any(array.shape != shapes[name] for name, array in arrays.items())

    def _adopt(self, values: Mapping[str, Array]) -> None:
        """Carry these states from now on."""
        names = list(self._inputs), list(self._outputs)
        self._carried = Carried(self._session._flow, self._pairs, *names, values, self._patience)
        self._stepper, self._quick, self._shapes = None, None, ()

    def _start(self, sizes: Mapping[str, int], is_final: bool = True) -> None:
        """Make the states where all their sizes are known."""
        shapes = resolve(self._pairs, sizes, self._initial, is_final)
        if shapes is None:
            return
        self._first = tuple(shapes[pair.name] for pair in self._pairs)
        self._hold([filled(pair, shapes[pair.name], self._initial) for pair in self._pairs])

    def _hold(self, values: Sequence[Array]) -> None:
        """Keep the states, which have these values, in memory of their own."""
        flow, native = self._session._flow, self._session._native
        stepper = Stepper(flow, native, self._pairs, [v.size for v in values], in_place=True)
        self._shapes = tuple(value.shape for value in values)
        for index, value in enumerate(values):
            stepper.state(index, value.shape)[...] = value
        self._stepper = stepper

    def _started(self, inputs: Mapping[str, Any]) -> Stepper | None:
        """The stepper, after a check that the inputs and the states agree about sizes.

        None where the states are carried.
        """
        tensors = [argument for argument in self._inputs.values() if argument.is_tensor]
        shapes = [inputs[argument.name].shape for argument in tensors]
        if self._stepper is None and self._carried is None:
            sizes = bind_shapes(tensors, shapes) | self._sizes
            self._start(sizes)
            if self._stepper is None:
                raise unresolved(self._pairs, sizes, self._initial)
        read = [pair.input for pair in self._pairs]
        bind_shapes([*read, *tensors], [*self._shapes_now, *shapes])
        return self._stepper

    @property
    def _shapes_now(self) -> tuple[Shape, ...]:
        return self._shapes if self._carried is None else self._carried.shapes

    @property
    def state(self) -> StreamState:
        """The states by the name of their input, to be read and set; see `StreamState`."""
        return StreamState(self)

    def reset(self) -> None:
        """Go back to the state before the first step: `initial`, and zeros.

        Raises `StreamError` for a stream that is closed, or in a step.
        """
        self._require_open()
        if self._carried is not None or self._shapes != self._first:
            self._carried = self._stepper = self._quick = None
            self._start(self._sizes, is_final=False)
        elif self._stepper is not None:
            with self._stepper.workspace.taken():
                for index, (pair, shape) in enumerate(zip(self._pairs, self._shapes, strict=True)):
                    self._stepper.state(index, shape)[...] = filled(pair, shape, self._initial)
                self._stepper.found()

    def rewind(self, rows: int) -> None:
        """Drop rows of states that grow: there are none here, so it raises `StreamError`."""
        del rows
        raise StreamError(
            "no state of this stream grows, so that it cannot be rewound: keep a fork() or a copy "
            "of `state` to go back to"
        )

    def fork(self) -> Stream:
        """Another stream that goes on from a copy of the state that this one has now.

        Raises `StreamError` for a stream that is closed, or in a step.
        """
        self._require_open()
        twin = Stream(self._session, self._declared(), self._initial, self._sizes)
        if self._carried is not None:
            twin._adopt(self._carried.values)
        elif self._stepper is not None:
            twin.state.update(self.state)
        return twin

    def close(self) -> None:
        """Free the memory of the stream; every later use of it raises `StreamError`."""
        if self._stepper is not None:
            self._stepper.workspace.close()
        self._is_closed = True
        self._stepper = self._quick = self._carried = None

    # Files

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from the state in a file that `save` wrote for the same model.

        Raises `InputError` for a file that is no such file, or that another model's stream wrote,
        and leaves the state as it was.
        """
        shapes = () if self._may_change else self._shapes
        self.state.update(read_states(path, self._fingerprint, self._entries(shapes)))

    def _entries(self, shapes: Sequence[Shape] = ()) -> dict[str, Entry]:
        """Describe each state in a file, with `shapes` or with the sizes that the model fixes."""
        declared = [pair.sizes for pair in self._pairs]
        return {
            pair.name: Entry(pair.dtype, shape)
            for pair, shape in zip(self._pairs, shapes or declared, strict=True)
        }

    # Description

    def describe(self) -> str:
        """The states as a table: input, output, shape, dtype, initial value."""
        shapes = self._shapes_now or [pair.input.shape for pair in self._pairs]
        initial = ["given" if pair.name in self._initial else "zeros" for pair in self._pairs]
        return table(self._pairs, shapes, "initial", initial)


class StreamState(Mapping[str, Array]):
    """The states of a stream by the name of their input.

    Reading gives copies, setting copies. Raises `InputError` for names, dtypes and shapes that are
    not those of the states, and `StreamError` for a stream that is closed, in a step, or whose
    sizes are not known before its first step.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[str]:
        return (pair.name for pair in self._stream._pairs)

    def __len__(self) -> int:
        return len(self._stream._pairs)

    def _place(self, name: object) -> int:
        self._stream._require_open()
        check_names("state", [name], list(self), complete=False)
        return list(self).index(str(name))

    def __getitem__(self, name: str) -> Array:
        stream, index = self._stream, self._place(name)
        if stream._carried is not None:
            return stream._carried.values[name].copy()
        if stream._stepper is None:
            if name in stream._initial:
                return stream._initial[name].copy()
            raise StreamError(
                f"state {name!r} has no size before the first step; pass `sizes` or `initial` when "
                "making the stream"
            )
        if stream._stepper.lost is not None:
            raise lost(stream._stepper.lost)
        with stream._stepper.workspace.taken():
            return stream._stepper.state(index, stream._shapes[index]).copy()

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, values: Mapping[str, Any]) -> None:
        """Set several states, or none if one of them is refused."""
        stream = self._stream
        places = {name: self._place(name) for name in as_mapping("state", values)}
        arrays = {n: as_state(stream._pairs[i], values[n]) for n, i in places.items()}
        if stream._carries(arrays):
            stream._carry().update(arrays)
            return
        if stream._stepper is None:
            known = resolve(stream._pairs, stream._sizes, stream._initial | arrays)
            if known is None:
                raise unresolved(stream._pairs, stream._sizes, stream._initial | arrays)
            read = [pair.input for pair in stream._pairs]
            sizes = bind_shapes(read, [known[argument.name] for argument in read])
            stream._start(stream._sizes | sizes)
        assert stream._stepper is not None
        for name, index in places.items():
            if arrays[name].shape != stream._shapes[index]:
                raise mismatch(stream._pairs[index].input, arrays[name], stream._shapes[index])
        stepper = stream._stepper
        kept = [pair.name for pair in stepper.replaced if pair.name not in arrays]
        if stepper.lost is not None and kept:
            raise lost(kept[0])
        with stepper.workspace.taken():
            for name, index in places.items():
                stepper.state(index, stream._shapes[index])[...] = arrays[name]
            stepper.found()

    def __repr__(self) -> str:
        if self._stream._stepper is None and self._stream._carried is None:
            return "<StreamState>"
        return repr({name: describe_array(array) for name, array in self.items()})


def _stepping(
    stream: Stream, feeds: dict[str, Any], out: dict[str, Any]
) -> Callable[[], int | None]:
    def call() -> None:
        stream._step_checked(feeds, out)

    return call
