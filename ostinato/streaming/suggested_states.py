"""Guesses which inputs and outputs of a model are states, for people to look at.

A model does not say which of its outputs is the next value of which input. Nothing in this package
acts on these guesses: `InferenceSession.stream` takes the pairs that the caller declares.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ostinato.definitions.recurrent_node import is_recurrent
from ostinato.graph.facts import facts_of, sources
from ostinato.graph.loop_form import reads
from ostinato.model.load import ModelLike, load_model
from ostinato.model.values import dims_of

# Words that say whether a value is the one before or after a step, or that it is one of them.
_MARKERS = frozenset(
    "in input out output prev previous next new old past present init initial final last cur "
    "current updated n".split()
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Names of caches in transformers: `past_key_values.0.key` becomes `present.0.key`.
_CACHE = re.compile(r"(?<![a-z])(past|present|next|new)_?key_?values?", re.IGNORECASE)
# Names such as h0, hn, c0, cN: one letter, and the step to which it belongs.
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

    * A recurrent node, a Scan or a Loop carries one to the other: what moves elements alone may
      stand before and behind it.
    * The output is the input with new rows beside or in it, by a Concat or a scatter.
    * The names are the same up to words such as `in`, `next` or `n`.
    * The shapes are the same, size by size, and no other input has this one. The first input is
      left out, since it is the frame nearly always.
    * As many inputs as outputs have the shape, and the graph puts them in order: the first output
      depends on one of the inputs alone, the next one on this one and another, and so on, as the
      caches of a network's layers do.

    Raises what reading a model raises (`ModelError`, `UnsupportedError`).
    """
    graph = load_model(model).graph
    pairs = {
        (read.name, written.name): (read, written)
        for read in graph.inputs
        for written in _dependent(graph, read)
        if read.dtype == written.dtype and _may_agree(read, written)
    }
    reasons: dict[tuple[_Name, _Name], str] = {}

    def left() -> list[tuple[_Name, _Name]]:
        """The pairs of which no side is in one that is found."""
        taken = {name for pair in reasons for name in pair}
        return [pair for pair in pairs if taken.isdisjoint(pair)]

    def note(found: Iterable[tuple[_Name, _Name]], reason: str) -> None:
        reasons.update((pair, reason.format(_described(pairs[pair][0]))) for pair in found)

    note(_unique([pair for pair in _carried(graph) if pair in pairs]), _CARRIED)
    kept = _unique([pair for pair in _kept(graph) if pair in pairs])
    note({*kept} & {*left()}, _KEPT)
    note(_unique([pair for pair in left() if _same_stem(*pairs[pair])]), _NAMED)
    first = graph.inputs[0].name if graph.inputs else None
    sizes = {pair: _sizes(read) for pair, (read, _) in pairs.items() if read.name != first}
    alike = {pair for pair in sizes if sizes[pair] == _sizes(pairs[pair][1])}
    note(_unique([pair for pair in left() if pair in alike]), _SHAPED)
    note(_ordered([(pair, sizes[pair]) for pair in left() if pair in alike]), _ORDERED)
    return [Suggestion(str(i), str(o), reasons[i, o]) for i, o in pairs if (i, o) in reasons]


_CARRIED = "a recurrence carries one to the other, both are {}"
_KEPT = "the output is the input with new rows, both are {}"
_NAMED = (
    "the names are the same but for before and after, both are {}, and the output depends on the "
    "input"
)
_SHAPED = "the only output that is {} as well and depends on the input; the names do not tell"
_ORDERED = (
    "both are {}, and of the inputs of this shape the output depends on this one and on those of "
    "the outputs before it; the names do not tell"
)

_Name = str | None


def _unique(pairs: Sequence[tuple[_Name, _Name]]) -> list[tuple[_Name, _Name]]:
    """The pairs neither side of which is in another one."""
    reads, writes = Counter(i for i, _ in pairs), Counter(o for _, o in pairs)
    return [(i, o) for i, o in pairs if reads[i] == writes[o] == 1]


def _carried(graph: ir.Graph) -> list[tuple[_Name, _Name]]:
    """Inputs that reach a recurrence's state, and outputs that its last state reaches, unchanged.

    Nothing but nodes that move elements may stand in between; an output that several inputs reach
    in this way is in no pair.
    """
    moved: dict[_Name, frozenset[_Name]] = {v.name: frozenset([v.name]) for v in graph.inputs}
    after: dict[_Name, frozenset[_Name]] = {}
    nothing: frozenset[_Name] = frozenset()
    for node in graph:
        if facts_of(node.op_type, node.domain).moves:
            names = [value.name for value in sources(node) if value is not None]
            for known in (moved, after):
                reached = nothing.union(*(known.get(name, nothing) for name in names))
                known.update({value.name: reached for value in node.outputs})
        for before, last in _states(node):
            after[last.name] = moved.get(before.name, nothing)
    return [
        (next(iter(inputs)), value.name)
        for value in graph.outputs
        if len(inputs := after.get(value.name, nothing)) == 1
    ]


def _kept(graph: ir.Graph) -> list[tuple[_Name, _Name]]:
    """Inputs, and outputs that have all or part of their rows, and new ones that no input gives."""
    moved: dict[_Name, frozenset[_Name]] = {v.name: frozenset([v.name]) for v in graph.inputs}
    nothing: frozenset[_Name] = frozenset()
    joined: dict[_Name, _Name] = {}
    for node in graph:
        facts = facts_of(node.op_type, node.domain)
        if not facts.moves and not facts.stores:
            continue
        operands = [v.name for v in (*sources(node), *node.inputs[:1]) if v is not None]
        reached = nothing.union(*(moved.get(name, nothing) for name in operands))
        earlier = {joined[name] for name in operands if name in joined}
        adds = facts.stores or (
            node.op_type == "Concat" and any(not moved.get(name, nothing) for name in operands)
        )
        for value in node.outputs:
            moved[value.name] = reached
            if len(reached) == 1 and (adds or earlier == set(reached)):
                joined[value.name] = next(iter(reached))
    return [(joined[v.name], v.name) for v in graph.outputs if v.name in joined]


def _states(node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
    """The states of a recurrent node, a Scan or a Loop: before its first step, after its last."""
    inputs, outputs = list(node.inputs), list(node.outputs)
    if is_recurrent(node):
        pairs = list(zip(inputs[5:7], outputs[1:], strict=False))
    elif node.op_type == "Scan":
        count = len(inputs) - node.attributes["num_scan_inputs"].as_int()
        pairs = list(zip(inputs[:count], outputs, strict=False))
    elif node.op_type == "Loop":
        pairs = list(zip(inputs[2:], outputs, strict=False))
    else:
        return []
    return [(before, last) for before, last in pairs if before is not None]


def _ordered(
    pairs: Sequence[tuple[tuple[_Name, _Name], object]],
) -> list[tuple[_Name, _Name]]:
    """Pairs of one shape, put in order by what depends on what; each pair comes with its shape."""
    found = []
    for shape in dict.fromkeys(shape for _, shape in pairs):
        left = [pair for pair, other in pairs if other == shape]
        inputs, outputs = {i for i, _ in left}, {o for _, o in left}
        order = []
        while len(inputs) == len(outputs) and left:
            reads = Counter(o for _, o in left)
            single = [pair for pair in left if reads[pair[1]] == 1]
            if len(single) != 1:
                break
            order.append(single[0])
            left = [pair for pair in left if not {*pair} & {*single[0]}]
        if len(order) == len(inputs):
            found += order
    return found


def _described(value: ir.Value) -> str:
    dtype = "unknown type" if value.dtype is None else value.dtype.name.lower()
    sizes = dims_of(value)
    shape = ["..."] if sizes is None else ["?" if size is None else size for size in sizes]
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _sizes(value: ir.Value) -> tuple[int | str | None, ...] | None:
    """Sizes and names of sizes; None where the rank or a size has neither."""
    sizes = dims_of(value)
    return None if sizes is None or None in sizes else sizes


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
    words = [word.lower() for word in _WORD.findall(_CACHE.sub(r"\1", name))]
    if len(words) > 1 and words[-1] == "0":
        words.pop()
    return tuple(word for word in words if word not in _MARKERS)


def _dependent(graph: ir.Graph, source: ir.Value) -> list[ir.Value]:
    """The outputs that are computed from `source`, and not `source` itself."""
    reached = {source.name}
    for node in graph:
        if any(value.name in reached for value in reads(node)):
            reached.update(value.name for value in node.outputs)
    return [value for value in graph.outputs if value.name in reached and value is not source]
