"""Runs a native stage: plans per input shape, one arena, errors by name."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.codegen import objects
from ostinato.codegen.artifact import Argument, Artifact
from ostinato.element_types import numpy_dtype
from ostinato.errors import InputError, OstinatoError, RunError, ShapeError
from ostinato.locks import new_lock
from ostinato.native import threads as workers
from ostinato.native.abi import storage
from ostinato.native.arguments import (
    bind_shapes,
    check_output_shape,
    describe,
    describe_array,
    in_place,
)
from ostinato.native.memory import (
    LEAST_SPARE,
    Make,
    aligned,
    aligned_empty,
    data_address,
    empty,
    require_memory,
    spare_memory,
    total_memory,
)
from ostinato.native.recycled import RecycledMemory, is_large
from ostinato.native.trampoline import Callee, trampoline
from ostinato.native.workspace import BUSY, Workspace, in_use
from ostinato.records import dataclass
from ostinato.sizes.dims import MEMORY, SPARE

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# The elements of each input on which sizes depend.
Values = tuple[tuple[int, ...], ...]
# The key of a plan: the shapes of the inputs, and the elements of shape operands.
Key = tuple[tuple[Shape, ...], Values]

# Plans that are kept, for the shapes that came last; others are made again, in some 200 us.
MAX_PLANS = 64
# This many elements of eight bytes each reach as far as an address.
_MOST_ELEMENTS = 2**59
_LAYOUT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Plan:
    """All that depends on the input shapes of a call, and on the values sizes depend on.

    key: the input shapes, and these values.
    shapes, dtypes: of every output. empty: makes an array for one, given both.
    symbols: the function's table of run-time dimensions.
    call: the caller for exactly these shapes, over the arena of the function.
    """

    key: Key
    shapes: tuple[Shape, ...]
    dtypes: tuple[np.dtype[Any], ...]
    empty: Make
    symbols: Array
    arena_bytes: int
    call: Callable[..., int | None]


class GuardError(ShapeError):
    """A guard failed: the function is specialised for other sizes; the general one has to run."""


class NativeFunction:
    """A native stage linked into this process.

    cache_dir: where the object of the trampoline is kept. Raises `RunError` when the object cannot
    be linked.
    """

    def __init__(
        self,
        artifact: Artifact,
        cache_dir: str | os.PathLike[str] | None = None,
        flush_denormals: bool = False,
    ) -> None:
        self.artifact = artifact
        self.input_dtypes = [numpy_dtype(argument.dtype) for argument in artifact.inputs]
        self.output_dtypes = [numpy_dtype(argument.dtype) for argument in artifact.outputs]
        # Maps outputs to the outputs that hold their shapes.
        self._shapes = dict(artifact.shapes)
        dtypes = self.input_dtypes + self.output_dtypes
        self.has_direct_dtypes = all(storage(dtype) == dtype for dtype in dtypes)
        threads = int(artifact.report.get("threads", 1))
        more = artifact.report.get("exports", ())
        names = ("entry", "layout", *more, *workers.exports(threads))
        imports = workers.imports(threads)
        self._code = objects.load(artifact.object_code, names, imports, artifact)
        self.team = workers.Team(self._code, threads) if threads > 1 else None
        self.layout = _LAYOUT(self._code.address("layout"))
        self._constants = aligned(artifact.constants)
        self._flush_denormals = flush_denormals
        self.trampoline = trampoline(cache_dir)
        self._lock = new_lock()
        # A plan, or why there is none.
        self._plans: OrderedDict[Key, Plan | GuardError] = OrderedDict()
        # Whether sizes depend on elements of inputs.
        self.has_values = bool(artifact.values)
        # For the calls of `run`, which find them busy when one of them has given up the GIL.
        self._arena, self._workspace = aligned_empty(0), Workspace(limit=None)
        self.recycled = RecycledMemory(len(dtypes))
        self.last: Plan | None = None
        if not artifact.symbols:
            self.plan([tuple(map(int, argument.shape)) for argument in artifact.inputs])

    @property
    def can_change(self) -> bool:
        """Whether a `ChangingCall` can call it: the sizes of its inputs tell all."""
        return self.has_direct_dtypes and SPARE not in self.artifact.symbols

    @property
    def guards(self) -> Sequence[str]:
        """Sizes that its guards exclude, for which it reports `GuardError`."""
        found: Sequence[str] = self.artifact.report.get("assumptions", ())
        return found

    def address(self, name: str) -> int:
        """The address of a symbol among the "exports" of the artifact's report."""
        return self._code.address(name)

    @property
    def arena_bytes(self) -> int:
        """Size of the arena the calls of `run` share."""
        return int(self._arena.nbytes)

    def values(self, inputs: Sequence[Array]) -> Values:
        """The elements of the inputs on which sizes depend."""
        return tuple(tuple(inputs[i].reshape(-1).tolist()) for i, _ in self.artifact.values)

    def recall(self, inputs: Sequence[Any]) -> Plan | None:
        """The plan for the values in `inputs` and the shapes of the last call, if there is one.

        Nothing is checked; the plan's call refuses other shapes and types than it is made for.
        """
        last = self.last
        try:
            values = self.values(inputs)
        except (AttributeError, TypeError):
            return None
        if last is None or last.key[1] == values:
            return last
        found = self._plans.get((last.key[0], values))
        return found if isinstance(found, Plan) else None

    def turn_to(self, inputs: Sequence[Any]) -> bool:
        """Make the plan for the shapes of, and the values in, `inputs` the last one.

        Returns whether it was made before and is another one. Nothing is checked, as in `recall`.
        """
        try:
            key = tuple([array.shape for array in inputs]), self.values(inputs)
            with self._lock:
                found = self._plans.get(key)
                if not isinstance(found, Plan) or found is self.last:
                    return False
                self._plans.move_to_end(key)
                self.last = found
        except (AttributeError, TypeError):
            return False
        return True

    def readable(self, plan: Plan, inputs: Sequence[Any]) -> list[Array] | None:
        """Copies of the `inputs` that lie in memory as no call reads them, and the others.

        None where a call of `plan` refused them for another reason.
        """
        arrays = [array for array in inputs if isinstance(array, np.ndarray)]
        if len(arrays) < len(inputs) or tuple([array.shape for array in arrays]) != plan.key[0]:
            return None
        return [in_place(array, self.recycled.empty) for array in arrays]

    def plan(self, shapes: Sequence[Shape], values: Values = ()) -> Plan:
        """The plan for these input shapes and `values`, made or found; becomes `last`.

        Raises `InputError` for shapes the function does not take, `ShapeError` for sizes that make
        no sense together, `GuardError` for those that a guard excludes, and `RunError` when they
        need more memory than there is.
        """
        key = tuple(shapes), values
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                try:
                    plan = self._make_plan(*key)
                except GuardError as error:
                    # A copy, which keeps no frames alive.
                    plan = GuardError(*error.args)
                self._plans[key] = plan
                if len(self._plans) > MAX_PLANS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
            if isinstance(plan, GuardError):
                raise GuardError(*plan.args)
            self.last = plan
        return plan

    def _make_plan(self, shapes: tuple[Shape, ...], values: Values) -> Plan:
        sizes = bind_shapes(self.artifact.inputs, shapes)
        for (_, names), elements in zip(self.artifact.values, values, strict=True):
            sizes.update(zip(names, map(int, elements), strict=True))
        sizes[MEMORY] = total_memory()
        if SPARE in self.artifact.symbols:
            sizes[SPARE] = spare_memory()
        try:
            symbols, arena_bytes, output_shapes = self._within_memory(sizes)
        except GuardError:
            raise
        except ShapeError as error:
            raise ShapeError(f"{error}{self._described(str(error), sizes, values)}") from None
        if arena_bytes > self._arena.nbytes:
            # Plans hold the arena they were made for: dropping them frees the smaller one.
            # Doubling keeps that rare when every call is a little longer than the last.
            self._plans.clear()
            self._arena = aligned_empty(max(arena_bytes, 2 * self._arena.nbytes))
            self._workspace = Workspace(limit=None)
        callee = self.callee(symbols, self._arena, self._workspace)
        call = self._caller(callee, shapes, output_shapes)
        outputs = tuple(output_shapes), tuple(self.output_dtypes)
        make = self.recycled.empty if any(map(is_large, *outputs)) else np.empty
        return Plan((shapes, values), *outputs, make, symbols, arena_bytes, call)

    def _within_memory(self, sizes: dict[str, int]) -> tuple[Array, int, list[Shape]]:
        """The table of symbols, and what `_lay_out` makes of it.

        Rows that nothing bounds take what is to spare, and what is computed from them may be many
        times as large. So there is less to spare, by halves, until both fit.
        """
        while True:
            # `layout` completes the table by symbols that are defined in terms of the others.
            numbers = [sizes.get(name, 0) for name in self.artifact.symbols]
            symbols = np.array(numbers or [0], np.int64)
            try:
                return symbols, *self._lay_out(symbols)
            except RunError:
                if sizes.get(SPARE, 0) < LEAST_SPARE:
                    raise
                sizes[SPARE] //= 2

    def _caller(
        self, callee: Callee, inputs: Sequence[Shape], outputs: Sequence[Shape]
    ) -> Callable[..., int | None]:
        """The call for these shapes; the states of the callee's workspace are no arguments."""
        states = callee.workspace.states
        read, written = {s.input for s in states}, {s.output - len(inputs) for s in states}
        specs = [(storage(d), shape) for d, shape in zip(self.input_dtypes, inputs, strict=True)]
        targets = [
            (storage(d), shape) for d, shape in zip(self.output_dtypes, outputs, strict=True)
        ]
        return self.trampoline.caller(
            callee,
            [spec for i, spec in enumerate(specs) if i not in read],
            [spec for i, spec in enumerate(targets) if i not in written],
        )

    def _lay_out(self, symbols: Array) -> tuple[int, list[Shape]]:
        ranks = [len(argument.shape) for argument in self.artifact.outputs]
        table = np.zeros(1 + sum(ranks), np.int64)
        code = self.layout(data_address(symbols), data_address(table))
        if code < 0:
            # Defined symbols are called after the nodes that define them.
            names = [f"node {n.rpartition('.')[0]!r}: a size" for n in self.artifact.symbols]
            outputs = ", ".join(f"output {a.name!r}" for a in self.artifact.outputs)
            what = (*names, f"the size of {outputs} and intermediate values")[-1 - code]
            raise ShapeError(f"{what} needs more than 64 bits")
        if code:
            raise self._failed_guard(code) or ShapeError(self._message(code))
        arena_bytes, *dims = table.tolist()
        shapes = []
        for rank in ranks:
            shapes.append(tuple(dims[:rank]))
            del dims[:rank]
        size = arena_bytes
        for argument, shape, dtype in zip(
            self.artifact.outputs, shapes, self.output_dtypes, strict=True
        ):
            elements = math.prod(shape)
            if not elements or min(shape, default=0) < 0:
                _require_shape(argument, shape)
            size += elements * dtype.itemsize
        require_memory(size, self.all_values)
        return arena_bytes, shapes

    def all_values(self) -> str:
        """What takes the memory of a call, for messages."""
        what = ", ".join(f"output {argument.name!r}" for argument in self.artifact.outputs)
        return f"{what} and the values before them"

    def _described(self, text: str, sizes: Mapping[str, int], values: Values) -> str:
        """The numbers of this call: of sizes that `text` names, and of values that are sizes."""
        words = set(re.findall(r"\w+", text))
        names = [name for name in self.artifact.symbols if name in words and name in sizes]
        inputs, texts = self.artifact.inputs, [f"{name} = {sizes[name]}" for name in names]
        pairs = zip(self.artifact.values, values, strict=True)
        texts += [f"{inputs[i].name} = {list(elements)}" for (i, _), elements in pairs]
        return f" (with {', '.join(texts)})" if texts else ""

    def callee(self, symbols: Array, arena: Array, workspace: Workspace) -> Callee:
        """The function over these tables."""
        return Callee(
            self._code.address("entry"),
            symbols,
            self._constants,
            arena,
            self.team or self._code,
            self._flush_denormals,
            workspace,
        )

    def _message(self, code: int) -> str:
        checks = self.artifact.report.get("checks", ())
        return str(checks[code - 1]) if 0 < code <= len(checks) else f"run-time check {code} failed"

    def failure(self, code: int, key: Key | None = None) -> OstinatoError:
        """The error for a positive code of the compiled function, or for `BUSY`.

        key: that of the call's plan, whose sizes the error tells.
        """
        if code == BUSY:
            return in_use()
        text = self._message(code)
        failed = self._failed_guard(code)
        if failed is not None:
            return failed
        told = ""
        if key is not None:
            shapes, values = key
            told = self._described(text, bind_shapes(self.artifact.inputs, shapes), values)
        error = RunError(f"{text}{told}")
        error.has_stored = text not in self.artifact.report.get("before_stores", ())
        return error

    def _failed_guard(self, code: int) -> GuardError | None:
        message = self._message(code)
        return GuardError(message) if message in self.guards else None

    def run(self, values: Mapping[str, Any], given: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs by name from `values`, into the arrays of `given` that name one.

        Arrays of `given` are C-contiguous, writable, of the right dtype and overlap nothing; their
        shape is checked here (`InputError`).
        """
        inputs = [_checked(argument, values[argument.name]) for argument in self.artifact.inputs]
        plan = self.plan([array.shape for array in inputs], self.values(inputs))
        outputs = []
        for position, (shape, dtype) in enumerate(zip(plan.shapes, plan.dtypes, strict=True)):
            argument = self.artifact.outputs[position]
            array = None if position in self._shapes else given.get(argument.name)
            if array is None:
                array = empty(shape, dtype, f"output {argument.name!r}", plan.empty)
            else:
                check_output_shape(argument, array, shape)
            outputs.append(array)
        arrays = [*(in_place(array, self.recycled.empty) for array in inputs), *outputs]
        if not self.has_direct_dtypes:
            arrays = [array.view(storage(array.dtype)) for array in arrays]
        code = plan.call(*arrays)
        if code == BUSY:
            # Another thread is in a long call, or this is a signal handler within one.
            code = self.step(plan, aligned_empty(plan.arena_bytes), Workspace())(*arrays)
        if code is not None:
            raise self.failure(code, plan.key)
        results = self.exact(outputs)
        for position in self._shapes:
            results[position] = stored(self.artifact.outputs[position], results[position], given)
        return {a.name: array for a, array in zip(self.artifact.results, results, strict=True)}

    def exact(self, outputs: list[Array]) -> list[Array]:
        """The results in what a call has written: the shapes of some are outputs themselves."""
        if not self._shapes:
            return outputs
        results = outputs[: len(outputs) - len(self._shapes)]
        for position, place in self._shapes.items():
            results[position] = _first(outputs[position], tuple(outputs[place].tolist()))
        return results

    def step(self, plan: Plan, arena: Array, workspace: Workspace) -> Callable[..., int | None]:
        """As `Plan.call`, over another arena; the states of `workspace` are no arguments.

        arena: of at least `plan.arena_bytes`, aligned; used by nothing outside of `workspace`.
        """
        callee = self.callee(plan.symbols.copy(), arena, workspace)
        return self._caller(callee, plan.key[0], plan.shapes)

    def bound_step(
        self, plan: Plan, arena: Array, workspace: Workspace, arrays: Sequence[Array]
    ) -> Callable[[], int | None]:
        """As `step`, over the memory of the checked inputs and outputs that are no states."""
        callee = self.callee(plan.symbols.copy(), arena, workspace)
        return self.trampoline.bound(callee, arrays)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], int | None]:
        """A call over the memory of checked arrays, with an arena of its own.

        A long call gives up the GIL. The call raises `InputError` when elements on which sizes
        depend have changed since.
        """
        values = self.values(inputs)
        plan = self.plan([array.shape for array in inputs], values)
        callee = self.callee(plan.symbols.copy(), aligned_empty(plan.arena_bytes), Workspace())
        call = self.trampoline.bound(callee, [*inputs, *outputs])
        if not self.has_values:
            return call

        def checked() -> int | None:
            if self.values(inputs) != values:
                names = ", ".join(self.artifact.inputs[i].name for i, _ in self.artifact.values)
                raise InputError(
                    f"sizes depend on the elements of {names}, which have changed since this call "
                    "was bound; bind again, or call `run`"
                )
            return call()

        return checked

    def bind_exact(
        self, inputs: Sequence[Array], results: Sequence[Array]
    ) -> Callable[[], int | None] | None:
        """As `bind`, into the results of a run, of which some have shapes that runs compute.

        A call that computes other shapes raises `InputError`. None where results have all the room
        that is to spare.
        """
        if SPARE in self.artifact.symbols:
            return None
        plan = self.plan([array.shape for array in inputs], self.values(inputs))
        outputs = [*results, *([None] * len(self._shapes))]
        room = [
            empty(shape, dtype, f"output {argument.name!r}")
            if array is None or position in self._shapes
            else array
            for position, (argument, array, shape, dtype) in enumerate(
                zip(self.artifact.outputs, outputs, plan.shapes, plan.dtypes, strict=True)
            )
        ]
        step = self.bind(inputs, room)
        computed = [
            (
                self.artifact.outputs[position],
                room[position].reshape(-1),
                room[place],
                results[position],
            )
            for position, place in self._shapes.items()
        ]

        def call() -> int | None:
            code = step()
            if code is None:
                for argument, elements, sizes, target in computed:
                    check_output_shape(argument, target, tuple(sizes.tolist()))
                    np.copyto(target, elements[: target.size].reshape(target.shape))
            return code

        return call


def _first(array: Array, shape: Shape) -> Array:
    """An array of its own with the first elements of a contiguous one; that one if it has all."""
    if array.shape == shape:
        return array
    return array.reshape(-1)[: math.prod(shape)].reshape(shape).copy()


def stored(argument: Argument, exact: Array, given: Mapping[str, Array]) -> Array:
    """The output in the array that the caller gave for it, if any."""
    array = given.get(argument.name)
    if array is None:
        return exact
    check_output_shape(argument, array, exact.shape)
    np.copyto(array, exact)
    return array


def _require_shape(argument: Argument, shape: Shape) -> None:
    """NumPy wants the dimensions of an array without elements to fit in memory as well."""
    largest = math.prod(max(n, 1) for n in shape)
    if min(shape, default=0) < 0 or (0 in shape and largest > _MOST_ELEMENTS):
        raise ShapeError(f"value {argument.name!r} would have the shape {list(shape)}")


def _checked(argument: Argument, value: Any) -> Array:
    """The value as an array of the declared dtype; another stage may have made it."""
    if not isinstance(value, np.ndarray) or value.dtype != numpy_dtype(argument.dtype):
        got = describe_array(value) if isinstance(value, np.ndarray) else type(value).__name__
        raise RunError(f"value {argument.name!r}: expected {describe(argument)}, got {got}")
    return np.asarray(value)
