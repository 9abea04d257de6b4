"""A module whose calls run compiled code."""

from __future__ import annotations

import builtins
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from ostinato.errors import InputError, UnsupportedError
from ostinato.options import Options
from ostinato.runtime.session import InferenceSession
from ostinato.torch.export import Exported, Write, bound, export
from ostinato.torch.native import Native, downstream
from ostinato.torch.results import Result, rebuilt

# Functions that PyTorch's conditions on sizes call.
_FUNCTIONS = {"max": max, "min": min, "abs": abs, "int": int, "round": round}
_GUARD_NAMES = {"__builtins__": _FUNCTIONS, "math": math, "torch": torch}


def compile(
    module: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any],
    example_inputs: Sequence[Any] | torch.Tensor = (),
    dynamic: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> CompiledModule:
    """Compile a module; what comes back is called as it is, and trained by the same parameters.

    module: or a function, a method of a module (modules that it refers to are found), or an
        `ExportedProgram`.
    example_inputs: arguments of a call, a tuple or one tensor; example_kwargs: those by name. Sizes
        and types count, not the elements.
    dynamic: None for calls of these sizes only, True for sizes that may all change (axes of the
        examples should then be longer than 1), or what `torch.export.export` takes as
        `dynamic_shapes`, such as `{"x": {0: torch.export.Dim("time")}}`.
    options: how to compile and run; by default nothing is left to the reference kernels.

    Parameters and buffers of float type are read where they are in every call, those of other types
    are part of the model, which is compiled again where they have changed. Gradients flow to
    parameters and arguments.

    Raises `UnsupportedError` naming the line or node that has no native form.
    """
    if isinstance(dynamic, torch.Tensor):
        raise InputError("dynamic: got a tensor; several example inputs are a tuple: (x, h)")
    if isinstance(module, torch.export.ExportedProgram):
        module = module.module()
    elif not isinstance(module, torch.nn.Module):
        module = _Function(module)
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else example_inputs
    return CompiledModule(module, tuple(inputs), dict(example_kwargs or {}), dynamic, options)


class _Function(torch.nn.Module):
    """A function as a module, which has the modules that the function refers to."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        if not callable(function):
            got = type(function).__name__
            raise InputError(f"module: expected a module or a function, got {got}")
        owner = getattr(function, "__self__", None)
        found: dict[str, Any] = {} if owner is None else {"owner": owner}
        if inspect.isfunction(function):
            names = inspect.getclosurevars(function)
            found |= {**names.globals, **names.nonlocals}
        for name, value in found.items():
            if isinstance(value, torch.nn.Module):
                self.add_module(name, value)
        self.training = all(module.training for module in self.children())
        self.forward = _with_signature(function)


def _with_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or one of any arguments where it has not said which, as builtins."""
    try:
        inspect.signature(function)
    except ValueError:
        return lambda *args, **kwargs: function(*args, **kwargs)
    return function


class CompiledModule(torch.nn.Module):
    """The result of `compile`: `module` with a compiled forward call.

    The mode counts: after `train()` or `eval()`, of all or of a part, and under `torch.autocast`
    the module is compiled for it, once; again where a part of it, or a buffer of integers, changes.
    Copies, and objects read from a pickle, compile again when they are called. State dicts have the
    keys of `module`, and attributes that are set are set on it.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dynamic: Any,
        options: Options | None,
    ) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self.register_load_state_dict_post_hook(_own_keys)
        self._example = args, kwargs, dynamic
        self._options = options or Options(fallback=False)
        self._prepare()
        self._call()

    def _prepare(self) -> None:
        self._parts = list(self.module.modules())
        # Tables where programs replace parts: those that have some, and the empty ones.
        tables = [part._modules for part in self._parts]
        self._tables, self._leaves = [*filter(None, tables)], [t for t in tables if not t]
        self._children = _children(self._tables)
        self._calls: dict[tuple[Any, ...], Call] = {}
        # Attributes that were no tensors when a call was compiled that makes tensors of them.
        self._late: dict[tuple[Any, ...], list[tuple[dict[Any, Any], Any]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled code."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` gave."""
        super().__setstate__(state)
        self._prepare()

    def __getattr__(self, name: str) -> Any:
        """Attributes of `module`, where there is none of its own."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of `module`, where it is none of its own."""
        if name in _OWN or name in vars(self) or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self.module, name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute of `module`, where it is none of its own."""
        if name in vars(self):
            super().__delattr__(name)
        else:
            delattr(self.module, name)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Give that of `module`, with its keys."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load one of `module`."""
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load as a part of another module: move the keys of `module` to where it is found."""
        for key in [key for key in state_dict if key.startswith(prefix)]:
            state_dict[f"{prefix}module.{key[len(prefix) :]}"] = state_dict.pop(key)
        self._prefix = prefix
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def session(self) -> InferenceSession:
        """The session that calls without gradients go to, for its report."""
        return self._call().native.session

    def _mode(self) -> tuple[Any, ...]:
        """A key of what a program depends on beside its arguments; none stay for replaced parts."""
        if any(self._leaves) or _children(self._tables) != self._children:
            self._prepare()
        cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        mode = cast, *[part.training for part in self._parts]
        if not self._late:
            return mode
        late = self._late.get(mode, ())
        return *mode, *[isinstance(table.get(key), torch.Tensor) for table, key in late]

    def _call(self) -> Call:
        mode = self._mode()
        found = self._calls.get(mode)
        if found is None or found.is_outdated():
            args, kwargs, dynamic = self._example
            exported = export(self.module, args, kwargs, dynamic)
            found = Call(self.module, exported, self._options, (args, kwargs))
            if found.late:
                self._late.setdefault(mode[: 1 + len(self._parts)], found.late)
            self._calls[self._mode()] = found
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled code."""
        if torch._C._are_functorch_transforms_active():
            raise UnsupportedError(
                type(self.module).__name__,
                "",
                "torch.func (grad, vmap, jvp, ..) does not see into compiled code: give it the "
                "module itself, which is the attribute `module`, or use torch.autograd and an axis "
                "for the batch",
            )
        if torch.compiler.is_compiling():
            # Called within a module that is compiled as a whole.
            return self.module(*args, **kwargs)
        return self._call()(args, kwargs)


# Attributes that `_prepare` makes, and others that are not those of `module`.
_DERIVED = {"_parts", "_tables", "_leaves", "_children", "_calls", "_late"}
_OWN = _DERIVED | {"module", "training", "_example", "_options", "_prefix"}


def _own_keys(compiled: CompiledModule, found: Any) -> None:
    """Have what a state dict lacks the keys that it has there, behind `_load_from_state_dict`."""
    prefix = f"{compiled._prefix}module."
    for i, key in enumerate(found.missing_keys):
        if key.startswith(prefix):
            found.missing_keys[i] = compiled._prefix + key.removeprefix(prefix)


def _children(tables: Sequence[dict[str, Any]]) -> list[Any]:
    return [*itertools.chain.from_iterable(map(dict.values, tables))]


@dataclass(frozen=True)
class _Write:
    """The target of a value behind a call.

    table, owner: of a buffer or attribute. place: of the tensor among the inputs, None for one that
        the model does not read. assigned, lasts: whether it replaces the buffer, with its history.
        is_complex: whether it is one of complex numbers.
    """

    table: dict[Any, Any]
    owner: str | int
    place: int | None
    assigned: bool
    lasts: bool
    is_complex: bool


def _written(
    module: torch.nn.Module, exported: Exported, write: Write, places: Mapping[str, int]
) -> _Write:
    if isinstance(write.owner, int):
        return _Write({}, write.owner, write.owner, False, False, write.is_complex)
    place = places.get(write.owner)
    lasts = place is None or _has_gradient(exported.model, write.owner)
    table, key = _owner(module, write.owner)
    return _Write(table, key, place, write.assigned, lasts, write.is_complex)


class Call:
    """A compiled module: arguments as Python has them to tensors, and back.

    example: arguments and keyword arguments for which it was exported.
    """

    def __init__(
        self, module: torch.nn.Module, exported: Exported, options: Options, example: Any
    ) -> None:
        count = len(exported.model.graph.outputs) - len(exported.writes)
        copied = [count + i for i, write in enumerate(exported.writes) if not write.assigned]
        has_effects = bool(exported.writes or exported.draws.order)
        original = None if has_effects else exported.original
        self.native = Native(exported.model, options, copied, original)
        self._exported, self._count = exported, count
        first = sum(is_tensor for is_tensor, _ in exported.arguments)
        places = {name: first + place for place, name in enumerate(exported.names)}
        self._writes = [_written(module, exported, write, places) for write in exported.writes]
        # The module may ask for an attribute before it makes a tensor of it (`if self.h is None`).
        self.late = [
            (write.table, write.owner)
            for write in self._writes
            if write.assigned and not isinstance(write.table.get(write.owner), torch.Tensor)
        ]
        self._has_effects = has_effects
        self._owners = [_owner(module, name) for name in exported.names]
        # Constants of the model: their place, the tensor, and how often that had been written.
        fixed = [_owner(module, name) for name in exported.fixed]
        self._fixed = [(*place, *_contents(*place)) for place in fixed]
        self._signature = inspect.signature(module.forward)
        # Conditions on sizes, compiled, and the sizes for which they have been checked.
        self._guards = [
            (guard, builtins.compile(guard, "<guard>", "eval")) for guard in exported.guards
        ]
        self._passed: set[tuple[torch.Size, ...]] = set()
        # Nothing to take apart: a call with that many tensors, all others have their defaults.
        args, kwargs = example
        given = [*args, *kwargs.values()]
        tensors = sum(is_tensor for is_tensor, _ in exported.arguments)
        plain = all(isinstance(a, torch.Tensor) for a in given) and len(args) == tensors
        self._plain = len(args) if plain else -1
        # The same of results: one tensor, or a tuple of all in order.
        self._form: Callable[[Sequence[torch.Tensor]], Any] | None = None
        whole = [Result(place) for place in range(count)]
        if [*exported.results] == whole:
            if exported.out_spec == pytree.tree_structure(torch.empty(0)):
                self._form = operator.itemgetter(0)
            elif exported.out_spec == pytree.tree_structure((torch.empty(0),) * len(whole)):
                self._form = tuple

    def is_outdated(self) -> bool:
        """Whether a buffer that is part of the model has been replaced or written."""
        for table, key, tensor, writes in self._fixed:
            now, count = _contents(table, key)
            if now is not tensor or count != writes:
                return True
        return False

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._guards:
            self._check(args, kwargs)
        if kwargs or len(args) != self._plain:
            args = self._tensors(args, kwargs)
        try:
            tensors = (*args, *[table[name] for table, name in self._owners])
            if self._exported.pairs:
                tensors = self._as_pairs(tensors)
            results = self._run(tensors) if self._has_effects else self.native(tensors)
        except InputError as error:
            raise self._refusal(tensors, error) from None
        except (AttributeError, TypeError, NotImplementedError):
            # Something that is no tensor, most likely: then this says which.
            self._tensors(args, kwargs)
            raise
        if self._form is not None:
            return self._form(results)
        leaves = [rebuilt(result, results) for result in self._exported.results]
        return pytree.tree_unflatten(leaves, self._exported.out_spec)

    def _refusal(self, tensors: Sequence[torch.Tensor], error: InputError) -> InputError:
        """The error of a session in the words of those who have tensors."""
        for value, tensor in zip(self._exported.model.graph.inputs, tensors, strict=False):
            if value.dtype is None:
                continue
            dtype = ir.tensor_adapters.to_torch_dtype(value.dtype)
            if tensor.dtype != dtype:
                return InputError(
                    f"{value.name!r} is {tensor.dtype}, but was {dtype} when the module was "
                    "compiled; compile it again for this type"
                )
        return InputError(f"{error}; compile it again for these sizes, or with dynamic=True")

    def _as_pairs(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Complex tensors as pairs of real numbers."""
        found = [*tensors]
        for place in self._exported.pairs:
            found[place] = torch.view_as_real(found[place].resolve_conj())
        return tuple(found)

    def _run(self, tensors: tuple[torch.Tensor, ...]) -> Sequence[torch.Tensor]:
        """Call with random numbers drawn now, and write what the module writes."""
        given = [*tensors]
        for write in self._writes:
            if write.place is not None and not write.assigned and torch.is_grad_enabled():
                if tensors[write.place].requires_grad:
                    raise UnsupportedError(
                        str(write.owner), "module", "is written into and wants a gradient"
                    )
                # The backward call may read what it was.
                given[write.place] = tensors[write.place].clone()
        results = self.native((*given, *self._exported.draws(tensors)))
        for write, value in zip(self._writes, results[self._count :], strict=True):
            if write.is_complex and (write.assigned or write.place is None):
                value = torch.view_as_complex(value)
            if write.assigned:
                write.table[write.owner] = value if write.lasts else value.detach()
                continue
            owner = write.table[write.owner] if write.place is None else tensors[write.place]
            with torch.no_grad():
                owner.copy_(value)
        return results[: self._count]

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `InputError` for sizes of which the program may do something else."""
        tensors = self._tensors(args, kwargs)
        sizes = tuple(tensor.shape for tensor in tensors)
        if sizes in self._passed:
            return
        named = {"L": self._signature.bind(*args, **kwargs).arguments}
        for text, guard in self._guards:
            if not _holds(guard, named):
                raise InputError(
                    f"sizes are {[*map(list, sizes)]}, but when the module was compiled it went "
                    f"the way of {text.replace('L[', '[')}; compile it again for this call"
                )
        self._passed.add(sizes)

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        args, kwargs = bound(self._signature, args, kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        exported = self._exported
        if spec != exported.in_spec:
            raise InputError(
                f"arguments are nested as {_nesting(spec)}, but were {_nesting(exported.in_spec)} "
                "when the module was compiled; compile it again for this call"
            )
        tensors = []
        for place, (leaf, (is_tensor, constant)) in enumerate(
            zip(leaves, exported.arguments, strict=True)
        ):
            if is_tensor:
                if not isinstance(leaf, torch.Tensor):
                    raise InputError(f"argument {place} is {leaf!r}, expected a tensor")
                if leaf.layout != torch.strided or leaf.is_meta:
                    raise InputError(
                        f"argument {place} is a tensor of layout {leaf.layout} on the device "
                        f"{leaf.device}, expected a dense one on the CPU"
                    )
                tensors.append(leaf)
            elif isinstance(leaf, torch.Tensor) or leaf != constant:
                raise InputError(
                    f"argument {place} is {_told(leaf)}, but was {constant!r} when the module was "
                    "compiled; compile it again for this value"
                )
        return tuple(tensors)


def _has_gradient(model: ir.Model, name: str) -> bool:
    """Whether an output depends on this input by more than its value."""
    graph = model.graph
    given = [value for value in graph.inputs if value.name == name]
    return not downstream(model, given).isdisjoint(graph.outputs)


def _holds(guard: CodeType, named: dict[str, Any]) -> bool:
    """Whether the arguments have sizes as the guard demands; not where they have fewer axes."""
    try:
        return bool(eval(guard, dict(_GUARD_NAMES), named))
    except IndexError:
        return False


def _told(leaf: Any) -> str:
    return "a tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)


def _nesting(spec: Any) -> str:
    """Arguments with `*` for each leaf, such as `((*, (*, *)), {'scale': *})`."""
    return str(pytree.tree_unflatten([_STAR] * spec.num_leaves, spec))


class _Star:
    def __repr__(self) -> str:
        return "*"


_STAR = _Star()


def _contents(table: Mapping[str, Any], key: str) -> tuple[Any, int]:
    """A tensor, and how often it has been written where that is counted."""
    tensor = table.get(key)
    if not isinstance(tensor, torch.Tensor) or tensor.is_inference():
        return tensor, 0
    return tensor, tensor._version


def _owner(module: torch.nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """The table of a parameter, buffer or attribute, where programs put other tensors; its key."""
    path, _, key = name.rpartition(".")
    part = module.get_submodule(path)
    tables = part._parameters, part._buffers
    return next((table for table in tables if key in table), vars(part)), key
