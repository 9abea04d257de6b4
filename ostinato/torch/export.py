"""From a module of PyTorch to an ONNX model whose parameters are inputs."""

from __future__ import annotations

import inspect
import logging
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree as pytree

from ostinato.autodiff.gradient import expose
from ostinato.errors import OstinatoError, UnsupportedError
from ostinato.graph.random import may_draw
from ostinato.model.attributes import describe

_ROOT = os.path.dirname(torch.__file__)


@dataclass(frozen=True)
class Exported:
    """A module as ONNX.

    model: its inputs are the tensors among the arguments, then parameters and buffers.
    arguments: for each leaf of the arguments, None if it is a tensor, else the value that is part
        of the model. names: of parameters and buffers, in the order of the inputs.
    results: for each leaf of the results, the output of the model, or None and the constant.
    in_spec, out_spec: how arguments and results are nested.
    """

    model: ir.Model
    arguments: tuple[tuple[bool, Any], ...]
    names: tuple[str, ...]
    results: tuple[tuple[int | None, Any], ...]
    in_spec: Any
    out_spec: Any


def export(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic: Any = None,
) -> Exported:
    """Export `module` in its present mode.

    dynamic: None or False for the sizes of the examples, True for sizes that may all change, or
        what `torch.export.export` takes as `dynamic_shapes`.

    Raises `UnsupportedError`, with the line of the program where there is one, for what has no form
    as one graph of ONNX.
    """
    what = type(module).__name__
    shapes = _any_sizes(module, args, kwargs) if dynamic is True else dynamic or None
    with _quiet(), _explained(what):
        program = torch.export.export(
            module, tuple(args), dict(kwargs), dynamic_shapes=shapes, strict=False
        )
    return from_program(program, what)


def from_program(program: Any, what: str) -> Exported:
    """The same, of an exported program. what: the name of the module for messages."""
    with _quiet(), _explained(what):
        converted = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
    # Decomposition gives values other names.
    signature = converted.exported_program.graph_signature
    written = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    if written:
        name = sorted(map(str, written.values()))[0]
        raise UnsupportedError(
            what, "module", f"writes into {name!r} when it is called; return the value instead"
        )
    model: ir.Model = converted.model
    drawing = next((node for node in model.graph if may_draw(node)), None)
    if drawing is not None:
        raise UnsupportedError(
            describe(drawing),
            drawing.op_type,
            "draws random numbers, which would be the same in every call: call eval() before",
        )
    arguments, names = [], []
    for spec in signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            constant = isinstance(spec.arg, ConstantArgument)
            arguments.append((not constant, spec.arg.value if constant else None))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            value = model.graph.initializers.get(spec.target)
            if value is not None and value.dtype is not None and value.dtype.is_floating_point():
                names.append(spec.target)
    expose(model, names)
    places: dict[str, int] = {}
    for place, value in enumerate(model.graph.outputs):
        places.setdefault(str(value.name), place)
    return Exported(
        model,
        tuple(arguments),
        tuple(names),
        tuple(_result(spec.arg, places, what) for spec in _results(signature)),
        program.call_spec.in_spec,
        program.call_spec.out_spec,
    )


def _results(signature: Any) -> list[Any]:
    return [spec for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]


def _result(argument: Any, places: Mapping[str, int], what: str) -> tuple[int | None, Any]:
    if isinstance(argument, ConstantArgument):
        return None, argument.value
    if not isinstance(argument, TensorArgument) or argument.name not in places:
        raise UnsupportedError(
            what, "module", f"returns {argument}; it may return tensors and constants"
        )
    return places[argument.name], None


def _any_sizes(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """A `dynamic_shapes` that leaves every size of every tensor open."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    shapes: dict[str, Any] = pytree.tree_map(_open_sizes, dict(bound))
    return shapes


def _open_sizes(leaf: Any) -> Any:
    is_tensor = isinstance(leaf, torch.Tensor)
    return {axis: torch.export.Dim.AUTO for axis in range(leaf.dim())} if is_tensor else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what PyTorch says beside its errors, as about packages it does not find, to itself."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # Within a compilation of Dynamo, its guards and symbols are not those of this export.
        with warnings.catch_warnings(), torch._guards.tracing(None):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn whatever the exporter raises into `UnsupportedError`, with the line it is about."""
    try:
        yield
    except OstinatoError:
        raise
    except Exception as error:
        where = line_of(error)
        while error.__cause__ is not None and isinstance(error.__cause__, Exception):
            error = error.__cause__
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(
            what,
            "module",
            f"{where or 'export'}: {reason[0]}; torch.compile(module, backend='ostinato') breaks "
            "the graph there, torch.cond, torch.while_loop and scan keep it whole",
        ) from error


def line_of(error: BaseException) -> str:
    """The innermost line outside of PyTorch that an error came from, "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return _told(own[-1]) if own else ""


def last_line(frames: Sequence[traceback.FrameSummary]) -> str:
    """The innermost of these frames outside of PyTorch."""
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return _told(own[-1]) if own else ""


def _is_library(file: str) -> bool:
    return file.startswith((_ROOT, os.path.dirname(os.path.dirname(__file__)), "<"))


def _told(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line or ''}".rstrip(": ")
