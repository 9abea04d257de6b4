"""Guesses which inputs and outputs of a model are states, for people to look at.

A model does not say which of its outputs is the next value of which input. Nothing in this package
acts on these guesses: `InferenceSession.stream` takes the pairs that the caller declares.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ostinato.model.graphs import subgraphs
from ostinato.model.load import ModelLike, load_model

# Words that say whether a value is the one before or after a step, or that it is one of them.
_MARKERS = frozenset(
    "in input out output prev previous next new old past present init initial final last cur "
    "current updated n".split()
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# As in h0, hn, c0, cN: one letter, and which step it belongs to.
_SHORT = re.compile(r"^([A-Za-z])[0nNtT]$")


@dataclass(frozen=True)
class Suggestion:
    """`output` may be what `input` reads a step later. reason: why, in words."""

    input: str
    output: str
    reason: str


def find_states(model: ModelLike) -> list[Suggestion]:
    """Pairs of an input and an output that look like a state, in the order of the inputs.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model.

    The dtype of a pair agrees, its shape may, and the output depends on the input. Then one of
    these must hold, and for no other output:

    * The names are the same up to words such as `in`, `next` or `n`.
    * The shapes are the same, size by size, and no other input has this one. The first input is
      left out, since it is the frame nearly always.

    Raises what reading a model raises (`ModelError`, `UnsupportedError`).
    """
    graph = load_model(model).graph
    pairs = {
        (read.name, written.name): (read, written)
        for read in graph.inputs
        for written in _dependent(graph, read)
        if read.dtype == written.dtype and _may_agree(read, written)
    }
    named = _unique([(i, o) for (i, o), pair in pairs.items() if _same_stem(*pair)])
    taken = {name for pair in named for name in pair}
    first = graph.inputs[0].name if graph.inputs else None
    shaped = _unique(
        [
            (i, o)
            for (i, o), (read, written) in pairs.items()
            if i != first and not {i, o} & taken and _sizes(read) == _sizes(written)
        ]
    )
    reasons = {pair: _named_reason for pair in named} | {pair: _shaped_reason for pair in shaped}
    return [
        Suggestion(str(key[0]), str(key[1]), reasons[key](*pair))
        for key, pair in pairs.items()
        if key in reasons
    ]


_Name = str | None


def _unique(pairs: Sequence[tuple[_Name, _Name]]) -> list[tuple[_Name, _Name]]:
    """The pairs neither side of which is in another one."""
    reads, writes = Counter(i for i, _ in pairs), Counter(o for _, o in pairs)
    return [(i, o) for i, o in pairs if reads[i] == writes[o] == 1]


def _named_reason(read: ir.Value, written: ir.Value) -> str:
    return (
        f"the names are the same but for before and after, both are {_described(read)}, and the "
        "output depends on the input"
    )


def _shaped_reason(read: ir.Value, written: ir.Value) -> str:
    return (
        f"the only output that is {_described(read)} as well and depends on the input; the names "
        "do not tell"
    )


def _described(value: ir.Value) -> str:
    dtype = "unknown type" if value.dtype is None else value.dtype.name.lower()
    shape = ["..."] if value.shape is None else [_size(d) or "?" for d in value.shape]
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _size(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _sizes(value: ir.Value) -> tuple[int | str, ...] | None:
    """Sizes and names of sizes; None where the rank or a size has neither."""
    if value.shape is None:
        return None
    sizes = tuple(size for size in map(_size, value.shape) if size is not None)
    return sizes if len(sizes) == len(value.shape) else None


def _may_agree(read: ir.Value, written: ir.Value) -> bool:
    if read.shape is None or written.shape is None:
        return True
    pairs = list(zip(read.shape, written.shape, strict=False))
    return len(read.shape) == len(written.shape) and all(
        a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int)
    )


def _same_stem(read: ir.Value, written: ir.Value) -> bool:
    stem = _stem(read.name or "")
    return bool(stem) and stem == _stem(written.name or "")


def _stem(name: str) -> tuple[str, ...]:
    """The words of a name without markers; a last 0 is one, as in `h_0` and `h_n`."""
    short = _SHORT.match(name)
    if short:
        return (short[1].lower(),)
    words = [word.lower() for word in _WORD.findall(name)]
    if len(words) > 1 and words[-1] == "0":
        words.pop()
    return tuple(word for word in words if word not in _MARKERS)


def _dependent(graph: ir.Graph, source: ir.Value) -> list[ir.Value]:
    """The outputs that are computed from `source`, and not `source` itself."""
    reached = {source.name}
    for node in graph:
        if any(name in reached for name in _reads(node)):
            reached.update(value.name for value in node.outputs)
    return [value for value in graph.outputs if value.name in reached and value is not source]


def _reads(node: ir.Node) -> Iterator[_Name]:
    yield from (value.name for value in node.inputs if value is not None)
    for graph in subgraphs(node):
        yield from (value.name for value in graph.outputs)
        for inner in graph:
            yield from _reads(inner)
