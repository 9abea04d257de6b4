"""Errors of a run's inputs in onnxruntime's words, and inputs converted to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from ostinato.onnxruntime.errors import InvalidArgument
from ostinato.onnxruntime.values import element_of, unwrapped
from ostinato.runtime.session import NodeArg

_ADVICE = "Please fix either the inputs/outputs or the model."


def require_feed(feed: Mapping[str, Any], inputs: Sequence[NodeArg], known: set[str]) -> None:
    """Raise what onnxruntime raises for inputs that are missing, unknown or do not fit.

    known: names of the inputs and of initializers that may be overridden.
    Raises `ValueError` for a missing input, `InvalidArgument` for all else.
    """
    require_all(feed, inputs)
    for name in feed:
        if name not in known:
            raise InvalidArgument.of(f"Invalid input name: {name}")
    for argument in inputs:
        value = feed.get(argument.name)
        if isinstance(value, np.ndarray) and argument.type.startswith("tensor"):
            _require_array(argument, value)


def require_all(feed: Mapping[str, Any], inputs: Sequence[NodeArg]) -> None:
    """Raise onnxruntime's `ValueError` if an input is missing that is not optional."""
    missing = [
        argument.name
        for argument in inputs
        if argument.name not in feed and not argument.type.startswith("optional")
    ]
    if missing:
        given = list(feed)
        raise ValueError(f"Required inputs ({missing}) are missing from input feed ({given}).")


def _require_array(argument: NodeArg, array: np.ndarray[Any, Any]) -> None:
    actual = f"tensor({element_of(array.dtype)})"
    if actual != argument.type and argument.type != "tensor(string)":
        raise InvalidArgument.of(
            f"Unexpected input data type. Actual: ({actual}) , expected: ({argument.type})"
        )
    shape = argument.shape
    if shape is None:
        return
    if len(shape) != array.ndim:
        raise InvalidArgument.of(
            f"Invalid rank for input: {argument.name} Got: {array.ndim} "
            f"Expected: {len(shape)} {_ADVICE}"
        )
    wrong = [
        f" index: {axis} Got: {got} Expected: {expected}"
        for axis, (got, expected) in enumerate(zip(array.shape, shape, strict=True))
        if isinstance(expected, int) and got != expected
    ]
    if wrong:
        raise InvalidArgument.of(
            f"Got invalid dimensions for input: {argument.name} for the following indices\n"
            + "\n".join(wrong)
            + f"\n {_ADVICE}"
        )


def differing(feed: Mapping[str, Any], inputs: Sequence[NodeArg]) -> set[str]:
    """Names of dimensions that have several sizes, which onnxruntime lets them have."""
    sizes: dict[str, set[int]] = {}
    for argument in inputs:
        value = feed.get(argument.name)
        if isinstance(value, np.ndarray) and argument.shape is not None:
            for dim, size in zip(argument.shape, value.shape, strict=True):
                if isinstance(dim, str):
                    sizes.setdefault(dim, set()).add(size)
    return {name for name, found in sizes.items() if len(found) > 1}


def shapes_of_scalars(feed: Mapping[str, Any], scalars: Set[str]) -> dict[str, list[int | None]]:
    """Shapes of arrays that are given for scalars, as which onnxruntime takes any array.

    None stands for sizes other than 1, which may change from run to run.
    """
    given = {name: value for name, value in feed.items() if name in scalars}
    return {
        name: [1 if size == 1 else None for size in value.shape]
        for name, value in given.items()
        if isinstance(value, np.ndarray) and value.ndim
    }


def fitted(feed: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in the forms that a compiled session takes: this byte order, texts as objects."""
    return {name: _fitted(unwrapped(value)) for name, value in feed.items()}


def _fitted(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "S":
        return np.char.decode(value, "utf-8").astype(object)
    if value.dtype.kind == "O":
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in value.reshape(-1)]
        result = np.empty(value.size, object)
        result[:] = texts
        return result.reshape(value.shape)
    # Masked elements are ones like others, as they are to onnxruntime.
    return np.asarray(value, value.dtype.newbyteorder("="))
