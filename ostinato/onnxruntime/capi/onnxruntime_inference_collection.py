"""The names of onnxruntime's module of sessions."""

from ostinato.onnxruntime.absent import found as __getattr__  # noqa: F401
from ostinato.onnxruntime.binding import IOBinding
from ostinato.onnxruntime.session import InferenceSession
from ostinato.onnxruntime.session import InferenceSession as Session
from ostinato.onnxruntime.values import OrtDevice, OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session"]
