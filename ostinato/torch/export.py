"""Export a module of PyTorch to an ONNX model whose parameters are inputs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from ostinato.autodiff.gradient import expose
from ostinato.errors import InputError, UnsupportedError
from ostinato.model.names import Names
from ostinato.torch import attributes, draws
from ostinato.torch.autocast import with_casts
from ostinato.torch.constants import (
    TRANSLATIONS,
    functions_refused,
    mark_constants,
    refuse_gradients,
)
from ostinato.torch.copies import fit_copies
from ostinato.torch.dynamic_quantized import packed, unpacked
from ostinato.torch.explain import explained, quiet
from ostinato.torch.formulas import Formulas, translations
from ostinato.torch.layers import unseen_elements
from ostinato.torch.narrow import widen
from ostinato.torch.operators import with_formulas
from ostinato.torch.packed import unseen_sizes
from ostinato.torch.results import Result, flat, noted
from ostinato.torch.tracing import exact_numbers, functions_left, symbolic_lengths, traced_once

# The prefix of parameters' names: the exported module is the attribute of another.
_PREFIX = "module."
_OWNED = (InputKind.PARAMETER, InputKind.BUFFER)


@dataclass(frozen=True)
class Write:
    """A tensor that a call changes; its value is an output behind those of the results.

    owner: the name of a buffer or an attribute, or the place of a tensor among the arguments.
    assigned: whether the module puts another tensor in its place, which keeps its history.
    is_complex: whether the value is one of complex numbers, which are pairs in the model.
    """

    owner: str | int
    assigned: bool = False
    is_complex: bool = False


@dataclass(frozen=True)
class Exported:
    """A module as ONNX.

    model: its inputs are the tensors among the arguments, parameters and buffers, then `draws`.
    arguments: for each leaf of the arguments, whether it is a tensor; if not, the value that is
        part of the model. names: of parameters and buffers, in the order of the inputs.
    results: for each leaf of the results.
    in_spec, out_spec: how arguments, as `bound` has them, and results are nested.
    guards: conditions on sizes without which the program may do something else; see `_guards`.
    original: computes the outputs of the model in PyTorch.
    pairs: places of inputs that are complex in PyTorch, and in the model have a last axis of two.
    fixed: names of buffers and packed weights whose elements are part of the model.
    """

    model: ir.Model
    arguments: tuple[tuple[bool, Any], ...]
    names: tuple[str, ...]
    results: tuple[Result, ...]
    in_spec: Any
    out_spec: Any
    original: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
    guards: tuple[str, ...] = ()
    writes: tuple[Write, ...] = ()
    draws: draws.Draws = field(default_factory=draws.Draws)
    pairs: tuple[int, ...] = ()
    fixed: tuple[str, ...] = ()


def bound(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call as they are compiled: defaults included, by place where they can be.

    Defaults that are functions are left to the module: they are no arguments of a graph.

    Raises `InputError` for what the signature does not take.
    """
    try:
        found = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(f"{error}; the module takes {signature}") from None
    given = {*found.arguments}
    found.apply_defaults()
    for name in [n for n, value in found.arguments.items() if n not in given and callable(value)]:
        del found.arguments[name]
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
    _refuse_scripts(what, module)
    signature = inspect.signature(module.forward)
    restored = _as_given(signature, len(args), kwargs)
    args, kwargs = bound(signature, args, kwargs)
    _refuse_arguments(what, module, (args, kwargs))
    refuse_gradients(what, module)
    args, kwargs = _apart(module, (args, kwargs))
    leaves, hidden = _Leaves(module, restored), packed(module)
    shapes = _shapes(signature, args, kwargs, dynamic)
    in_spec, guards, program, converted = _traced(what, leaves, (args, kwargs), shapes)
    leaves.returned.exporting = False
    # Decomposition gives values other names.
    done = converted.exported_program.graph_signature
    written = {*map(_own_name, done.buffers_to_mutate.values())}
    _refuse_writes(
        what, leaves.returned, written, len(done.user_inputs_to_mutate), [*program.constants]
    )
    attributes.tell(what, leaves.returned.left_out)
    model: ir.Model = converted.model
    _widen_indices(model)
    widen(model)
    arguments = _arguments(done)
    names = _exposed(model, done, written | {write.owner for write in leaves.returned.writes})
    fixed = (*_fixed(model, done), *hidden)
    _name_inputs(model)
    drawn = draws.take(model)
    inputs = _inputs(leaves, (args, kwargs), names)
    pairs = tuple(place for place, tensor in enumerate(inputs) if tensor.is_complex())
    return Exported(
        model,
        arguments,
        tuple(map(_own_name, names)),
        tuple(leaves.returned.results),
        in_spec,
        leaves.returned.spec,
        functools.partial(_original, leaves, in_spec, arguments, names, pairs),
        guards,
        tuple(leaves.returned.writes),
        drawn,
        pairs,
        fixed,
    )


def _traced(
    what: str, leaves: _Leaves, arguments: tuple[Sequence[Any], Mapping[str, Any]], shapes: Any
) -> tuple[Any, tuple[str, ...], torch.export.ExportedProgram, torch.onnx.ONNXProgram]:
    """Trace a call of the module: how arguments are nested, guards, the program, and it as ONNX.

    shapes: what `torch.export.export` takes as `dynamic_shapes`.
    """
    # Neither a fused operator nor a view of a tensor without versions, as these modes give.
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        quiet(),
        explained(what),
        functions_left(),
        unpacked(what, leaves.module),
    ):
        args, kwargs = tuple(arguments[0]), dict(arguments[1])
        with symbolic_lengths():
            program = torch.export.export(leaves, args, kwargs, dynamic_shapes=shapes)
        in_spec, guards = program.call_spec.in_spec, _guards(program, shapes is not None)
        return (in_spec, guards, *_converted(program))


def _converted(
    program: torch.export.ExportedProgram,
) -> tuple[torch.export.ExportedProgram, torch.onnx.ONNXProgram]:
    """The program with formulas for what the exporter has no form for, and that as ONNX."""
    # Before formulas, which would enter what is computed without gradients, and those within.
    mark_constants(program)
    fit_copies(program)
    program = with_casts(program)
    with torch.autocast("cpu", enabled=False):
        program = with_formulas(program)
        mark_constants(program)
        with traced_once(), exact_numbers():
            converted = torch.onnx.export(
                program,
                dynamo=True,
                optimize=False,
                verbose=False,
                custom_translation_table=TRANSLATIONS | translations(),
            )
    assert converted is not None
    return program, converted


def _arguments(done: ExportGraphSignature) -> tuple[tuple[bool, Any], ...]:
    """For each leaf of the arguments, whether it is a tensor; if not, its value."""
    return tuple(
        (False, spec.arg.value) if isinstance(spec.arg, ConstantArgument) else (True, None)
        for spec in done.input_specs
        if spec.kind == InputKind.USER_INPUT
    )


def _inputs(leaves: _Leaves, arguments: Any, names: Sequence[str]) -> list[torch.Tensor]:
    """The tensors among the arguments, then the parameters and buffers of these names."""
    own = {
        **dict(leaves.named_parameters(remove_duplicate=False)),
        **dict(leaves.named_buffers(remove_duplicate=False)),
    }
    return [*_tensors(arguments), *(own[name] for name in names)]


def _tensors(arguments: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def _fixed(model: ir.Model, done: ExportGraphSignature) -> tuple[str, ...]:
    """The names of the buffers and parameters that are constants of the model."""
    names = [str(s.target) for s in done.input_specs if s.kind in _OWNED]
    given = [(name, model.graph.initializers.get(name)) for name in names]
    return tuple(_own_name(name) for name, value in given if value is not None and value.uses())


def _exposed(model: ir.Model, done: ExportGraphSignature, changed: Collection[Any]) -> list[str]:
    """Make inputs of float parameters and buffers, and of those that a call changes; their names.

    done: what the model takes and gives. changed: what a call writes.
    """
    floats, others = [], []
    for spec in done.input_specs:
        value = None
        if spec.kind in _OWNED:
            value = model.graph.initializers.get(spec.target)
        if value is not None and value.dtype is not None and value.dtype.is_floating_point():
            floats.append(spec.target)
        elif value is not None and _own_name(spec.target) in changed:
            others.append(spec.target)
    expose(model, floats)
    for name in others:
        value = model.graph.initializers.pop(name)
        value.const_value = None
        model.graph.inputs.append(value)
    return [*floats, *others]


def _apart(module: torch.nn.Module, arguments: Any) -> Any:
    """The arguments, each with memory of its own: the exporter takes the same tensor as one input.

    So does a parameter that is an argument.
    """
    seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def alone(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.detach().clone()

    return pytree.tree_map(alone, arguments)


def _name_inputs(model: ir.Model) -> None:
    """Give inputs the names of the module, and other values that have one of those another one."""
    for value in model.graph.inputs:
        value.name = _own_name(str(value.name))
        _settle(value)
    taken = {value.name for value in model.graph.inputs}
    names = Names(model)
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if value.name in taken:
                value.name = names.fresh(str(value.name))


def _original(
    leaves: _Leaves,
    in_spec: Any,
    arguments: Sequence[tuple[bool, Any]],
    names: Sequence[str],
    pairs: Sequence[int],
    tensors: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    """The outputs of the model for these inputs, as PyTorch computes them."""
    given = iter([torch.view_as_complex(t) if i in pairs else t for i, t in enumerate(tensors)])
    values = [next(given) if is_tensor else constant for is_tensor, constant in arguments]
    args, kwargs = pytree.tree_unflatten(values, in_spec)
    own = dict(zip(names, given, strict=True))
    outputs: Sequence[torch.Tensor] = torch.func.functional_call(leaves, own, args, kwargs)
    return outputs


def _own_name(name: str) -> str:
    return name.removeprefix(_PREFIX)


def _refuse_writes(
    what: str, returned: _Returned, buffers: set[str], arguments: int, constants: Sequence[str]
) -> None:
    """Raise `UnsupportedError` for what a call writes and cannot be an output.

    buffers, arguments: the names and the number of those that are written in place. constants:
        names of attributes that the program reads as they are now.
    """
    owners = [write.owner for write in returned.writes]
    lost = {*returned.lost, *(buffers - {*owners}), *({*map(_own_name, constants)} & {*owners})}
    if arguments > sum(isinstance(owner, int) for owner in owners):
        lost.add("an argument")
    if lost:
        raise UnsupportedError(
            what, "module", f"writes into {min(lost)!r} when it is called; return the value"
        )


def _as_given(
    signature: inspect.Signature, count: int, given: Mapping[str, Any]
) -> Callable[[Sequence[Any], Mapping[str, Any]], tuple[Sequence[Any], dict[str, Any]]]:
    """A function from arguments as `bound` has them to the way in which they were given.

    count: how many were given by place. given: those by name. Wrappers of `forward` may tell one
    from the other, and defaults from what was given.
    """
    names = [*signature.parameters]

    def restored(
        args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        named = {**dict(zip(names[count:], args[count:], strict=False)), **kwargs}
        return args[:count], {name: named[name] for name in given}

    return restored


@dataclass
class _Returned:
    """The results of a call: each leaf, how they are nested, and what the call has written.

    lost: names of values that it has written and no output can be. left_out: of those that compiled
    calls do not write. exporting: whether formulas replace operators that the exporter cannot
    write.
    """

    exporting: bool = True
    results: list[Result] = field(default_factory=list)
    spec: Any = None
    writes: list[Write] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class _Leaves(torch.nn.Module):
    """A module as a function to the tensors among its results, each once."""

    def __init__(self, module: torch.nn.Module, restored: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        # The exporter sets attributes back to what they were.
        self.returned = returned = _Returned()

        @functools.wraps(module.forward)
        def forward(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
            args, kwargs = restored(args, kwargs)
            before, others = _held(module, (args, kwargs)), attributes.kept(module)
            versions = {owner: tensor._version for owner, tensor in before.items()}
            if not returned.exporting:
                found = module(*args, **kwargs)
            else:
                with Formulas(), functions_refused(), unseen_elements(), unseen_sizes():
                    found = module(*args, **kwargs)
            after, changed = _held(module, (args, kwargs)), attributes.kept(module)
            leaves, returned.spec = flat(found)
            tensors: dict[int, torch.Tensor] = {}
            returned.results = [noted(leaf, tensors) for leaf in leaves]
            values: list[torch.Tensor] = []
            returned.writes, returned.lost = [], attributes.lost(others, changed)
            returned.left_out = attributes.left_out(others, changed)
            buffers, parameters = dict(module.named_buffers()), dict(module.named_parameters())
            for owner, tensor in after.items():
                old = before.get(owner)
                if old is not None and tensor is old and old._version == versions[owner]:
                    continue
                is_kept = isinstance(owner, int) or owner in buffers
                is_kept = _is_alike(old, tensor) if is_kept else tensor is not old
                if is_kept and owner not in parameters:
                    returned.writes.append(Write(owner, tensor is not old, tensor.is_complex()))
                    values.append(tensor.clone())
                else:
                    returned.lost.append(str(owner))
            made = *tensors.values(), *values
            return tuple(torch.view_as_real(t) if t.is_complex() else t for t in made)

        # The names of its arguments become those of the inputs.
        self.forward = forward


def _held(module: torch.nn.Module, arguments: Any) -> dict[str | int, torch.Tensor]:
    """Tensors that a call may write into: those of modules by name, arguments by place."""
    return {
        **{
            f"{path}.{key}".lstrip("."): value
            for path, part in module.named_modules()
            for key, value in (
                *vars(part).items(),
                *part._buffers.items(),
                *part._parameters.items(),
            )
            if isinstance(value, torch.Tensor)
        },
        **dict(enumerate(_tensors(arguments))),
    }


def _is_alike(old: torch.Tensor | None, new: torch.Tensor) -> bool:
    return old is not None and old.shape == new.shape and old.dtype == new.dtype


def _widen_indices(model: ir.Model) -> None:
    """Make int64 of indices that the exporter leaves in int32, where ONNX takes no others."""
    for node in [*model.graph.all_nodes()]:
        indices = node.inputs[1] if node.op_type in ("GatherND", "ScatterND") else None
        if indices is not None and indices.dtype != ir.DataType.INT64:
            cast = ir.node("Cast", [indices], {"to": ir.DataType.INT64})
            cast.outputs[0].dtype = ir.DataType.INT64
            node.prepend(cast)
            node.replace_input_with(1, cast.outputs[0])


def _settle(value: ir.Value) -> None:
    """Make a number of a size that the exporter has as the name of one."""
    if value.shape is not None:
        known = [str(getattr(size, "value", size)) for size in value.shape]
        sizes = [int(k) if k.isdecimal() else s for k, s in zip(known, value.shape, strict=True)]
        value.shape = ir.Shape(sizes)


def _guards(program: Any, dynamic: bool) -> tuple[str, ...]:
    """Conditions on sizes, as Python with the arguments in `L`, by which the program went this way.

    Without those that sizes differ: PyTorch assumes that of all sizes that are not 1.
    """
    found = getattr(program, "_guards_code", ()) if dynamic else ()
    return tuple(guard for guard in found if "!=" not in guard)


def _refuse_scripts(what: str, module: torch.nn.Module) -> None:
    """Raise `UnsupportedError` for TorchScript, of which PyTorch's exporter sees no operators."""
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise UnsupportedError(
                what,
                "module",
                f"{f'part {name!r}' if name else 'it'} is TorchScript, which torch.export does not "
                "take: give the module of Python that it was made from; of a traced one that is "
                "only a file, torch._export.converter.TS2EPConverter(module, example_inputs)"
                ".convert().module() is a module",
            )


def _refuse_arguments(what: str, module: torch.nn.Module, arguments: Any) -> None:
    """Raise `UnsupportedError` for arguments and parameters that no input of a model can be."""
    packed = pytree.tree_leaves(arguments, is_leaf=lambda x: isinstance(x, PackedSequence))
    if any(isinstance(leaf, PackedSequence) for leaf in packed):
        raise UnsupportedError(
            what,
            "module",
            "takes a packed sequence, whose sizes are data; pass padded rows and their lengths, "
            "and call pack_padded_sequence within the module",
        )
    named = dict(enumerate(pytree.tree_leaves(arguments)))
    for name, leaf in [*named.items(), *module.named_parameters(), *module.named_buffers()]:
        role = f"argument {name}" if isinstance(name, int) else f"parameter {name!r}"
        if not isinstance(leaf, torch.Tensor):
            continue
        reason = None
        if leaf.layout != torch.strided or leaf.is_quantized or leaf.is_nested:
            reason = "is no dense tensor; make it one, by to_dense for instance"
        elif leaf.is_meta and not isinstance(name, int):
            reason = "is on the device 'meta', which has no data; load the parameters before"
        if reason is not None:
            raise UnsupportedError(what, "module", f"{role} {reason}")


def _shapes(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Any
) -> Any:
    """The `dynamic_shapes` of `torch.export.export`, for all arguments by their names."""
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
