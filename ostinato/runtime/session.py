"""The public session: a compiled model that can be run and bound."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ostinato.codegen.artifact import UNKNOWN_RANK, Argument
from ostinato.codegen.target import require_runnable
from ostinato.errors import InputError, OptionError, OstinatoError
from ostinato.native.arguments import (
    as_buffer,
    as_input,
    as_mapping,
    as_outputs,
    bind_shapes,
    check_names,
    check_output_shape,
    describe,
    overlapping,
)
from ostinato.native.changing import NewShapes
from ostinato.native.function import GuardError, NativeFunction, Plan
from ostinato.native.memory import data_address, empty
from ostinato.native.trampoline import REFUSED
from ostinato.options import Options
from ostinato.runtime.build import require_same, without_defaults
from ostinato.runtime.call import BoundCall, deoptimising, picker
from ostinato.runtime.counterparts import missing, not_options, without_providers
from ostinato.runtime.load import load
from ostinato.runtime.uncopied import Uncopied
from ostinato.stages.flow import Flow
from ostinato.stages.notice import Notice
from ostinato.stages.report import Report, report_of
from ostinato.stages.stage import Keeping, KeptState

if TYPE_CHECKING:
    from ostinato.runtime.growing import GrowingStream
    from ostinato.runtime.pool import Pool
    from ostinato.runtime.states import Declaration, Pair
    from ostinato.runtime.stream import Stream

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class NodeArg:
    """A declared input or output.

    type: spelt like "tensor(float)", "seq(tensor(int64))" or "optional(tensor(float))".
    shape: sizes, and names of run-time dimensions; None for an unknown rank, or for no tensor.
    """

    name: str
    type: str
    shape: list[int | str] | None


class InferenceSession(Uncopied):
    """A compiled model.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model.
    options: how to compile and run; `overrides` are fields of `Options` that replace its values.
        `providers=` is taken as well, and changes nothing: there is one, the CPU.

    `run` is a pure function of its inputs, safe to call from several threads; it gives up the GIL
    when it has taken some milliseconds. An interrupt (Ctrl-C, or any handler of a signal that
    raises) ends a call soon: arrays of `out` may then be written in part, nothing else changes.
    Raises `OptionError` for an option that does not exist, and what
    compiling the model raises (`ModelError`, `UnsupportedError`, `ShapeError`).
    """

    _instead = "load the model again; the cache has its code"

    def __init__(self, model: Any, options: Options | None = None, **overrides: Any) -> None:
        self._options = _resolve(options, overrides)
        require_runnable(self._options.target)
        name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "the model"
        self._open(model, *load(model, self._options, Notice(name)))

    @classmethod
    def _loaded(
        cls, model: Any, options: Options, notice: Notice, kept: Keeping | None = None
    ) -> InferenceSession:
        """A session that tells `notice` which nodes are interpreted; `kept` as in `load`."""
        session = object.__new__(cls)
        session._options = options
        session._open(model, *load(model, options, notice, kept))
        return session

    def _open(self, model: Any, flow: Flow, from_cache: bool) -> None:
        self._flow, self._from_cache = flow, from_cache
        self._compiled = self._flow.model
        # The source for other forms of the model: with overridden initializers as inputs, and with
        # states that grow.
        self._model = model if self._compiled.overridable or self._compiled.appended else None
        # The session for overridden initializers, and the initializers' own values.
        self._overriding: tuple[InferenceSession, dict[str, Any]] | None = None
        # Sessions of streams that keep growing states, by these states.
        self._keeping: dict[object, InferenceSession] = {}
        self._overridable = {argument.name: argument for argument in self._compiled.overridable}
        self._inputs = {argument.name: argument for argument in self._compiled.inputs}
        self._outputs = {argument.name: argument for argument in self._compiled.outputs}
        self._tensors = [argument for argument in self._compiled.inputs if argument.is_tensor]
        self._native = self._flow.direct()
        self._new_shapes: NewShapes | None = None
        self._set_direct(self._flow)
        self._places = {name: place for place, name in enumerate(self._outputs)}
        self._pick_inputs = picker(list(self._inputs))
        self._pick_outputs = picker(list(self._outputs))

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs in order: what `run` needs, without overridable initializers."""
        return [_node_arg(argument) for argument in self._inputs.values()]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that `run` and `bind` take as inputs too, in the model's order."""
        return [_node_arg(argument) for argument in self._overridable.values()]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs in order: what `run` computes when no name is given."""
        return [_node_arg(argument) for argument in self._outputs.values()]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        out: Mapping[str, Array] | None = None,
    ) -> list[Any]:
        """Compute the named outputs; all of them, in order, for None or an empty list.

        input_feed: an array per input. Arrays are never cast: dtype, rank, fixed dimensions and
            dimensions that share a name must agree. Strided and read-only arrays are fine, Python
            numbers and lists become the declared dtype. Arrays for initializers that may be
            overridden take their place: a program that reads them as inputs is then compiled once.
        out: arrays to write outputs into, by name: of the exact dtype and shape, C-contiguous and
            writable. They may share memory with inputs, not with each other.

        Returns C-contiguous arrays: those of `out`, and others that belong to the caller; lists for
        sequences, None for an optional without a value. Later calls use the memory of large arrays
        (128 KiB) again once nothing refers to them.
        Raises `InputError` naming the input or output, `ShapeError` when run-time dimensions
        contradict each other, `RunError` when a node fails.
        """
        direct, around = self._direct, self._around
        if (
            direct is None
            or direct.last is None
            or type(input_feed) is not dict
            or len(input_feed) != len(self._inputs)
            or (out is not None and (around is not None or type(out) is not dict))
            or (out is not None and not len(out) == len(self._outputs) == len(direct.last.dtypes))
        ):
            return self._run_checked(output_names, input_feed, out)
        names = None if output_names is None else self._selected(output_names)
        try:
            inputs: Sequence[Any] = self._pick_inputs(input_feed)
            if around is not None:
                inputs = around.arguments(inputs)
            plan = direct.recall(inputs) if direct.has_values else direct.last
            if plan is None:
                outputs = []
            elif out is None:
                outputs = [*map(plan.empty, plan.shapes, plan.dtypes)]
            else:
                outputs = [*self._pick_outputs(out)]
        except (KeyError, MemoryError, InputError):
            return self._run_checked(output_names, input_feed, out)
        code = REFUSED if plan is None else plan.call(*inputs, *outputs)
        if code == REFUSED and direct.turn_to(inputs):
            return self.run(output_names, input_feed, out)
        results: list[Any] | None = None
        new = self._new_shapes
        if code is None or _retry(direct, plan, code, inputs, outputs):
            results = direct.exact(outputs)
        elif code == REFUSED and out is None and new is not None and new.native is direct:
            results = new(inputs)
        if results is None:
            return self._run_checked(output_names, input_feed, out)
        if around is not None:
            results = around.outputs(results)
        return results if names is None else [results[self._places[n]] for n in names]

    def _run_checked(self, output_names: object, input_feed: object, out: object) -> list[Any]:
        """`run` for whatever the caller passed: new shapes, lists, strided arrays, mistakes."""
        overriding = self._with_overridden(input_feed)
        if overriding is not None:
            session, feed = overriding
            return session._run_checked(output_names, feed, out)
        names = self._selected(output_names)
        inputs = self._checked_inputs(input_feed, as_input)
        given = {} if out is None else as_outputs(out, self._outputs)
        for name, value in inputs.items():
            if given and isinstance(value, np.ndarray) and overlapping(value, given.values()):
                inputs[name] = value.copy()
        results = self._flow.run(inputs, given)
        self._set_direct(self._flow.last)
        return [results[name] for name in names]

    def bind(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None
    ) -> BoundCall:
        """A call that reads and writes the memory of these arrays each time it is called.

        Arrays must be C-contiguous and of the exact dtype; outputs writable and apart from all
        others. An output may be the array of an input of which the model replaces some rows and
        keeps the others, such as a cache of fixed length: these are stored where they are. Outputs
        that are not given are allocated; a model with fallback nodes runs once to learn their
        shapes. Each call puts a new list in the place of a sequence. Elements of inputs on which
        sizes depend must stay what they are now: the call raises `InputError` otherwise. Raises
        `InputError` naming the array, and `ShapeError` when run-time dimensions contradict each
        other.
        """
        overriding = self._with_overridden(inputs)
        if overriding is not None:
            session, feed = overriding
            return session.bind(feed, outputs)
        arrays = self._checked_inputs(inputs, lambda a, value: as_buffer("input", a, value))
        given = as_outputs({} if outputs is None else outputs, self._outputs)
        replaced = _replaced(arrays, given)
        for flow in self._flow.versions():
            try:
                return self._bound(flow, arrays, given, replaced)
            except GuardError as error:
                failed = error
        raise failed

    def _bound(
        self,
        flow: Flow,
        arrays: dict[str, Any],
        given: dict[str, Array],
        replaced: Mapping[str, str],
    ) -> BoundCall:
        """The call by a version of the model. replaced: outputs that are the array of an input."""
        native = flow.direct()
        for output, name in replaced.items():
            if native is None or not native.artifact.may_replace(name, output):
                raise _overlaps(output)
        if native is None:
            return _bind_flow(flow, arrays, given)
        plan = native.plan(
            [array.shape for array in arrays.values()], native.values([*arrays.values()])
        )
        targets = {}
        for argument, shape, dtype in zip(
            self._outputs.values(), plan.shapes, plan.dtypes, strict=True
        ):
            name = argument.name
            array = given[name] if name in given else empty(shape, dtype, f"output {name!r}")
            check_output_shape(argument, array, shape)
            targets[name] = array
        call = native.bind([*arrays.values()], [*targets.values()])
        if native.guards:
            call = deoptimising(call, native, lambda: self._run_apart(arrays, targets, replaced))
        return BoundCall(call, partial(native.failure, key=plan.key), arrays, targets)

    def _run_apart(
        self, arrays: dict[str, Any], targets: dict[str, Array], replaced: Mapping[str, str]
    ) -> None:
        """Run any version of the model, which may read an input behind what it stores."""
        apart = {name: array for name, array in targets.items() if name not in replaced}
        results = self._flow.run(arrays, apart)
        for name in replaced:
            np.copyto(targets[name], results[name])

    def stream(
        self,
        states: Declaration,
        initial: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        capacity: int | None = None,
    ) -> Stream | GrowingStream:
        """A stream: the model stepped frame by frame, with its state in an object of its own.

        states: the output of each state by its input, such as `{"h_in": "h_out"}`.
        initial: values before the first step, by input; zeros where there is none, for a state that
            is an initializer too its value. An axis of size 1 stands for a run-time dimension of
            any size.
        sizes: run-time dimensions by name. What states need and is given neither here nor by
            `initial` is taken from the first step.
        capacity: how many rows a state has room for that grows (`present = Concat(past, new)`).
            Without it the room doubles whenever it is full. See `GrowingStream`.

        Raises `InputError` naming the pair that does not fit the model, `UnsupportedError` where
        states grow and a part of the model has no native form.
        """
        from ostinato.runtime.growing import GrowingStream
        from ostinato.runtime.stream import Stream

        session, pairs, initial = self._with_states(states, initial)
        growing = session._growing(pairs, sizes)
        if growing is not None:
            return GrowingStream(growing, session._compiled, pairs, initial, sizes, capacity)
        if capacity is not None:
            raise InputError("capacity: no state of this stream grows")
        return Stream(session, pairs, initial, sizes)

    def _growing(
        self,
        states: Declaration,
        sizes: Mapping[str, int] | None = None,
        batch: str | None = None,
    ) -> InferenceSession | None:
        """The session of the model for streams that keep its growing states, if there are any.

        sizes: caches with a length among them do not grow. batch: the dimension of a pool's
        streams.
        """
        from ostinato.runtime.states import declared_pairs

        pairs = declared_pairs(states, self._compiled.inputs, self._compiled.outputs)
        named = {(pair.name, pair.output.name) for pair in pairs}
        lengths, given = self._compiled.lengths, as_mapping("sizes", sizes or {})
        fixed = {name for name, length in lengths.items() if length in given}
        appended = [pair for pair in self._compiled.appended if pair in named]
        kept = {read: written for read, written in appended if read not in fixed}
        key = frozenset(kept.items()), batch
        if kept and key not in self._keeping:
            require_same(self._model, self._compiled)
            notice = Notice("the stream's model")
            self._keeping[key] = self._loaded(
                self._model, self._options, notice, Keeping(kept, batch)
            )
        found = self._keeping.get(key)
        return None if found is None or _change(pairs, found._flow.model.kept) else found

    def pool(
        self,
        states: Declaration,
        capacity: int,
        batch: str | None = None,
        initial: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        shared: Mapping[str, Any] | None = None,
        rows: int | None = None,
    ) -> Pool:
        """A pool: up to `capacity` streams, stepped together as one batch.

        states, initial, sizes: as in `stream`; an initial value is that of a batch of 1.
        batch: the run-time dimension that becomes the streams; needed when not exactly one is in
            all states and inputs.
        shared: inputs that are the same for all streams, which need no batch dimension.
        rows: how many rows each stream has room for of a state that grows; without it there is room
            for twice as many, for all streams, whenever one is full.

        Raises `InputError` naming the state, input or output that does not fit.
        """
        from ostinato.runtime.pool import Pool

        session, pairs, initial = self._with_states(states, initial)
        return Pool(session, pairs, capacity, batch, initial, sizes, shared, rows)

    def report(self) -> Report:
        """Report what the compiler did and what it could not do; a copy, as of now.

        See `Report`: sizes are in bytes, texts in English; all of it can be written as JSON.
        """
        natives = list(self._flow.natives())
        artifacts = [native.artifact for native in natives]
        arena_bytes = sum(native.arena_bytes for native in natives)
        return report_of(
            self._compiled, artifacts, self._flow.not_native(), arena_bytes, self._from_cache
        )

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{a.name}: {describe(a)}" for a in arguments.values())
            for arguments in (self._inputs, self._outputs)
        )
        return f"<ostinato.InferenceSession ({inputs}) -> ({outputs}); {self.report().summary()}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise missing(name)

    def _set_direct(self, flow: Flow) -> None:
        """Choose what the next call of `run` calls without checks of its own."""
        for each in (flow, self._flow):
            self._direct, self._around = _checking(each), each.around
            if self._direct is not None:
                if self._new_shapes is None or self._new_shapes.native is not self._direct:
                    self._new_shapes = NewShapes(self._direct)
                return

    def _with_overridden(self, feed: object) -> tuple[InferenceSession, dict[str, Any]] | None:
        """The session that takes the initializers in `feed` as inputs, and what to feed it."""
        if not self._overridable or not isinstance(feed, Mapping):
            return None
        given = self._overridable.keys() & feed.keys()
        if not given:
            return None
        found = self._overriding
        if found is None or not given <= found[1].keys():
            require_same(self._model, self._compiled)
            # Initializers that were overridden before may be again: one session takes them all.
            earlier = () if found is None else found[1]
            changed, defaults = without_defaults(self._model, {*given, *earlier})
            found = self._overriding = InferenceSession(changed, self._options), defaults
        session, defaults = found
        return session, {**defaults, **feed}

    def _with_states(
        self, states: Declaration, initial: Mapping[str, Any] | None
    ) -> tuple[InferenceSession, Declaration, Mapping[str, Any] | None]:
        """The session that takes all states as inputs, the states, and their first values."""
        if not self._overridable:
            return self, states, initial
        from ostinato.runtime.states import named_pairs

        pairs = named_pairs(states)
        given = self._overridable.keys() & {name for name, _ in pairs}
        if not given:
            return self, pairs, initial
        require_same(self._model, self._compiled)
        changed, defaults = without_defaults(self._model, given)
        initial = {**defaults, **as_mapping("initial", {} if initial is None else initial)}
        return InferenceSession(changed, self._options), pairs, initial

    def _selected(self, output_names: object) -> list[str]:
        if output_names is None:
            return list(self._outputs)
        if isinstance(output_names, str) or not isinstance(output_names, Sequence):
            got = type(output_names).__name__
            raise InputError(f"output names: expected a list of names or None, got {got}")
        check_names("output", output_names, list(self._outputs), complete=False)
        return list(output_names) or list(self._outputs)

    def _checked_inputs(
        self, feed: object, check: Callable[[Argument, object], Any]
    ) -> dict[str, Any]:
        feed = as_mapping("inputs", feed)
        check_names("input", feed, list(self._inputs), complete=True)
        values = {name: check(argument, feed[name]) for name, argument in self._inputs.items()}
        bind_shapes(self._tensors, [values[argument.name].shape for argument in self._tensors])
        return values


def _change(pairs: Sequence[Pair], kept: Sequence[KeptState]) -> bool:
    """Whether states that do not grow change with the rows of those that do."""
    names, lengths = {state.input for state in kept}, {state.length for state in kept}
    others = [pair.input for pair in pairs if pair.name not in names]
    return any(not lengths.isdisjoint(map(str, other.shape)) for other in others)


def _retry(
    direct: NativeFunction,
    plan: Plan | None,
    code: int,
    inputs: Sequence[Any],
    outputs: Sequence[Array],
) -> bool:
    """Call again on readable copies of `inputs` where `code` refused them; whether that succeeded.

    False where checked inputs or another program may do: inputs that are no arrays, or a guard that
    failed. Raises any other failure of the call.
    """
    if plan is None:
        return False
    result: int | None = code
    if code == REFUSED:
        copies = direct.readable(plan, inputs)
        if copies is not None:
            result = plan.call(*copies, *outputs)
    if result is None:
        return True
    failure = direct.failure(result, plan.key) if result > 0 else None
    if failure is not None and not isinstance(failure, GuardError):
        raise failure
    return False


def _checking(flow: Flow) -> NativeFunction | None:
    """The function whose own checks suffice to call it with whatever `run` is given."""
    native = flow.whole() if flow.around is None else flow.around.native
    return native if native is not None and native.has_direct_dtypes else None


def _resolve(options: Options | None, overrides: Mapping[str, Any]) -> Options:
    if options is not None and not isinstance(options, Options):
        raise not_options(options)
    overrides = without_providers(overrides)
    valid = [field.name for field in dataclasses.fields(Options)]
    for name in overrides:
        if name not in valid:
            raise OptionError(f"unknown option {name!r}: the options are {', '.join(valid)}")
    return dataclasses.replace(options or Options(), **overrides)


def _node_arg(argument: Argument) -> NodeArg:
    is_known = argument.is_tensor and argument.shape != UNKNOWN_RANK
    return NodeArg(argument.name, argument.type, list(argument.shape) if is_known else None)


def _replaced(arrays: Mapping[str, Any], given: Mapping[str, Array]) -> dict[str, str]:
    """The outputs that are the array of an input, which they name; other overlaps are errors."""
    spans = {n: _span(array) for n, array in arrays.items() if isinstance(array, np.ndarray)}
    replaced: dict[str, str] = {}
    for output, array in given.items():
        begin, end = _span(array)
        for name, (first, last) in spans.items():
            if begin < last and first < end:
                same = array.shape == arrays[name].shape and array.dtype == arrays[name].dtype
                if output in replaced or begin != first or not same:
                    raise _overlaps(output)
                replaced[output] = name
    return replaced


def _span(array: Array) -> tuple[int, int]:
    """Where the memory of an array without gaps begins and ends."""
    begin = data_address(array)
    return begin, begin + array.nbytes


def _overlaps(name: str) -> InputError:
    return InputError(
        f"output {name!r} overlaps an input, which the model does not change row by row; bind a "
        "separate array"
    )


def _bind_flow(flow: Flow, inputs: dict[str, Any], given: Mapping[str, Array]) -> BoundCall:
    """A call of a model of several stages, or of one that computes the shapes of its outputs."""
    outputs = flow.run(inputs, given)
    tensors = {a.name: outputs[a.name] for a in flow.model.outputs if a.is_tensor}

    def run() -> None:
        outputs.update(flow.run(inputs, tensors))

    native = flow.last.whole()
    call = None if native is None else native.bind_exact([*inputs.values()], [*outputs.values()])
    if native is None or call is None:
        return BoundCall(run, lambda code: OstinatoError(f"code {code}"), inputs, outputs)
    if native.guards:
        call = deoptimising(call, native, run)
    arrays = [*inputs.values()]
    key = native.plan([array.shape for array in arrays], native.values(arrays)).key
    return BoundCall(call, partial(native.failure, key=key), inputs, outputs)
