"""Requests and responses of the Open Inference Protocol, whatever carries them.

Source: https://github.com/kserve/open-inference-protocol, and for sequences the sequence extension
of Triton: `sequence_id`, `sequence_start`, `sequence_end` among the parameters of a request.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.arguments import is_whole
from ostinato.element_types import dtype_name
from ostinato.errors import OstinatoError

Array = np.ndarray[Any, Any]

VERSION = "1"
"""The only version of every model."""

DATATYPES = {
    "BOOL": "bool",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    **{
        f"{kind.upper()}{bits}": f"{kind}{bits}"
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}
"""NumPy's name of each datatype."""
_NAMES = {np.dtype(name): datatype for datatype, name in DATATYPES.items()}


class Status(enum.Enum):
    """The outcome of a request: the status of HTTP, and the name of that of gRPC."""

    INVALID = 400, "INVALID_ARGUMENT"
    NOT_FOUND = 404, "NOT_FOUND"
    EXISTS = 409, "ALREADY_EXISTS"
    TOO_LARGE = 413, "RESOURCE_EXHAUSTED"
    FULL = 429, "RESOURCE_EXHAUSTED"
    FAILED = 500, "INTERNAL"
    UNAVAILABLE = 503, "UNAVAILABLE"

    @property
    def http(self) -> int:
        return self.value[0]

    @property
    def grpc(self) -> str:
        return self.value[1]


class ServeError(OstinatoError, RuntimeError):
    """A request that was not done. status: why, for those who cannot read."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model. shape: -1 for a size that only a run tells."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """inputs: by name. outputs: those to answer with, None for all of them.

    sequence: whose state the request goes on from; None for models without states.
    """

    model: str
    inputs: Mapping[str, Array]
    outputs: Sequence[str] | None = None
    sequence: int | str | None = None
    start: bool = False
    end: bool = False


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The datatype of elements. Raises `ServeError` for what the protocol has no name for."""
    datatype = _NAMES.get(dtype)
    if datatype is None:
        raise ServeError(Status.FAILED, f"values of {dtype} have no datatype in the protocol")
    return datatype


def named(type_: str) -> str:
    """The datatype of what ONNX calls `tensor(float)`. Raises `ServeError` for what has none."""
    wanted = dtype_name(type_.removeprefix("tensor(").removesuffix(")"))
    for datatype, name in DATATYPES.items():
        if name == wanted:
            return datatype
    raise ServeError(Status.INVALID, f"values of {type_} have no datatype in the protocol")


def dtype_of(name: str, datatype: str) -> np.dtype[Any]:
    """The element type of a datatype. Raises `ServeError`."""
    if datatype not in DATATYPES:
        raise ServeError(
            Status.INVALID,
            f"input {name!r}: datatype {datatype!r}, expected one of {', '.join(DATATYPES)}",
        )
    return np.dtype(DATATYPES[datatype])


def array_of_bytes(
    name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview
) -> Array:
    """The array in `data`, row-major. Raises `ServeError` where the number of bytes is another."""
    dtype, sizes = dtype_of(name, datatype), _checked_shape(name, shape)
    expected = math.prod(sizes) * dtype.itemsize
    if len(data) != expected:
        raise ServeError(
            Status.INVALID,
            f"input {name!r}: {datatype} of shape {list(sizes)} has {expected} bytes, "
            f"got {len(data)}",
        )
    return np.frombuffer(data, dtype).reshape(sizes)


def array_of_values(name: str, datatype: str, shape: Sequence[int], values: Any) -> Array:
    """The array of a list of numbers, flat or nested. Raises `ServeError` for anything else."""
    dtype, sizes = dtype_of(name, datatype), _checked_shape(name, shape)
    try:
        array = np.array(values).ravel()
    except ValueError as error:
        raise ServeError(Status.INVALID, f"input {name!r}: data: {error}") from error
    if array.dtype.kind not in "biuf":
        raise ServeError(Status.INVALID, f"input {name!r}: data is no list of numbers")
    with np.errstate(all="ignore"):
        flat = array.astype(dtype)
    is_whole = np.isfinite(flat) | ~np.isfinite(array) if dtype.kind == "f" else flat == array
    if not np.all(is_whole):
        raise ServeError(Status.INVALID, f"input {name!r}: data has values that no {datatype} has")
    if flat.size != math.prod(sizes):
        raise ServeError(
            Status.INVALID,
            f"input {name!r}: shape {list(sizes)} has {math.prod(sizes)} elements, got {flat.size}",
        )
    return flat.reshape(sizes)


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    plain = isinstance(shape, Sequence) or hasattr(shape, "__iter__")
    sizes = tuple(shape) if plain and not isinstance(shape, str) else None
    if sizes is None or not all(type(size) is int and size >= 0 for size in sizes):
        raise ServeError(Status.INVALID, f"input {name!r}: shape {shape!r}, expected whole numbers")
    return sizes


def is_open(sequence: int | str) -> ServeError:
    """The error of a second start."""
    return ServeError(
        Status.EXISTS,
        f"sequence {sequence!r} is open: end it with sequence_end, or use another id",
    )


def is_not_open(sequence: int | str, idle: float) -> ServeError:
    """The error of a message without a start."""
    return ServeError(
        Status.NOT_FOUND,
        f"sequence {sequence!r} is not open: it did not start, has ended, or was silent for more "
        f"than {idle:g} s; send sequence_start with its first message",
    )


def require_sequence(model: str, states: Mapping[str, str], sequence: int | str | None) -> None:
    """Raise `ServeError` where a model keeps states and no sequence is named, or the reverse."""
    if states and sequence is None:
        kept = ", ".join(states)
        raise ServeError(
            Status.INVALID,
            f"model {model!r} keeps states ({kept}): send sequence_id, and sequence_start with the "
            "first message",
        )
    if not states and sequence is not None:
        raise ServeError(Status.INVALID, f"model {model!r} keeps no states: send no sequence_id")


# As in Triton.
_LONGEST_ID = 128
_SHARED_MEMORY = "tensors come in the message, not in shared memory"
_REFUSED = {
    "classification": "results are tensors: take the largest elements of one by yourself",
    "priority": "messages of all clients are alike",
    "timeout": "a message that was taken is answered; give the client a time-out",
    "shared_memory_region": _SHARED_MEMORY,
    "shared_memory_offset": _SHARED_MEMORY,
    "shared_memory_byte_size": _SHARED_MEMORY,
    "triton_enable_empty_final_response": "each message has one answer",
}
"""Parameters of Triton's extensions that are not served, with the reason; 0 asks for nothing."""
SEQUENCE_PARAMETERS = frozenset(("sequence_id", "sequence_start", "sequence_end"))


def check_parameters(where: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise `ServeError` for a parameter that nobody reads. where: what it is a parameter of."""
    for name, value in given.items():
        if name in known or (name in _REFUSED and value in (0, "", None)):
            continue
        why = _REFUSED.get(name, f"expected {' or '.join(sorted(known)) or 'none'}")
        raise ServeError(Status.INVALID, f"{where}: parameter {name!r} is not served: {why}")


def flag_of(where: str, given: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A parameter that is true or false. Raises `ServeError` for anything else."""
    flag = given.get(name, default)
    if not isinstance(flag, bool):
        raise ServeError(Status.INVALID, f"{where}: {name} {flag!r}: expected true or false")
    return flag


def sequence_of(parameters: Mapping[str, Any]) -> tuple[int | str | None, bool, bool]:
    """The id of a sequence, and whether it starts and ends here.

    An id is a whole number of 64 bits other than 0, or a text that is neither empty nor longer than
    `_LONGEST_ID`. Raises `ServeError`.
    """
    sequence = parameters.get("sequence_id")
    if sequence in (0, ""):
        sequence = None
    fits = sequence is None
    if isinstance(sequence, str):
        fits = len(sequence) <= _LONGEST_ID
    elif is_whole(sequence):
        fits = -(2**63) <= sequence < 2**64
    if not fits:
        raise ServeError(
            Status.INVALID,
            f"sequence_id {str(sequence)[:_LONGEST_ID]!r}: expected a number of 64 bits or a text "
            f"of up to {_LONGEST_ID} characters",
        )
    flags = []
    for name in ("sequence_start", "sequence_end"):
        flag = flag_of("the request", parameters, name)
        if flag and sequence is None:
            raise ServeError(Status.INVALID, f"{name} without a sequence_id")
        flags.append(flag)
    return sequence, flags[0], flags[1]
