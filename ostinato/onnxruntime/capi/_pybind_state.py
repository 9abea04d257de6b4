"""The name under which onnxruntime itself imports its compiled module."""

from ostinato.onnxruntime.absent import found as __getattr__  # noqa: F401
from ostinato.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
from ostinato.onnxruntime.capi.onnxruntime_pybind11_state import __all__  # noqa: F401
