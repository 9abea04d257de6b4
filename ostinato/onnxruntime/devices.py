"""A session's answers about devices and tuning: there is the CPU, and nothing to tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.onnxruntime import absent
from ostinato.onnxruntime.logs import LOGGER
from ostinato.onnxruntime.values import OrtAllocatorType, OrtMemoryInfo, OrtMemType, OrtValue


class OfDevices:
    """The methods of onnxruntime's session that concern devices."""

    def get_inputs(self) -> Sequence[Any]:
        raise NotImplementedError

    def get_outputs(self) -> Sequence[Any]:
        raise NotImplementedError

    @property
    def _sess(self) -> OfDevices:
        """The native session that programs expect behind the one of Python."""
        return self

    @property
    def inputs_meta(self) -> Sequence[Any]:
        """What programs read in place of `get_inputs()`."""
        return self.get_inputs()

    @property
    def outputs_meta(self) -> Sequence[Any]:
        """What programs read in place of `get_outputs()`."""
        return self.get_outputs()

    # The names of the session of Python; those above are of the native one.
    _inputs_meta, _outputs_meta = inputs_meta, outputs_meta

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The place of each input: the memory of the CPU."""
        return [_cpu() for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The place of each output: the memory of the CPU."""
        return [_cpu() for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[None]:
        """The device of each input, None as no provider comes from a library."""
        return [None for _ in self.get_inputs()]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        """The nodes of each provider; nothing is divided among providers."""
        return []

    def get_tuning_results(self) -> list[Any]:
        """Nothing is tuned while running."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Have no effect: nothing is tuned while running."""
        LOGGER.info("set_tuning_results has no effect: nothing is tuned while running")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Have no effect: they are options of other providers."""
        LOGGER.info("set_ep_dynamic_options has no effect: they are for other providers")

    def release_captured_graph(self, *_: Any) -> None:
        """Have no effect: graphs are captured on GPUs."""

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, *_: Any, **__: Any
    ) -> OrtValue:
        """A value of this shape, whose elements are not set."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type)

    def run_with_ortvaluevector(self, *_: Any, **__: Any) -> None:
        """Raise `NotImplemented`: `run_with_ort_values` takes the same values by name."""
        absent.refuse("run_with_ortvaluevector", "use run_with_ort_values")


def _cpu() -> OrtMemoryInfo:
    kind = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    return OrtMemoryInfo("Cpu", kind, 0, OrtMemType.DEFAULT)
