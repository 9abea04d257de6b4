"""Names of onnxruntime for what compiled models do not have: they are there, and say so when used.

A program that only mentions them, as in a type or a check of a kind of device, runs; one that calls
them gets onnxruntime's `NotImplemented` with the reason.
"""

from __future__ import annotations

import enum
import functools
from typing import Any, NoReturn

from ostinato.onnxruntime.errors import NotImplemented as Missing

_DEVICES = "there is one execution provider, the CPU, and none is loaded from a library"
_ADAPTERS = "adapters of weights: merge them into the model instead"
_SPARSE = "sparse tensors: pass the dense array"
_COMPILED = "models are compiled when a session loads them, and kept in a cache"
_MEMORY = "memory is planned while compiling"
_PACKAGES = "packages of models: load one model's file"
_KERNELS = "it tells of onnxruntime's own kernels"

REASONS = {
    **dict.fromkeys(("SparseTensor", "SparseBlockSparseView", "SparseCooView"), _SPARSE),
    **dict.fromkeys(("SparseCsrView", "is_dlpack_uint8_tensor"), _SPARSE),
    **dict.fromkeys(("AdapterFormat", "LoraAdapter"), _ADAPTERS),
    **dict.fromkeys(("ModelCompiler", "OrtEpContextData", "OrtEpContextDataBuffer"), _COMPILED),
    **dict.fromkeys(("get_compatibility_info_from_model", "OrtExternalInitializerInfo"), _COMPILED),
    "get_compatibility_info_from_model_bytes": _COMPILED,
    "get_model_compatibility_for_ep_devices": _COMPILED,
    **dict.fromkeys(("OrtEpDevice", "OrtHardwareDevice", "OrtSyncStream", "DeviceReset"), _DEVICES),
    **dict.fromkeys(("OrtEpAssignedNode", "OrtEpAssignedSubgraph"), _DEVICES),
    **dict.fromkeys(("OrtDeviceEpIncompatibilityReason", "get_hardware_devices"), _DEVICES),
    "get_hardware_device_ep_incompatibility_details": _DEVICES,
    **dict.fromkeys(("check_and_normalize_provider_args", "get_ort_device_type"), _DEVICES),
    "get_vendor_id_for_device_type": _DEVICES,
    "make_get_initializer_location_func_wrapper": _COMPILED,
    "register_execution_provider_library": _DEVICES,
    "unregister_execution_provider_library": _DEVICES,
    **dict.fromkeys(("ModelPackage", "ModelPackageOptions"), _PACKAGES),
    **dict.fromkeys(("ModelPackageContext", "ModelPackageComponentContext"), _PACKAGES),
    **dict.fromkeys(("OrtValueVector", "copy_tensors", "SessionObjectInitializer"), _MEMORY),
    **dict.fromkeys(("get_default_session_options", "get_session_initializer"), _MEMORY),
    **dict.fromkeys(("get_all_operator_schema", "get_all_opkernel_def", "opkernel"), _KERNELS),
    **dict.fromkeys(("get_registered_ep_kernel_defs", "schemadef"), _KERNELS),
    **{
        f"quantize_{kind}": _KERNELS
        for kind in ("matmul_2bits", "matmul_4bits", "matmul_8bits", "matmul_bnb4")
    },
    "quantize_qdq_matmul_2bits": _KERNELS,
    "quantize_qdq_matmul_4bits": _KERNELS,
    "pack_fp4_weights_for_cuda_moe_gemm": _KERNELS,
}
"""Why a class or function of onnxruntime does nothing here."""

_ENUMS: dict[str, dict[str, int]] = {
    "ArenaExtendStrategy": {"kNextPowerOfTwo": 0, "kSameAsRequested": 1},
    "ModelPackageWriteMode": {"PRESERVE": 0, "DENSE": 1},
    "OrtCompileApiFlags": {
        "NONE": 0,
        "ERROR_IF_NO_NODES_COMPILED": 1,
        "ERROR_IF_OUTPUT_FILE_EXISTS": 2,
    },
    "OrtCompiledModelCompatibility": {
        "EP_NOT_APPLICABLE": 0,
        "EP_SUPPORTED_OPTIMAL": 1,
        "EP_SUPPORTED_PREFER_RECOMPILATION": 2,
        "EP_UNSUPPORTED": 3,
    },
    "OrtDeviceMemoryType": {"DEFAULT": 0, "HOST_ACCESSIBLE": 5},
    "OrtDeviceVendorId": {
        "NONE": 0,
        "AMD": 0x1002,
        "NVIDIA": 0x10DE,
        "ARM": 0x13B5,
        "MICROSOFT": 0x1414,
        "HUAWEI": 0x19E5,
        "QUALCOMM": 0x5143,
        "INTEL": 0x8086,
    },
    "OrtExecutionProviderDevicePolicy": {
        "DEFAULT": 0,
        "PREFER_CPU": 1,
        "PREFER_NPU": 2,
        "PREFER_GPU": 3,
        "MAX_PERFORMANCE": 4,
        "MAX_EFFICIENCY": 5,
        "MIN_OVERALL_POWER": 6,
    },
    "OrtHardwareDeviceType": {"CPU": 0, "GPU": 1, "NPU": 2},
    "OrtMemoryInfoDeviceType": {"CPU": 0, "GPU": 1, "FPGA": 2, "NPU": 3},
    "OrtSparseFormat": {
        "ORT_SPARSE_UNDEFINED": 0,
        "ORT_SPARSE_COO": 1,
        "ORT_SPARSE_CSRC": 2,
        "ORT_SPARSE_BLOCK_SPARSE": 4,
    },
}


class _Absent(type):
    """The type of such a class, whose attributes are not there either."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(refuse, f"{cls.__name__}.{name}", REASONS[cls.__name__])


def refuse(name: str, reason: str, *_: Any, **__: Any) -> NoReturn:
    """Raise onnxruntime's `NotImplemented`."""
    raise Missing.of(f"{name} is not there with compiled models: {reason}")


@functools.cache
def found(name: str) -> Any:
    """What stands for a name of onnxruntime. Raises `AttributeError` for names it has not."""
    if name in _ENUMS:
        return enum.IntEnum(name, _ENUMS[name])
    for strategy in found("ArenaExtendStrategy") if name.startswith("k") else ():
        if strategy.name == name:
            return strategy
    if name not in REASONS:
        raise AttributeError(f"module 'onnxruntime' has no attribute {name!r}")
    if not name[0].isupper():
        return functools.partial(refuse, name, REASONS[name])

    def begin(self: Any, *arguments: Any, **keywords: Any) -> None:
        refuse(name, REASONS[name])

    return _Absent(name, (), {"__init__": begin, "__doc__": REASONS[name]})
