"""IOBinding: arrays that runs read and write in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import OstinatoError
from ostinato.native.memory import data_address
from ostinato.onnxruntime.errors import unprefixed
from ostinato.onnxruntime.values import OrtDevice, OrtValue, dtype_of, held, memory_at

if TYPE_CHECKING:
    from ostinato.onnxruntime.session import InferenceSession
    from ostinato.runtime.call import BoundCall

Array = np.ndarray[Any, Any]


class IOBinding:
    """The inputs and outputs of a session's runs.

    Inputs share the memory of what is bound. An output is written into the memory that is bound
    for it, and into a fresh array where none is. As long as nothing is bound anew and all memory is
    given, a run is one bound call (`ostinato.InferenceSession.bind`). Memory of an input may be
    that of an output as well, such as a cache of which the model replaces some rows.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._names = {argument.name for argument in session.get_inputs()}
        self._names |= {argument.name for argument in session.get_overridable_initializers()}
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, OrtValue] = {}
        self._call: Callable[[], None] | None = None

    @property
    def _iobinding(self) -> IOBinding:
        """The native object that programs expect behind the one of Python."""
        return self

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Read an input from an array. Raises `RuntimeError` for what is none, or has no input."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError("Unable to create OrtValue from the given python object")
        self._bind_input(name, np.asarray(arr_on_cpu, order="C"))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Read an input from memory at an address, which the caller keeps alive."""
        OrtDevice(device_type, device_id).require_cpu()
        self._bind_input(name, memory_at(buffer_ptr, shape, dtype_of(element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read an input from an OrtValue."""
        self._bind_input(name, held(f"input {name!r}", ortvalue))

    def _bind_input(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self._inputs[name], self._call = value, None

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Write an output into memory at an address, or into a fresh array for None."""
        array = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise ValueError(
                    "`element_type` and `shape` are to be provided if pre-allocated memory is "
                    "provided"
                )
            array = memory_at(buffer_ptr, shape, dtype_of(element_type))
        OrtDevice(device_type, device_id).require_cpu()
        self._bind_output(name, array)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output into an OrtValue."""
        held(f"output {name!r}", ortvalue)
        self._bind_output(name, ortvalue.numpy())

    def _bind_output(self, name: str, array: Array | None) -> None:
        self._outputs[name], self._call = array, None
        if array is not None:
            self._results[name] = OrtValue(array)

    def run(self) -> None:
        """Run the session over what is bound; raises `RuntimeError`, as onnxruntime does here."""
        if self._call is not None:
            try:
                self._call()
                return
            except OstinatoError:
                # Elements on which sizes depend may have changed in place: bind again, which says
                # what is wrong otherwise.
                self._call = None
        if not self._outputs:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        try:
            call = self._bound()
            if call is None:
                self._run_fresh()
                return
            call()
            self._results = {name: OrtValue(call.outputs[name]) for name in self._outputs}
            if all(array is not None for array in self._outputs.values()):
                self._call = call
        except (OstinatoError, ValueError) as error:
            raise RuntimeError(f"Error in execution: {unprefixed(error)}") from error

    def _bound(self) -> BoundCall | None:
        """The call over what is bound, if all outputs are wanted.

        None unless all of them have memory, or some that of an input: a run has memory of its own
        for intermediate values, which a call would take anew.
        """
        compiled = self._session._compiled
        arrays = {n: a for n, a in self._outputs.items() if a is not None}
        is_whole = len(self._outputs) == len(self._session.get_outputs())
        if compiled is None or not is_whole:
            return None
        if len(arrays) < len(self._outputs) and not self._is_shared(arrays):
            return None
        try:
            return compiled.bind(self._inputs, arrays)
        except OstinatoError:
            return None  # a run says what is wrong, or goes another way

    def _is_shared(self, arrays: Mapping[str, Array]) -> bool:
        """Whether one of the arrays is that of an input."""
        read = {data_address(a) for a in self._inputs.values() if isinstance(a, np.ndarray)}
        return any(data_address(array) in read for array in arrays.values())

    def _run_fresh(self) -> None:
        names = list(self._outputs)
        results = self._session.run(names, self._inputs)
        self._results = {}
        for name, result in zip(names, results, strict=True):
            target = self._outputs[name]
            if target is None:
                self._results[name] = OrtValue(result)
                continue
            if target.shape != result.shape or target.dtype != result.dtype:
                raise ValueError(
                    f"Got invalid dimensions for output: {name} Got: {list(target.shape)} "
                    f"{target.dtype} Expected: {list(result.shape)} {result.dtype}"
                )
            target[...] = result
            self._results[name] = OrtValue(target)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        return self.get_outputs()

    def get_outputs(self) -> list[OrtValue]:
        """The outputs in the order in which they were bound: memory, or those of the last run."""
        return [self._results[name] for name in self._outputs if name in self._results]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays of their own."""
        values = [value._value for value in self.get_outputs()]
        return [value.copy() if isinstance(value, np.ndarray) else value for value in values]

    def clear_binding_inputs(self) -> None:
        self._inputs, self._call = {}, None

    def clear_binding_outputs(self) -> None:
        self._outputs, self._results, self._call = {}, {}, None

    def synchronize_inputs(self) -> None:
        """Have no effect: memory of the CPU is always there."""

    def synchronize_outputs(self) -> None:
        """Have no effect: memory of the CPU is always there."""
