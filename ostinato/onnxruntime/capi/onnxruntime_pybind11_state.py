"""The names of onnxruntime's compiled module: exceptions, options, values."""

from ostinato.onnxruntime import errors, shared
from ostinato.onnxruntime.absent import found as __getattr__  # noqa: F401
from ostinato.onnxruntime.errors import *  # noqa: F403
from ostinato.onnxruntime.shared import *  # noqa: F403

__all__ = [*errors.__all__]
__all__ += shared.__all__
