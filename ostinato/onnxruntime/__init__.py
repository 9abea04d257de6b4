"""onnxruntime's Python interface, with compiled models behind it.

    python -m ostinato.onnxruntime PROGRAM ARGS     a program whose `import onnxruntime` gets this
    ostinato.onnxruntime.install()                  the same for the rest of this process
    import ostinato.onnxruntime as onnxruntime      by hand

What is honoured, what is ignored and why: docs/coming_from_onnxruntime.md.
"""

from ostinato.onnxruntime import capi
from ostinato.onnxruntime.binding import IOBinding
from ostinato.onnxruntime.install import install
from ostinato.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    set_default_logger_severity,
    set_default_logger_verbosity,
)
from ostinato.onnxruntime.process import (
    __version__,
    create_and_register_allocator,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_ep_devices,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    set_global_thread_pool_sizes,
    set_seed,
)
from ostinato.onnxruntime.session import InferenceSession, ModelMetadata
from ostinato.onnxruntime.values import (
    OrtAllocatorType,
    OrtDevice,
    OrtMemoryInfo,
    OrtMemType,
    OrtValue,
)
from ostinato.runtime.session import NodeArg

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "capi",
    "create_and_register_allocator",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]
