"""How a value is made of another one by putting rows beside parts of it and joining the parts.

    state' = Concat(state, rows)
    state' = Stack(Concat(state[0], rows_0), Concat(state[1], rows_1))
    state' = Concat(state, Stack(rows_0, rows_1)), beside Concat(state[0], rows_0), ..

The others are caches of all layers of a decoder: each layer reads its part, as longer as its own
rows make it. A part is a box of the state, given by a range of each axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import onnx_ir as ir

from ostinato.graph.named_axes import named_axes, positions_of
from ostinato.graph.pieces import piece_lengths
from ostinato.model.values import constant_array, static_dims
from ostinato.records import dataclass

# A range of an axis: its first element and how many there are; None for all of an axis whose size
# is no number.
Range = tuple[int, int] | None


@dataclass(frozen=True)
class Part:
    """A value that is a box of a state, or such boxes with rows beside them.

    axes: which axis of the state each axis of the value is; None for one that is none of it.
    box: the range of each axis of the state; those that `axes` lacks have one element.
    joins: the nodes that put rows beside a box. growing: along which axis of the state, and whether
    rows come in front. moved: the Gather that gives rows of the whole state other places before.
    """

    axes: tuple[int | None, ...]
    box: tuple[Range, ...]
    joins: tuple[ir.Node, ...] = ()
    growing: int | None = None
    in_front: bool = False
    moved: ir.Node | None = None

    @property
    def dropped(self) -> list[int]:
        """The axes of the state that the value lacks."""
        return [axis for axis in range(len(self.box)) if axis not in self.axes]


Parts = dict[ir.Value, Part]


def parts_of(state: ir.Value, dims: Sequence[object], graph: ir.Graph) -> Parts:
    """The values that nodes of a graph make of a state whose elements they only move.

    dims: the sizes of the state, numbers where they are known.
    """
    box = tuple((0, size) if isinstance(size, int) else None for size in dims)
    parts = {state: Part(tuple(range(len(box))), box)}
    for node in _following(state, graph):
        if any(value in parts for value in node.inputs):
            results = _RULES[node.op_type](node, parts)
            pairs = zip(node.outputs, results, strict=False)
            parts.update({value: part for value, part in pairs if part is not None})
    return parts


def _following(state: ir.Value, graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes of a graph to which moved elements may come, each behind those that it reads.

    They are few among those of a decoder's step, which has dozens of states.
    """
    seen, done = set[ir.Node](), list[ir.Node]()
    path: list[tuple[ir.Node | None, Iterator[ir.Node]]] = [(None, _movers(state, graph))]
    while path:
        node, readers = path[-1]
        following = next((reader for reader in readers if reader not in seen), None)
        if following is not None:
            seen.add(following)
            behind = (n for value in following.outputs[::-1] for n in _movers(value, graph))
            path.append((following, behind))
        else:
            path.pop()
            done += [] if node is None else [node]
    return reversed(done)


def _movers(value: ir.Value, graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes that read a value and have a rule, the last one first."""
    nodes = (use.node for use in [*value.uses()][::-1])
    return (n for n in nodes if n.graph is graph and n.op_type in _RULES and not n.domain)


def grown(parts: Parts, state: ir.Value, value: ir.Value) -> Part | None:
    """Find all of the state in a value, with rows beside it, of which each part has its own."""
    part, whole = parts.get(value), parts[state]
    if part is None or part.growing is None:
        return None
    if None in part.axes and part.axes.count(None) == len(part.dropped):
        left = iter(part.dropped)
        axes = tuple(next(left) if axis is None else axis for axis in part.axes)
        part = replace(part, axes=axes)
    if (part.axes, part.box) != (whole.axes, whole.box):
        return None
    return replace(part, joins=(*part.joins, *_likewise(parts, part)))


def _likewise(parts: Parts, whole: Part) -> list[ir.Node]:
    """Nodes that put the same rows beside a part as the only join puts beside all of the state."""
    join, way = whole.joins[0], (whole.growing, whole.in_front, whole.moved)
    if len(whole.joins) > 1 or len(join.inputs) != 2:
        return []
    pieces = [*_pieces(_beside(join, whole), whole.axes, whole.box, whole.growing)]
    found = []
    for value, part in parts.items():
        node = part.joins[0] if len(part.joins) == 1 else join
        is_other = node is not join and node.outputs[0] is value and len(node.inputs) == 2
        if is_other and (part.growing, part.in_front, part.moved) == way:
            wanted = _beside(node, part), part.axes, part.box
            found += [node] * any(wanted == piece for piece in pieces)
    return found


def _beside(join: ir.Node, part: Part) -> ir.Value | None:
    """The operand that a node of two operands puts beside a box."""
    return join.inputs[0 if part.in_front else 1]


_Piece = tuple["ir.Value | None", tuple["int | None", ...], tuple[Range, ...]]


def _pieces(
    value: ir.Value | None,
    axes: tuple[int | None, ...],
    box: tuple[Range, ...],
    growing: int | None,
) -> Iterator[_Piece]:
    """The pieces of which rows of a box consist, with the axes and the box of each."""
    yield value, axes, box
    node = None if value is None else value.producer()
    if node is None or node.domain:
        return
    if node.op_type == "Identity":
        yield from _pieces(node.inputs[0], axes, box, growing)
    elif node.op_type == "Unsqueeze":
        new = positions_of(named_axes(node) or (), len(axes))
        left = _without(Part(axes, box, growing=growing), new) if new else None
        if left is not None:
            yield from _pieces(node.inputs[0], left.axes, box, growing)
    elif node.op_type == "Concat":
        positions = positions_of([node.attributes.get_int("axis", 0)], len(axes))
        dims = [static_dims(operand) or (None,) * len(axes) for operand in node.inputs]
        if positions is None or any(len(sizes) != len(axes) for sizes in dims):
            return
        (position,) = positions
        along = axes[position]
        within = None if along is None else box[along]
        counts = [sizes[position] or 0 for sizes in dims]
        if along is None or along == growing or within is None or sum(counts) != within[1]:
            return
        first = within[0]
        for operand, count in zip(node.inputs, counts, strict=True):
            yield from _pieces(operand, axes, _replaced(box, along, (first, count)), growing)
            first += count


def _gather(node: ir.Node, parts: Parts) -> list[Part | None]:
    """Elements `i`, `i + 1`, .. of an axis; or rows of the whole state in an order of the run."""
    part, indices = parts.get(node.inputs[0]), constant_array(node.inputs[1])  # type: ignore[arg-type]
    if part is None:
        return [None]
    positions = positions_of([node.attributes.get_int("axis", 0)], len(part.axes))
    if positions is None:
        return [None]
    (position,) = positions
    if indices is None:
        index = node.inputs[1]
        is_list = index is not None and (index.shape is None or len(index.shape) == 1)
        is_alone = len(node.inputs[0].uses()) == 1  # type: ignore[union-attr]
        is_state = not part.joins and part.moved is None and not part.dropped
        return [replace(part, moved=node) if is_list and is_alone and is_state else None]
    axis = part.axes[position]
    within = None if axis is None else part.box[axis]
    if axis is None or within is None or indices.ndim > 1 or not indices.size:
        return [None]
    first, count = int(indices.reshape(-1)[0]), indices.size
    first += within[1] * (first < 0)
    if [*indices.reshape(-1) % within[1]] != [*range(first, first + count)]:
        return [None]
    taken = _taken(part, position, first, count)
    return [_without(taken, [position]) if taken and indices.ndim == 0 else taken]


def _slice(node: ir.Node, parts: Parts) -> list[Part | None]:
    part = parts.get(node.inputs[0])  # type: ignore[arg-type]
    operands = [constant_array(value) for value in node.inputs[1:]]
    if part is None or len(operands) < 2 or operands[0] is None or operands[1] is None:
        return [None]
    starts, ends = (
        [int(n) for n in array.reshape(-1)] for array in operands[:2] if array is not None
    )
    axes, steps = list(range(len(starts))), [1] * len(starts)
    for place, target in ((2, axes), (3, steps)):
        if len(operands) > place and node.inputs[1 + place] is not None:
            array = operands[place]
            if array is None or array.size != len(starts):
                return [None]
            target[:] = [int(n) for n in array.reshape(-1)]
    positions = positions_of(axes, len(part.axes))
    if positions is None or len(ends) != len(starts):
        return [None]
    for start, end, position, step in zip(starts, ends, positions, steps, strict=True):
        along = part.axes[position]
        within = None if along is None else part.box[along]
        if within is None or step != 1:
            return [None]
        first, last, _ = slice(start, end).indices(within[1])
        taken = _taken(part, position, first, last - first)
        if taken is None:
            return [None]
        part = taken
    return [part]


def _split(node: ir.Node, parts: Parts) -> list[Part | None]:
    part = parts.get(node.inputs[0])  # type: ignore[arg-type]
    axis = node.attributes.get_int("axis", 0)
    positions = None if part is None else positions_of([axis], len(part.axes))
    if part is None or positions is None:
        return [None]
    (position,) = positions
    along = part.axes[position]
    within = None if along is None else part.box[along]
    lengths = None if within is None else piece_lengths(node, within[1])
    if within is None or lengths is None or sum(lengths) != within[1]:
        return [None]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [_taken(part, position, *each) for each in zip(starts, lengths, strict=True)]


def _taken(part: Part, position: int, first: int, count: int) -> Part | None:
    """Some elements of an axis of a box, along which it does not grow."""
    axis = part.axes[position]
    assert axis is not None
    within = part.box[axis]
    if within is None or axis == part.growing or count < 1 or not 0 <= first <= within[1] - count:
        return None
    return replace(part, box=_replaced(part.box, axis, (within[0] + first, count)))


def _replaced(box: tuple[Range, ...], axis: int, within: Range) -> tuple[Range, ...]:
    return (*box[:axis], within, *box[axis + 1 :])


def _without(part: Part, positions: Sequence[int]) -> Part | None:
    """The part without axes of one element."""
    for position in positions:
        axis = part.axes[position]
        if axis is not None and (axis == part.growing or (part.box[axis] or (0, 0))[1] != 1):
            return None
    kept = tuple(axis for i, axis in enumerate(part.axes) if i not in positions)
    return replace(part, axes=kept)


def _squeeze(node: ir.Node, parts: Parts) -> list[Part | None]:
    part, axes = parts.get(node.inputs[0]), named_axes(node)  # type: ignore[arg-type]
    if part is None or axes is None:
        return [None]
    positions = positions_of(axes, len(part.axes))
    return [None if positions is None else _without(part, positions)]


def _unsqueeze(node: ir.Node, parts: Parts) -> list[Part | None]:
    part, axes = parts.get(node.inputs[0]), named_axes(node)  # type: ignore[arg-type]
    if part is None or axes is None:
        return [None]
    rank = len(part.axes) + len(axes)
    new, left = positions_of(axes, rank), iter(part.axes)
    if new is None:
        return [None]
    return [replace(part, axes=tuple(None if i in new else next(left) for i in range(rank)))]


def _transpose(node: ir.Node, parts: Parts) -> list[Part | None]:
    part = parts.get(node.inputs[0])  # type: ignore[arg-type]
    if part is None:
        return [None]
    rank = len(part.axes)
    order = node.attributes.get_ints("perm", tuple(range(rank))[::-1])
    if sorted(order) != [*range(rank)]:
        return [None]
    return [replace(part, axes=tuple(part.axes[i] for i in order))]


def _identity(node: ir.Node, parts: Parts) -> list[Part | None]:
    return [parts.get(node.inputs[0])]  # type: ignore[arg-type]


def _concat(node: ir.Node, parts: Parts) -> list[Part | None]:
    """Rows beside a box; or boxes that have theirs, beside each other."""
    found = [parts.get(value) for value in node.inputs]  # type: ignore[arg-type]
    given = [part for part in found if part is not None]
    if len(given) == len(found) and all(part.joins for part in given):
        return [_joined(given, node.attributes.get_int("axis", 0))]
    if len(found) < 2:
        return [None]
    for part, in_front in ((found[0], False), (found[-1], True)):
        if part is not None and not part.joins:
            positions = positions_of([node.attributes.get_int("axis", 0)], len(part.axes))
            axis = None if positions is None else part.axes[positions[0]]
            if axis is not None:
                return [replace(part, joins=(node,), growing=axis, in_front=in_front)]
    return [None]


def _joined(parts: Sequence[Part], axis: int) -> Part | None:
    """Boxes that lie side by side along an axis, which may be one that they lack."""
    first, positions = parts[0], positions_of([axis], len(parts[0].axes))
    if positions is None:
        return None
    (position,) = positions
    ways = {(part.axes, part.growing, part.in_front, part.moved) for part in parts}
    given = first.axes[position]
    candidates = first.dropped if given is None else [given]
    for along in candidates if len(ways) == 1 else ():
        ranges = [part.box[along] for part in parts]
        rests = {_replaced(part.box, along, None) for part in parts}
        known = [each for each in ranges if each is not None]
        beside = all(a[0] + a[1] == b[0] for a, b in pairwise(known))
        if along != first.growing and len(rests) == 1 and len(known) == len(ranges) and beside:
            whole = known[0][0], sum(count for _, count in known)
            axes = (*first.axes[:position], along, *first.axes[position + 1 :])
            joins = tuple(node for part in parts for node in part.joins)
            box = _replaced(first.box, along, whole)
            return replace(first, axes=axes, box=box, joins=joins)
    return None


_RULES = {
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _identity,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
