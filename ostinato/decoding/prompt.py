"""All tokens of a prompt but the last, read by one call of the step in front of the loop."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx
from onnx import helper

from ostinato.decoding.fragments import PREFIX, STEP, nodes, renamed
from ostinato.decoding.step import Port, Step
from ostinato.decoding.values import Values, declared

_PROMPT = "prompt/"
"""Begins every name of the copy of the step that reads the prompt; weights are not copied."""
COUNTS = """
    read = Sub(prompt_length, one)  read_size = Unsqueeze(read, first)
    head = Slice(prompt, first, read_size, axis)  unread = Slice(prompt, read_size, far, axis)
    past = Add(offset, read)  is_long = Greater(read, zero)
"""
"""From `prompt_length` and `offset`, the tokens in caches that were given: `head`, the tokens to
read, `unread`, the last one, and `past`, how many came before that."""


def read(
    step: Step,
    graph: onnx.GraphProto,
    outside: Collection[str],
    before: Sequence[str],
    after: Sequence[str],
) -> onnx.NodeProto:
    """The states `before` become those `after` all tokens of `head`, by a call of the step.

    graph: the step, whose names begin with `STEP`. outside: what it reads that is not copied. A
    prompt of one token leaves the states alone.
    """
    copy = renamed(graph, _PROMPT, kept=outside)
    ports = [port for port, _ in step.states]
    made = _fed(step)
    for name, port in zip(before, ports, strict=True):
        made += nodes("b = Identity(a)", {"a": name, "b": _called(port)})
    alone: list[onnx.NodeProto] = []
    kept = [f"{name} as it was" for name in after]
    for name, same in zip(before, kept, strict=True):
        alone += nodes("b = Identity(a)", {"a": name, "b": same})
    many = _branch("prompt", [*made, *copy.node], [_called(port) for _, port in step.states], ports)
    return helper.make_node(
        "If",
        [f"{PREFIX}is_long"],
        after,
        f"{PREFIX}prompt",
        then_branch=many,
        else_branch=_branch("no prompt", alone, kept, ports),
    )


def _called(port: Port) -> str:
    return f"{_PROMPT}{STEP}{port.name}"


def _branch(
    name: str, made: Sequence[onnx.NodeProto], values: Sequence[str], ports: Sequence[Port]
) -> onnx.GraphProto:
    results = [declared(value, port) for value, port in zip(values, ports, strict=True)]
    return helper.make_graph(made, name, [], results)


def _fed(step: Step) -> list[onnx.NodeProto]:
    """All inputs of the copy but states."""
    values = Values(step, f"{PREFIX}given_rows")
    shaped = "Identity(head)" if len(step.token.dims) == 2 else "Squeeze(head, first)"
    made = nodes(
        f"shaped_head = {shaped}  token = Cast<to = {step.token.dtype}>(shaped_head)",
        {"token": _called(step.token)},
    )
    for port in step.others:
        made += nodes("b = Identity(a)", {"a": port.name, "b": _called(port)})
    if step.mask is not None:
        made += values.filled(step.mask, "one", f"{PREFIX}past_size", _called(step.mask))
    if step.position is not None:
        made += _positions(step, step.position, values)
    return made


def _positions(step: Step, port: Port, values: Values) -> list[onnx.NodeProto]:
    """The number of each token along the axis of tokens; without one, that of the first."""
    if step.tokens not in port.dims:
        return values.filled(port, "offset", 1, _called(port))
    behind = range(1, len(port.dims) - port.dims.index(step.tokens))
    axes = ", ".join(map(str, behind))
    shaped = (
        f"behind = Constant<value_ints = [{axes}]>()  numbers = Unsqueeze(counted, behind)"
        if behind
        else "numbers = Identity(counted)"
    )
    counted = nodes(f"counted = Range(offset, past, one)  {shaped}")
    return [*counted, *values.filled(port, "numbers", f"{PREFIX}read_size", _called(port))]
