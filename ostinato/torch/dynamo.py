"""The backend that `torch.compile(module, backend="ostinato")` finds by its entry point."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import free_symbols, optimization_hint

from ostinato.errors import OptionError, OstinatoError, UnsupportedError
from ostinato.options import Options
from ostinato.torch.dynamo_packed import in_torch, install
from ostinato.torch.explain import last_line
from ostinato.torch.export import export
from ostinato.torch.module import Call

_logger = logging.getLogger(__name__)

_CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
# Up to this many variants of a graph with numbers among its arguments are compiled; then PyTorch
# runs it.
_MOST_VARIANTS = 8

# Else nn.RNN, GRU and LSTM each break the graph. Dynamo asks nobody whose backend it traces for, so
# this holds for the process, from the moment that a program asks for this backend.
torch._dynamo.config.allow_rnn = True


def backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo; one that cannot be compiled runs in PyTorch, with a warning.

    options: fields of `Options`. Raises `OptionError` for one that does not exist.
    """
    known = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(set(options or ()) - set(known))
    if unknown:
        raise OptionError(f"options: there is no {unknown[0]!r}, there are {', '.join(known)}")
    settings = Options(**{"fallback": False, **(options or {})})
    _tell_break(module)
    if all(map(_is_number, module.graph.nodes)):
        forward: Callable[..., Any] = module.forward
        return forward
    in_torch(module)
    graph = _Graph(module, settings)
    if not graph.settings:
        graph.compile(())
    return graph


def _is_number(node: torch.fx.Node) -> bool:
    """Whether a node of a graph is a size, or a number computed from sizes, as Python has them."""
    given = node.meta.get("example_value")
    return node.op == "output" or isinstance(
        given, int | float | torch.SymInt | torch.SymFloat | torch.SymBool
    )


def _tell_break(module: torch.fx.GraphModule) -> None:
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        text = str(reason.reason).strip().splitlines()
        where = last_line(reason.user_stack)
        _logger.warning("the graph breaks at %s: %s", where, text[0] if text else "")


class _Graph:
    """A graph of Dynamo, compiled; once for each combination of its settings.

    settings: the arguments that are numbers from Python, and no sizes of tensors.
    """

    def __init__(self, module: torch.fx.GraphModule, options: Options) -> None:
        self._module, self._options = module, options
        holders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._given = [node.meta["example_value"] for node in holders]
        scalars = {place for place, node in enumerate(holders) if _is_scalar(node)}
        self._tensors = [
            place
            for place, given in enumerate(self._given)
            if isinstance(given, torch.Tensor) and place not in scalars
        ]
        self._origins = [self._origin(place) for place in range(len(holders))]
        self.settings = [place for place, origin in enumerate(self._origins) if origin is None]
        self._calls: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def _origin(self, place: int) -> tuple[int, int | None] | None:
        """The tensor that an argument is, or the tensor and the axis whose size it is."""
        given = self._given[place]
        if place in self._tensors:
            return self._tensors.index(place), None
        if isinstance(given, torch.SymInt):
            for position, other in enumerate(self._tensors):
                for axis, size in enumerate(self._given[other].shape):
                    if isinstance(size, torch.SymInt) and size.node.expr == given.node.expr:
                        return position, axis
        return None

    def __call__(self, *args: Any) -> Any:
        values = tuple([_number(args[place]) for place in self.settings])
        try:
            return (self._calls.get(values) or self.compile(values))(*args)
        except UnsupportedError as error:
            # The gradient, which is compiled when one is wanted.
            return self._give_up(values, error)(*args)

    def compile(self, values: tuple[Any, ...]) -> Callable[..., Any]:
        """Compile for these values of the settings."""
        try:
            if len(self._calls) >= _MOST_VARIANTS:
                raise UnsupportedError(
                    "graph", "argument", f"there are {_MOST_VARIANTS} values of a number already"
                )
            with unset_fake_temporarily():
                found = self._compiled(values)
        except OstinatoError as error:
            found = self._give_up(values, error)
        self._calls[values] = found
        return found

    def _give_up(self, values: tuple[Any, ...], error: OstinatoError) -> Callable[..., Any]:
        count = len(self._module.graph.nodes)
        _logger.warning("a graph of %d nodes runs in PyTorch: %s", count, error)
        found: Callable[..., Any] = self._module.forward
        self._calls[values] = found
        return found

    def _compiled(self, values: tuple[Any, ...]) -> Callable[..., Any]:
        known = dict(zip(self.settings, values, strict=True))
        origins = [(known[i],) if o is None else o for i, o in enumerate(self._origins)]
        whole = _OfTensors(_exportable(self._module, known), origins)
        tensors = [self._given[place] for place in self._tensors]
        sizes = tuple({a: torch.export.Dim.AUTO for a in _open_axes(given)} for given in tensors)
        exported = export(
            whole, [*map(_example, tensors)], {}, {"tensors": sizes} if sizes else None
        )
        for value, wanted in zip(exported.model.graph.inputs, sizes, strict=False):
            for axis in wanted:
                if value.shape is None or isinstance(value.shape[axis], int):
                    raise UnsupportedError(
                        str(value.name), "input", f"its axis {axis} has to have a fixed size"
                    )
        call = Call(whole, exported, self._options, (tensors, {}))
        if len(tensors) == len(self._given):
            return lambda *args: call(args, {})
        return lambda *args: call(tuple(args[place] for place in self._tensors), {})


class _OfTensors(torch.nn.Module):
    """A graph as a function of the tensors among its arguments.

    origins: for each argument of the graph the tensor and None, or a tensor and the axis whose size
        it is, or its value alone.
    """

    def __init__(self, module: torch.nn.Module, origins: Sequence[tuple[Any, ...]]) -> None:
        super().__init__()
        self.graph_module, self.origins = module, origins

    def forward(self, *tensors: torch.Tensor) -> Any:
        args = []
        for first, *axis in self.origins:
            if not axis:
                args.append(first)
            else:
                args.append(tensors[first] if axis[0] is None else tensors[first].shape[axis[0]])
        return self.graph_module(*args)


def _is_scalar(node: torch.fx.Node) -> bool:
    """Whether the argument is a number of Python that Dynamo hands over as a tensor."""
    return bool(node.users) and all(_is_item(user) for user in node.users)


def _is_item(node: torch.fx.Node) -> bool:
    return bool(node.op == "call_method" and node.target == "item")


def _number(given: Any) -> Any:
    return given.item() if isinstance(given, torch.Tensor) else given


def _exportable(module: torch.fx.GraphModule, known: Mapping[int, Any]) -> torch.nn.Module:
    """The graph with numbers in place of what `item` made of these arguments.

    `.data`, which the exporter does not follow, becomes `detach`, and a checkpoint, which says what
    to keep for the gradient, a call.
    """
    copied = copy.deepcopy(module.graph)
    holders = [node for node in copied.nodes if node.op == "placeholder"]
    for place, value in known.items():
        for user in list(holders[place].users):
            if _is_item(user):
                user.replace_all_uses_with(value)
                copied.erase_node(user)
    for node in copied.find_nodes(op="call_function", target=torch._C._autograd._get_data_attr):
        node.target = torch.Tensor.detach
    for node in copied.find_nodes(op="call_function", target=_CHECKPOINT):
        node.target, node.kwargs = _called, {}
    return torch.fx.GraphModule(module, copied)


def _called(body: Callable[..., Any], *args: Any) -> Any:
    return body(*args)


def _open_axes(tensor: torch.Tensor) -> list[int]:
    return [axis for axis, size in enumerate(tensor.shape) if free_symbols(size)]


def _example(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the sizes of this one, some of which may be symbols."""
    sizes = [optimization_hint(size) for size in tensor.shape]
    return torch.empty(sizes, dtype=tensor.dtype, requires_grad=tensor.requires_grad)


install(backend)
