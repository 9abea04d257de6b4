"""Gradients of If: another If on the same condition, of which each branch goes back through one.

What a branch computes is not visible outside of it, so the branch of the gradient computes it
again, as far as it needs it.
"""

from __future__ import annotations

import onnx_ir as ir

from ostinato.autodiff.context import Context
from ostinato.autodiff.contributions import zeros
from ostinato.autodiff.copies import like
from ostinato.autodiff.nested import NestedScope
from ostinato.autodiff.registry import differentiates
from ostinato.autodiff.scope import depends
from ostinato.autodiff.sweep import sweep
from ostinato.model.graphs import BRANCHES


@differentiates("If")
def _if(context: Context) -> None:
    """Another If on the same condition, whose branches compute again what they need."""
    outer = context.scope
    scopes = {name: _swept(context, context.attributes.graph(name)) for name in BRANCHES}
    reached = dict.fromkeys(v for scope in scopes.values() for v in scope.outside())
    values = [value for value in reached if value in outer.wanted]
    if not values:
        return
    branches = [ir.AttrGraph(name, _branch(context, scopes[name], values)) for name in BRANCHES]
    outputs = [like(value, outer.names, f"grad/{value.name}_chosen") for value in values]
    context.writer.node("If", [context.x.value], outputs, branches)
    for value, output in zip(values, outputs, strict=True):
        outer.add(value, output)


def _swept(context: Context, branch: ir.Graph) -> NestedScope:
    outer = context.scope
    scope = NestedScope(outer, branch, depends(branch, outer.wanted), repeats_all=True)
    for index, value in enumerate(branch.outputs):
        if context.has_gradient(index) and value in scope.wanted:
            scope.add(value, context.gradient(index).value)
    sweep(scope)
    return scope


def _branch(context: Context, scope: NestedScope, values: list[ir.Value]) -> ir.Graph:
    """The gradients of `values` as one branch gives them."""
    outputs = []
    for value in values:
        writer = scope.writer(value.dtype, f"grad/{value.name}")
        gradient = scope.gradient(value)
        if gradient is None:
            gradient = zeros(writer, scope.sizes(value, writer))
        # A branch returns what its own nodes make, each value once.
        outputs.append(writer.op("Identity", [gradient], "in_branch", dtype=value.dtype))
    if scope.settle():
        raise context.refuse("has no gradient: its branches give other results each time they run")
    name = scope.names.fresh(f"grad/{scope.graph.name}")
    return ir.Graph([], outputs, nodes=scope.nodes, name=name)
