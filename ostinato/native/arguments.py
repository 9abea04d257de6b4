"""Checks what callers pass against what a model declares, and says what is wrong by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.arguments import is_one_of
from ostinato.codegen.artifact import UNKNOWN_RANK, Argument
from ostinato.element_types import dtype_name, numpy_dtype
from ostinato.errors import InputError
from ostinato.native.memory import Make, require_memory

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def describe(argument: Argument) -> str:
    """`float32[T, 1, 64]`."""
    if not argument.is_tensor:
        return argument.dtype
    return f"{argument.dtype}[{', '.join(map(str, argument.shape))}]"


def _described(argument: Argument, shape: Shape) -> str:
    return describe(Argument(argument.name, argument.dtype, shape))


def describe_array(array: Array) -> str:
    """`float32[3, 1, 64]`, with the byte order when it is not this machine's."""
    order = "" if array.dtype.isnative else " (foreign byte order)"
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]{order}"


def describe_values(values: Mapping[str, Any]) -> str:
    """`x: float32[3, 64], names: list` for arrays and other values by name."""
    return ", ".join(
        f"{name}: {describe_array(v) if isinstance(v, np.ndarray) else type(v).__name__}"
        for name, v in values.items()
    )


def _refusal(kind: str, argument: Argument, got: str) -> InputError:
    return InputError(f"{kind} {argument.name!r}: expected {describe(argument)}, got {got}")


def _cast(wanted: np.dtype[Any], array: Array) -> str:
    """Say how to convert numbers to the wanted type."""
    module = "np" if wanted.kind in "biufc" else "ml_dtypes"
    if wanted.kind == "O" or array.dtype.kind not in "biufcV" or not array.dtype.isnative:
        return ""
    return f": pass .astype({module}.{wanted.name})"


def check_names(kind: str, given: Iterable[object], known: Sequence[str], complete: bool) -> None:
    """Raise `InputError` for a name that does not exist and, if `complete`, for one that lacks."""
    given = list(given)
    for name in given:
        if not is_one_of(name, known):
            raise InputError(f"unknown {kind} {name!r}: the model has {', '.join(known) or 'none'}")
    missing = [name for name in known if name not in given] if complete else []
    if missing:
        raise InputError(f"missing {kind} {', '.join(map(repr, missing))}")


def as_mapping(what: str, value: object) -> Mapping[str, Any]:
    """`value` itself, or `InputError` when it is no mapping of names to arrays."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what}: expected a dict of name to array, got {type(value).__name__}")
    return value


def as_input(argument: Argument, value: object) -> Any:
    """`value` as an array of the declared dtype, without copy where it is one.

    An array of another dtype or byte order is refused. Python numbers and lists have no dtype: they
    become the declared one when every element keeps its value (floats are rounded to it).
    The arrays in a sequence or an optional are checked in the same way.
    """
    if not argument.is_tensor:
        return _structured(argument, argument.dtype, value)
    dtype = numpy_dtype(argument.dtype)
    if isinstance(value, (np.ndarray, np.generic)):
        _check_unmasked("input", argument, value)
        array = np.asarray(value)
    elif isinstance(value, (bool, int, float, complex, str, list, tuple)):
        array = _from_python(argument, value, dtype)
    else:
        try:
            array = np.asarray(value)
        except Exception as error:
            raise _refusal("input", argument, f"{type(value).__name__} ({error})") from error
        if array.dtype.kind == "O" and dtype.kind != "O":
            raise _refusal("input", argument, type(value).__name__)
    if dtype.kind == "O" and array.dtype.kind in "TU":
        array = array.astype(object)
    if array.dtype != dtype:
        raise _refusal("input", argument, describe_array(array) + _cast(dtype, array))
    return array


def _check_unmasked(kind: str, argument: Argument, value: Array | np.generic) -> None:
    """Refuse an array in which elements are masked: models know no elements without a value."""
    masked = getattr(value, "mask", None) if type(value).__name__ == "MaskedArray" else None
    # Records, whose masks are records, are refused for their type.
    if masked is not None and masked.dtype == bool and masked.any():
        count = int(masked.sum())
        got = f"an array of which {count} elements are masked: pass .filled(number), or .data"
        raise _refusal(kind, argument, got)


def _structured(argument: Argument, kind: str, value: object) -> Any:
    """A value of the ONNX type `kind`, which is that of `argument` or inside of it."""
    outer, _, inner = kind.removesuffix(")").partition("(")
    if outer == "tensor":
        element = Argument(argument.name, dtype_name(inner), UNKNOWN_RANK)
        return as_input(element, value)
    if outer == "optional":
        return None if value is None else _structured(argument, inner, value)
    if outer == "seq":
        if not isinstance(value, (list, tuple)):
            raise _refusal("input", argument, type(value).__name__)
        return [_structured(argument, inner, element) for element in value]
    return value


def _from_python(argument: Argument, value: object, dtype: np.dtype[Any]) -> Array:
    try:
        if dtype.kind == "O":
            return np.asarray(value, dtype=object)
        natural = np.asarray(value)
        if natural.size and natural.dtype.kind not in _KINDS_INTO.get(dtype.kind, "biuf"):
            got = f"{type(value).__name__} of {natural.dtype.name}"
            raise _refusal("input", argument, got)
        array = np.asarray(value, dtype=dtype)
        if dtype.kind in "iu" and not np.array_equal(array, natural):
            raise _refusal("input", argument, f"{type(value).__name__} with larger values")
        return array
    except InputError:
        raise
    except Exception as error:
        raise _refusal("input", argument, f"{type(value).__name__} ({error})") from error


# Kinds of Python values that may become an array of a kind. ml_dtypes' floats have kind "V".
_KINDS_INTO = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc", "V": "iuf"}


def as_buffer(kind: str, argument: Argument, value: object) -> Array:
    """`value` if compiled code can use its memory: an aligned C-contiguous array of the dtype.

    kind: "input" or "output"; outputs must be writable. Raises `InputError`.
    """
    if not argument.is_tensor:
        got = describe_array(value) if isinstance(value, np.ndarray) else type(value).__name__
        raise _refusal(kind, argument, f"{got}; only arrays have memory to be bound, call `run`")
    if not isinstance(value, np.ndarray):
        got = f"{type(value).__name__}; pass a NumPy array, whose memory is used"
        raise _refusal(kind, argument, got)
    _check_unmasked(kind, argument, value)
    if value.dtype != (dtype := numpy_dtype(argument.dtype)):
        raise _refusal(kind, argument, describe_array(value) + _cast(dtype, value))
    if not value.flags.c_contiguous:
        raise _refusal(kind, argument, "an array that is not C-contiguous")
    if not value.flags.aligned:
        raise _refusal(kind, argument, "an array whose memory is not aligned")
    if kind == "output" and not value.flags.writeable:
        raise _refusal(kind, argument, "a read-only array")
    return np.asarray(value)


def as_outputs(out: object, known: Mapping[str, Argument]) -> dict[str, Array]:
    """The arrays of `out`, which may lack some of the `known` outputs, checked by `as_buffer`.

    Raises `InputError`, also where two of them overlap.
    """
    out = as_mapping("out", out)
    check_names("output", out, list(known), complete=False)
    arrays: dict[str, Array] = {}
    for name, value in out.items():
        array = as_buffer("output", known[name], value)
        if overlapping(array, arrays.values()):
            raise InputError(f"output {name!r} overlaps another output; pass separate arrays")
        arrays[name] = array
    return arrays


def in_place(array: Array, make: Make = np.empty) -> Array:
    """`array`, or a copy, in what `make` gives, when compiled code cannot read it as it is."""
    if array.dtype.byteorder == "<":  # this machine's order, but buffers would spell it out
        array = array.view(array.dtype.newbyteorder("="))
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    require_memory(array.nbytes, f"a copy of an input of shape {list(array.shape)}")
    copy = make(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def bind_shapes(arguments: Sequence[Argument], shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of every run-time dimension, from the shapes of the inputs.

    Raises `InputError` naming the input whose rank or fixed dimension differs, or the two inputs
    that disagree about a named one.
    """
    sizes: dict[str, int] = {}
    origins: dict[str, str] = {}
    for argument, shape in zip(arguments, shapes, strict=True):
        if argument.shape == UNKNOWN_RANK:
            continue
        if len(shape) != len(argument.shape):
            raise _refusal("input", argument, _described(argument, shape))
        for size, declared in zip(shape, argument.shape, strict=True):
            if isinstance(declared, int):
                if size != declared:
                    raise _refusal("input", argument, _described(argument, shape))
            elif declared not in sizes:
                sizes[declared], origins[declared] = size, argument.name
            elif sizes[declared] != size:
                origin = f"but {declared} is {sizes[declared]} in input {origins[declared]!r}"
                raise _refusal("input", argument, f"{_described(argument, shape)}, {origin}")
    return sizes


def check_output_shape(argument: Argument, array: Array, shape: Shape) -> None:
    """Raise `InputError` unless the caller's `array` has the shape the output came to have."""
    if array.shape != shape:
        expected = _described(argument, shape)
        raise InputError(
            f"output {argument.name!r}: expected {expected}, got {describe_array(array)}"
        )


def overlapping(array: Array, others: Iterable[Array]) -> bool:
    """Whether C-contiguous `array` shares a byte with one of `others`, which may be strided."""
    return any(np.may_share_memory(array, other) for other in others)
