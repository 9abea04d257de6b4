"""From a module of PyTorch to an ONNX model whose parameters are inputs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from ostinato.autodiff.gradient import expose
from ostinato.errors import InputError, OstinatoError, UnsupportedError
from ostinato.graph.random import may_draw
from ostinato.model.attributes import describe
from ostinato.torch.formulas import Formulas, translations

_ROOT = os.path.dirname(torch.__file__)
# What stands before names of parameters, since the exported module is the attribute of another.
_PREFIX = "module."
_DTYPES = {int: torch.int64, float: torch.float64, bool: torch.bool}


@dataclass(frozen=True)
class Result:
    """A leaf of what a module returns.

    place: of the model's output, None for a constant. value: the constant; of an output that Python
    has as a number, the type of the number.
    """

    place: int | None
    value: Any = None


@dataclass(frozen=True)
class Exported:
    """A module as ONNX.

    model: its inputs are the tensors among the arguments, then parameters and buffers.
    arguments: for each leaf of the arguments, whether it is a tensor; if not, the value that is
        part of the model. names: of parameters and buffers, in the order of the inputs.
    results: for each leaf of the results.
    in_spec, out_spec: how arguments, as `bound` has them, and results are nested.
    guards: conditions on sizes without which the program may do something else; see `_guards`.
    """

    model: ir.Model
    arguments: tuple[tuple[bool, Any], ...]
    names: tuple[str, ...]
    results: tuple[Result, ...]
    in_spec: Any
    out_spec: Any
    guards: tuple[str, ...] = ()


def bound(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call as they are compiled: defaults included, by place where they can be.

    Raises `InputError` for what the signature does not take.
    """
    try:
        found = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(f"{error}; the module takes {signature}") from None
    found.apply_defaults()
    return found.args, dict(sorted(found.kwargs.items()))


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
    as one graph of ONNX, `InputError` for arguments that the module does not take.
    """
    what = type(module).__name__
    signature = inspect.signature(module.forward)
    args, kwargs = bound(signature, args, kwargs)
    _refuse_arguments(what, module, (args, kwargs))
    leaves = _Leaves(module)
    # Neither a fused operator nor a view of a tensor without versions, as these modes give.
    with torch.inference_mode(False), torch.enable_grad(), _quiet(), _explained(what):
        program = torch.export.export(
            leaves, args, kwargs, dynamic_shapes=_shapes(signature, args, kwargs, dynamic)
        )
        converted = torch.onnx.export(
            program,
            dynamo=True,
            optimize=False,
            verbose=False,
            custom_translation_table=translations(),
        )
    # Decomposition gives values other names.
    done = converted.exported_program.graph_signature
    written = [*done.buffers_to_mutate.values(), *done.user_inputs_to_mutate.values()]
    written = [name.removeprefix(_PREFIX) for name in written] + leaves.returned.assigned
    if written:
        raise UnsupportedError(
            what, "module", f"writes into {min(written)!r} when it is called; return the value"
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
    for spec in done.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            constant = isinstance(spec.arg, ConstantArgument)
            arguments.append((not constant, spec.arg.value if constant else None))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            value = model.graph.initializers.get(spec.target)
            if value is not None and value.dtype is not None and value.dtype.is_floating_point():
                names.append(spec.target)
    expose(model, names)
    for value in model.graph.inputs:
        value.name = str(value.name).removeprefix(_PREFIX)
        _settle(value)
    return Exported(
        model,
        tuple(arguments),
        tuple(name.removeprefix(_PREFIX) for name in names),
        tuple(leaves.returned.results),
        program.call_spec.in_spec,
        leaves.returned.spec,
        _guards(program, dynamic),
    )


@dataclass
class _Returned:
    """What a call has returned: each leaf, and how they are nested.

    assigned: attributes of modules that the call has put other tensors in.
    """

    results: list[Result] = field(default_factory=list)
    spec: Any = None
    assigned: list[str] = field(default_factory=list)


class _Leaves(torch.nn.Module):
    """A module as a function to the tensors among its results, each once."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        # The exporter sets attributes back to what they were.
        self.returned = returned = _Returned()

        @functools.wraps(module.forward)
        def forward(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
            before = _attributes(module)
            with Formulas():
                found = module(*args, **kwargs)
            after = _attributes(module)
            returned.assigned = [name for name in after if after[name] is not before.get(name)]
            leaves, returned.spec = _flat(found)
            tensors: dict[int, torch.Tensor] = {}
            returned.results = [_result(leaf, tensors) for leaf in leaves]
            return tuple(tensors.values())

        # The names of its arguments become those of the inputs.
        self.forward = forward


def _flat(found: Any) -> tuple[list[Any], Any]:
    """The leaves of what a call returns, those of dataclasses too, and how they are nested.

    Raises `UnsupportedError` for another object that holds tensors.
    """
    while True:
        leaves, spec = pytree.tree_flatten(found)
        records = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf)}
        if not records:
            break
        for record in records:
            torch.export.register_dataclass(record)
    for leaf in leaves:
        held = pytree.tree_leaves(dict(getattr(leaf, "__dict__", {})))
        if not isinstance(leaf, torch.Tensor) and any(isinstance(h, torch.Tensor) for h in held):
            raise UnsupportedError(
                type(leaf).__name__,
                "module",
                "it is returned and holds tensors that cannot be followed; return them in a "
                "tuple, a dict or a dataclass",
            )
    return leaves, spec


def _attributes(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that are attributes of modules, and buffers."""
    return {
        f"{path}.{key}".lstrip("."): value
        for path, part in module.named_modules()
        for key, value in (*vars(part).items(), *part._buffers.items())
        if isinstance(value, torch.Tensor)
    }


def _result(leaf: Any, tensors: dict[int, torch.Tensor]) -> Result:
    """Note a leaf of the results; `tensors` are those that were before, by identity."""
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    kind = kinds.get(type(leaf))
    if kind is None and not isinstance(leaf, torch.Tensor):
        return Result(None, leaf)
    tensor = leaf if kind is None else torch.scalar_tensor(leaf, dtype=_DTYPES[kind])
    tensors.setdefault(id(tensor), tensor)
    return Result(list(tensors).index(id(tensor)), kind)


def _settle(value: ir.Value) -> None:
    """Make a number of a size that the exporter has as the name of one."""
    if value.shape is not None:
        known = [str(getattr(size, "value", size)) for size in value.shape]
        sizes = [int(k) if k.isdecimal() else s for k, s in zip(known, value.shape, strict=True)]
        value.shape = ir.Shape(sizes)


def _guards(program: Any, dynamic: Any) -> tuple[str, ...]:
    """Conditions on sizes, as Python with the arguments in `L`, by which the program went this way.

    Without those that sizes differ: PyTorch assumes that of all sizes that are not 1.
    """
    found = getattr(program, "_guards_code", ()) if dynamic else ()
    return tuple(guard for guard in found if "!=" not in guard)


def _refuse_arguments(what: str, module: torch.nn.Module, arguments: Any) -> None:
    """Raise `UnsupportedError` for arguments and parameters that no input of a model can be."""
    packed = pytree.tree_leaves(arguments, is_leaf=lambda x: isinstance(x, PackedSequence))
    if any(isinstance(leaf, PackedSequence) for leaf in packed):
        raise UnsupportedError(
            what,
            "module",
            "takes a packed sequence, whose sizes are data; pass a padded tensor and the lengths, "
            "and choose the steps that count by torch.where",
        )
    named = dict(enumerate(pytree.tree_leaves(arguments)))
    for name, leaf in [*named.items(), *module.named_parameters(), *module.named_buffers()]:
        role = f"argument {name}" if isinstance(name, int) else f"parameter {name!r}"
        if not isinstance(leaf, torch.Tensor):
            continue
        reason = None
        if leaf.is_complex():
            reason = f"is {leaf.dtype}; use torch.view_as_real and two real numbers for each"
        elif leaf.dtype == torch.bfloat16:
            reason = "is torch.bfloat16, which NumPy has not; call float() or half() of the module"
        elif leaf.layout != torch.strided or leaf.is_quantized or leaf.is_nested:
            reason = "is no dense tensor; make it one, by to_dense for instance"
        elif leaf.is_meta and not isinstance(name, int):
            reason = "is on the device 'meta', which has no data; load the parameters before"
        if reason is not None:
            raise UnsupportedError(what, "module", f"{role} {reason}")


def _shapes(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Any
) -> Any:
    """What `torch.export.export` takes as `dynamic_shapes`, for all arguments by their names."""
    given = signature.bind(*args, **kwargs).arguments
    if dynamic is True:
        return pytree.tree_map(_open_sizes, dict(given))
    if not dynamic:
        return None
    if not isinstance(dynamic, Mapping):
        dynamic = dict(zip(given, dynamic, strict=False))
    unknown = sorted(set(dynamic) - set(given))
    if unknown:
        raise InputError(
            f"dynamic: there is no argument {unknown[0]!r}, there are {', '.join(given)}"
        )
    return {
        name: dynamic[name] if name in dynamic else pytree.tree_map(lambda leaf: None, value)
        for name, value in given.items()
    }


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
