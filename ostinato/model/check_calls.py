"""Count the nodes for which calls of functions stand, before anything inlines them.

Forty functions that call the next one twice stand for 2^40 nodes. The onnx package infers shapes
call by call, and never comes to the end of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from ostinato.errors import ModelError
from ostinato.limits import MOST_NODES
from ostinato.model.order import all_nodes
from ostinato.model.schema import normal_domain

FunctionKey = tuple[str, str, str]


def called(node: onnx.NodeProto) -> FunctionKey:
    """The function that a node calls, if there is one."""
    return normal_domain(node.domain), node.op_type, node.overload


def check_calls(
    model: onnx.ModelProto, functions: Mapping[FunctionKey, onnx.FunctionProto]
) -> None:
    """Raise `ModelError` for functions that call themselves, and for calls of too many nodes."""
    if not functions:
        return
    counts: dict[FunctionKey, int] = {}
    for key in _callees_first(functions):
        counts[key] = _count(functions[key].node, counts)
    if _count(model.graph.node, counts) > MOST_NODES:
        largest = max(counts, key=lambda key: counts[key])
        raise ModelError(
            f"with its functions written out it has more than {MOST_NODES} nodes: a call of "
            f"{largest[1]!r} stands for {counts[largest]}"
        )


def _count(nodes: Iterable[onnx.NodeProto], counts: Mapping[FunctionKey, int]) -> int:
    return sum(counts.get(called(node), 1) for node in all_nodes(nodes))


def _callees_first(
    functions: Mapping[FunctionKey, onnx.FunctionProto],
) -> Iterator[FunctionKey]:
    """The functions, each behind those that it calls; raises `ModelError` where there is a cycle.

    A list in place of recursion: chains of calls may be as long as there are functions.
    """
    done: set[FunctionKey] = set()
    entered: set[FunctionKey] = set()
    pending = list(functions)
    while pending:
        key = pending[-1]
        if key in done or key in entered:
            pending.pop()
            if key not in done:
                done.add(key)
                yield key
            continue
        entered.add(key)
        met = {called(node) for node in all_nodes(functions[key].node)}
        inner = [k for k in met if k in functions and k not in done]
        for _, name, _ in (k for k in inner if k in entered):
            raise ModelError(f"function {name!r} calls itself, directly or not")
        pending += inner
