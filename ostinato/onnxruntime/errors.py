"""onnxruntime's exceptions under its names, with the codes and texts that its messages have."""

from __future__ import annotations

from typing import NoReturn

from ostinato.errors import (
    InputError,
    ModelError,
    OptionError,
    OstinatoError,
    ShapeError,
    UnsupportedError,
)

__all__ = [
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
]


class OnnxruntimeError(OstinatoError):
    """Base class; the message begins with onnxruntime's code and name of the status."""

    code, status = 1, "FAIL"

    @classmethod
    def of(cls, text: object) -> OnnxruntimeError:
        """The error with onnxruntime's prefix before `text`."""
        return cls(f"[ONNXRuntimeError] : {cls.code} : {cls.status} : {text}")


class Fail(OnnxruntimeError):
    """Whatever has no class of its own."""


class InvalidArgument(OnnxruntimeError):
    """An input, output or option that does not fit."""

    code, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(OnnxruntimeError):
    """A model's file that does not exist."""

    code, status = 3, "NO_SUCHFILE"


class NoModel(OnnxruntimeError):
    """No model was loaded."""

    code, status = 4, "NO_MODEL"


class EngineError(OnnxruntimeError):
    """An engine failed."""

    code, status = 5, "ENGINE_ERROR"


class RuntimeException(OnnxruntimeError):
    """A node failed while running."""

    code, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OnnxruntimeError):
    """A file that is no protobuf of a model."""

    code, status = 7, "INVALID_PROTOBUF"


class ModelLoaded(OnnxruntimeError):
    """A model was loaded already."""

    code, status = 8, "MODEL_LOADED"


class NotImplemented(OnnxruntimeError):
    """An operator without a kernel."""

    code, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(OnnxruntimeError):
    """A model that contradicts itself or the standard."""

    code, status = 10, "INVALID_GRAPH"


class EPFail(OnnxruntimeError):
    """An execution provider failed."""

    code, status = 11, "EP_FAIL"


class ModelLoadCanceled(OnnxruntimeError):
    """Loading was cancelled."""

    code, status = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OnnxruntimeError):
    """A model that an execution provider would have to compile."""

    code, status = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(OnnxruntimeError):
    """Something that was asked for is not there."""

    code, status = 14, "NOT_FOUND"


ERRORS = {kind.__name__: kind for kind in OnnxruntimeError.__subclasses__()}

_KINDS: tuple[tuple[type[OstinatoError], type[OnnxruntimeError]], ...] = (
    (InputError, InvalidArgument),
    (ShapeError, InvalidArgument),
    (OptionError, InvalidArgument),
    (UnsupportedError, NotImplemented),
    (ModelError, InvalidGraph),
)


def translated(error: Exception) -> Exception:
    """The error that stands for one of ours, or for one of the real onnxruntime.

    One that is neither, such as a TypeError, is what it was.
    """
    if isinstance(error, OnnxruntimeError):
        return error
    if isinstance(error, OstinatoError):
        for ours, kind in _KINDS:
            if isinstance(error, ours):
                return kind.of(error)
        return Fail.of(error)
    if type(error).__module__.startswith("onnxruntime."):
        theirs = ERRORS.get(type(error).__name__, Fail)
        return theirs(*error.args)
    return error


def require_own(what: str, value: object, kind: type) -> None:
    """Raise `TypeError` for what is no object of this package's `kind`, such as onnxruntime's."""
    if isinstance(value, kind):
        return
    name, got = kind.__name__, type(value)
    if got.__name__ != name:
        raise TypeError(f"{what}: expected {name}, got {got.__name__}")
    raise TypeError(
        f"{what}: expected {name} of ostinato.onnxruntime, got that of {got.__module__}; import "
        "both from ostinato.onnxruntime, or call its install() before onnxruntime is imported"
    )


def unprefixed(error: Exception) -> str:
    """The text without code and status, as callbacks and bindings get it."""
    prefix = str(error.of("")) if isinstance(error, OnnxruntimeError) else ""
    return str(error).removeprefix(prefix)


def raise_translated(error: Exception) -> NoReturn:
    """Raise what stands for `error`."""
    found = translated(error)
    raise found from (None if found is error else error)
