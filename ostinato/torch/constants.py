"""Operators that PyTorch takes as constants of gradients, and gradients that are not compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from onnxscript.values import Opset
from torch import Tensor
from torch.utils.checkpoint import CheckpointFunction

from ostinato.autodiff import stops
from ostinato.errors import UnsupportedError
from ostinato.torch.detached import is_without_gradients, parts_of, written_detaches

_OWN_GRADIENT = (
    "a torch.autograd.Function has a gradient of its own, which is not compiled; write "
    "x + (y - x).detach() for a result y with the gradient of x"
)
INNER_GRADIENT = (
    "a gradient is taken within the module, which is not compiled; compile the part that it is of, "
    "and take it of that"
)


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def mark_constants(program: torch.export.ExportedProgram) -> None:
    """Have `detach` and what is computed without gradients stay in the program, in place.

    The exporter leaves both out.
    """
    kept = written_detaches(program, CONSTANT)
    parts, plain = parts_of(program)
    for part in parts:
        for node in [*part.graph.nodes]:
            if node.target in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default):
                if _is_float(node.meta.get("val")) and part not in plain and node not in kept:
                    node.target = CONSTANT
            elif is_without_gradients(node):
                _mark_results(node)
        part.recompile()


def _mark_results(call: torch.fx.Node) -> None:
    for result in [*call.users]:
        if not _is_float(result.meta.get("val")):
            continue
        users = [*result.users]
        with call.graph.inserting_after(result):
            marked = call.graph.call_function(CONSTANT, (result,))
        marked.meta["val"] = result.meta["val"]
        for user in users:
            user.replace_input_with(result, marked)


@contextmanager
def functions_refused() -> Iterator[None]:
    """Raise `UnsupportedError` for functions with a gradient of their own, and gradients within.

    The exporter sees what functions compute, and no gradient.
    """
    original = torch.autograd.Function.__dict__["apply"]
    grad = torch.autograd.grad

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is CheckpointFunction:
            # It would compute without gradients.
            run, _, *given = args
            return run(*given)
        if cls.__module__.partition(".")[0] == "torch":
            return original.__get__(None, cls)(*args, **kwargs)
        raise UnsupportedError(cls.__name__, "module", _OWN_GRADIENT)

    def take(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] == "torch":
            return grad(*args, **kwargs)
        raise UnsupportedError("torch.autograd.grad", "module", INNER_GRADIENT)

    torch.autograd.Function.apply = classmethod(apply)
    torch.autograd.grad = take
    try:
        yield
    finally:
        torch.autograd.Function.apply = original
        torch.autograd.grad = grad


def refuse_gradients(what: str, module: torch.nn.Module) -> None:
    """Raise `UnsupportedError` for what makes or sees gradients within the module."""
    for part in module.modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise UnsupportedError(what, "module", "has a hook that no compiled gradient calls")
        graph = getattr(part, "graph", None)
        if isinstance(graph, torch.fx.Graph) and any(
            node.target is torch.ops.higher_order.autograd_function_apply for node in graph.nodes
        ):
            raise UnsupportedError(what, "module", _OWN_GRADIENT)


def _constant(x: Any) -> Any:
    return Opset(stops.DOMAIN, 1).StopGradient(x)


_LIBRARY = torch.library.Library("ostinato", "FRAGMENT")
_LIBRARY.define("constant(Tensor x) -> Tensor")
_LIBRARY.impl("constant", torch.clone, "CompositeExplicitAutograd")
torch.library.register_fake(f"{_LIBRARY.ns}::constant", torch.empty_like, lib=_LIBRARY)
CONSTANT = getattr(torch.ops, _LIBRARY.ns).constant.default
# Map the operator to what the exporter writes for it.
TRANSLATIONS = {CONSTANT: _constant}
