"""Readers of the results of single steps read those of the Scan that the steps became."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value, supersede
from ostinato.graph.inferred_sizes import Sizes
from ostinato.graph.named_axes import named_axes
from ostinato.graph.writer import Writer
from ostinato.model.graphs import is_standard
from ostinato.passes.loops.steps import Place, Steps


class Results:
    """The scan outputs that readers of steps ask for.

    values: of the body, by their place. collected: scan outputs by what the body returns, the axis
    and whether they are reversed. after: writes what belongs behind the Scan.
    """

    def __init__(
        self,
        model: ir.Model,
        steps: Steps,
        sizes: Mapping[str, Sizes],
        writer: Writer,
        values: Mapping[Place, ir.Value],
    ) -> None:
        self._model, self._steps, self._sizes = model, steps, sizes
        self._outer, self._values = writer, values
        self.after = writer.within("results")
        self.collected: dict[tuple[Place, int, bool], ir.Value] = {}

    def hand_on(self, finals: Sequence[ir.Value]) -> None:
        """Let readers outside read `finals`, the last values of states, and `collected`."""
        steps, own = self._steps, set(self._steps.nodes)
        ends: dict[Place, ir.Value] = {}
        for state, final in zip(steps.states, finals, strict=True):
            if state.later is None:
                ends.setdefault(state.place, final)
        for place in self._values:
            copies = [steps.output(t, place) for t in range(steps.count)]
            for gathering in self._gatherings(copies, own):
                self._join(place, *gathering)
            for t, value in enumerate(copies):
                for node in dict.fromkeys(use.node for use in value.uses()):
                    unused = not any(v.uses() or v.is_graph_output() for v in node.outputs)
                    if unused and node.graph is not None and node not in own:
                        discard(node)
                readers = [use for use in value.uses() if use.node not in own]
                if not readers and not value.is_graph_output():
                    continue
                if t == steps.count - 1 and place in ends:
                    new = ends[place]
                else:
                    stack = self._stack(place, 0, False)
                    new = self.after.op("Gather", [stack, np.array(t)], "step", dtype=value.dtype)
                    new.shape = self._values[place].shape
                for reader, position in readers:
                    reader.replace_input_with(position, new)
                if value.is_graph_output():
                    replace_value(value, new)

    def _stack(self, place: Place, axis: int, reverse: bool) -> ir.Value:
        """The values of all steps, along a new axis."""
        key = place, axis, reverse
        if key not in self.collected:
            element = self._values[place]
            shape = None if element.shape is None else list(element.shape)
            if shape is not None:
                shape.insert(axis, self._steps.count)
            stack = self._outer.declare("all", None, element.dtype)
            stack.shape = None if shape is None else ir.Shape(shape)
            self.collected[key] = stack
        return self.collected[key]

    def _gatherings(
        self, copies: Sequence[ir.Value], own: set[ir.Node]
    ) -> Iterator[tuple[ir.Node, int, int, bool, bool]]:
        """Each Concat of all copies: the first of these, axis, reversed, along a new axis."""
        size = self._sizes.get(str(copies[0].name))
        if size is None:
            return
        for middle in [None, *(u.node for u in copies[0].uses() if u.node not in own)]:
            parts: Sequence[ir.Value] = copies
            axis = None
            if middle is not None:
                axis = _new_axis(middle, len(size))
                found = [_unsqueezed(value, axis, len(size), own) for value in copies]
                parts = [value for value in found if value is not None]
                if axis is None or len(parts) < len(copies):
                    continue
            for use in list(parts[0].uses()):
                node = use.node
                if not is_standard(node, "Concat") or node in own:
                    continue
                rank = len(size) + (axis is not None)
                along = node.attributes["axis"].as_int() % rank
                whole = all(isinstance(one, int) for one in size)
                if (axis is None and size[along] != 1 and not whole) or axis not in (None, along):
                    continue
                for reverse in (False, True):
                    wanted = list(parts)[::-1] if reverse else list(parts)
                    first = use.idx - (len(parts) - 1 if reverse else 0)
                    if first >= 0 and list(node.inputs[first : first + len(parts)]) == wanted:
                        yield node, first, along, reverse, axis is not None
                        break

    def _join(
        self, place: Place, node: ir.Node, first: int, axis: int, reverse: bool, new: bool
    ) -> None:
        stack = self._stack(place, axis, reverse)
        if not new:
            sizes = list(self._values[place].shape or ())
            if sizes[axis] == 1:
                stack = self.after.squeeze(stack, axis + 1, "rows")
            else:
                merged = [s * self._steps.count if i == axis else s for i, s in enumerate(sizes)]
                shape = np.array(merged, np.int64)
                stack = self.after.op("Reshape", [stack, shape], "rows", dtype=stack.dtype)
        before = [v for v in node.inputs[:first] if v is not None]
        after = [v for v in node.inputs[first + self._steps.count :] if v is not None]
        if before or after:
            joined = self.after.within("joined")
            result = joined.op(
                "Concat", [*before, stack, *after], "all", {"axis": axis}, stack.dtype
            )
            self._model.graph.insert_before(node, joined.nodes)
            stack = result
        supersede(node, [stack])


def _new_axis(node: ir.Node, rank: int) -> int | None:
    """The one axis that an Unsqueeze adds."""
    if not is_standard(node, "Unsqueeze"):
        return None
    axes = named_axes(node)
    return axes[0] % (rank + 1) if axes is not None and len(axes) == 1 else None


def _unsqueezed(value: ir.Value, axis: int | None, rank: int, own: set[ir.Node]) -> ir.Value | None:
    for use in value.uses():
        if use.node not in own and axis is not None and _new_axis(use.node, rank) == axis:
            return use.node.outputs[0]
    return None
