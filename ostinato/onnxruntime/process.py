"""Functions of onnxruntime that concern the whole process; most have nothing to do here."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from ostinato.onnxruntime.logs import LOGGER
from ostinato.version import __version__ as _own_version

# The release whose interface this is: programs compare it.
__version__ = "1.32.0"

version, package_name, cuda_version = __version__, "onnxruntime", ""

PROVIDERS = ["CPUExecutionProvider"]
# Those that builds of onnxruntime have, by the beginning of their names.
_ALL = (
    *("Tensorrt", "CUDA", "MIGraphX", "OpenVINO", "Dnnl", "VitisAI", "QNN", "Nnapi", "VSINPU"),
    *("Js", "CoreML", "Dml", "Rknpu", "WebNN", "WebGpu", "Xnnpack", "CANN", "Azure", "CPU"),
)
# The seed of sessions that are made from now on.
seed = 0


def get_available_providers() -> list[str]:
    """The CPU, the one provider there is."""
    return [*PROVIDERS]


def get_all_providers() -> list[str]:
    """The providers that builds of onnxruntime have; here is the CPU alone."""
    return [f"{name}ExecutionProvider" for name in _ALL]


def get_device() -> str:
    """The kind of device that sessions run on."""
    return "CPU"


def get_version_string() -> str:
    """The release whose interface this is."""
    return __version__


def get_build_info() -> str:
    """Name this package, and whose interface it has."""
    return f"Ostinato {_own_version}, with the interface of onnxruntime {__version__}"


def set_seed(value: int) -> None:
    """Let random numbers of the sessions that are made from now on depend on this seed."""
    global seed
    seed = operator.index(value)


def get_ep_devices() -> list[Any]:
    """No execution provider is loaded from a library."""
    return []


def has_collective_ops() -> bool:
    """Whether sessions of several machines work together."""
    return False


def enable_telemetry_events() -> None:
    """Have no effect: nothing is sent anywhere."""


def disable_telemetry_events() -> None:
    """Have no effect: nothing is sent anywhere."""


class OrtArenaCfg:
    """Settings of an arena: as many numbers as onnxruntime takes, or its dict of them.

    They have no effect: a session plans its memory while it compiles.
    """

    def __init__(self, *settings: Any) -> None:
        names = (
            "max_mem",
            "arena_extend_strategy",
            "initial_chunk_size_bytes",
            "max_dead_bytes_per_chunk",
        )
        if len(settings) == 1 and isinstance(settings[0], Mapping):
            given = dict(settings[0])
        elif len(settings) == len(names):
            given = dict(zip(names, settings, strict=True))
        else:
            raise TypeError(f"OrtArenaCfg takes a dict or {', '.join(names)}, got {settings}")
        more = ("initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes")
        if unknown := given.keys() - {*names, *more}:
            raise ValueError(f"Invalid OrtArenaCfg option: {', '.join(sorted(map(str, unknown)))}")
        for name in (*names, *more):
            setattr(self, name, given.get(name, -1))


def create_and_register_allocator(*arguments: Any) -> None:
    """Have no effect: a session plans its memory while it compiles."""
    LOGGER.info("create_and_register_allocator has no effect: memory is planned while compiling")


def create_and_register_allocator_v2(*arguments: Any) -> None:
    """Have no effect, like `create_and_register_allocator`."""
    create_and_register_allocator(*arguments)


def set_global_thread_pool_sizes(*arguments: Any) -> None:
    """Have no effect: a session's threads are its own."""
    LOGGER.info("set_global_thread_pool_sizes has no effect: a session's threads are its own")


def preload_dlls(*arguments: Any, **keywords: Any) -> None:
    """Have no effect: there are no libraries of another vendor."""


def print_debug_info() -> None:
    """Print what this is."""
    print(get_build_info())
