"""Positions of a sequence that the steps of a loop read, where the model decides them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ostinato.graph.evenly_spaced import EvenlySpaced
from ostinato.graph.inferred_sizes import Sizes
from ostinato.graph.linear_index import STEP, Indices, linear_size
from ostinato.graph.loop_form import LoopForm, Scanned, State, scopes_within
from ostinato.model.values import constant_array
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, computed
from ostinato.sizes.progressions import unclamped


@dataclass(frozen=True)
class Window:
    """Positions of an axis that the steps read, one element each.

    They leave out `front` elements at the beginning and `behind` at the end; `backward` when the
    first step reads the last one.
    """

    front: int
    behind: int
    backward: bool


class StepPositions:
    """Reads positions that are computed in the body of `form` from the number of the step.

    sizes: what `infer_sizes` knows. indices: reads what is computed from the number of the step.
    """

    def __init__(self, form: LoopForm, sizes: Mapping[str, Sizes]) -> None:
        self._sizes = sizes
        self.indices, self._spaced = Indices(sizes), EvenlySpaced(sizes)
        lengths = [self._length(scanned) for scanned in form.scanned]
        if form.head is not None:
            lengths.append(self.indices.single(form.head.trips))
            self.indices.declare(form.head.number, STEP)
        # Each says how many steps there are, at least if it is not negative. They are equal when
        # the model runs, but may be made of different symbols.
        self._lengths = [length for length in lengths if length is not None]
        for scanned in form.scanned:
            self._declare(scanned.element, self._number(scanned))
        for state in form.states:
            self._declare(state.before, self._counter(state))

    def single(self, value: ir.Value | None) -> Size | None:
        """The one element of an integer value of the body, None when it is not known."""
        return self.indices.single(value)

    def rank(self, value: ir.Value) -> int | None:
        sizes = self._sizes.get(value.name or "")
        return None if sizes is None else len(sizes)

    def window(self, source: ir.Value, axis: int, position: Size, *, wraps: bool) -> Window | None:
        """Find the positions that the steps read of `source` when each reads `position` on `axis`.

        None unless all positions provably lie in `source` and follow each other. wraps: whether
        negative positions count from the end. A number of steps that is computed as negative means
        none, and then the window is empty as well.
        """
        size = linear_size(self._sizes[source.name or ""][axis])
        moving = [sign for sign in (1, -1) if not computed(position - STEP * sign)]
        if size is None or not moving:
            return None
        direction = moving[0]
        first = position - STEP * direction
        for length in self._lengths:
            start = first if direction == 1 else first - length + 1
            stop = start + length
            if wraps and isinstance(stop, int) and stop <= 0:
                start = start + size
            front, behind = start, size - start - length
            if isinstance(front, int) and isinstance(behind, int) and min(front, behind) >= 0:
                return Window(front, behind, direction == -1)
        return None

    def _declare(self, value: ir.Value, form: Size | None) -> None:
        if form is not None:
            self.indices.declare(value, form)

    def _length(self, scanned: Scanned) -> Size | None:
        steps = self._range(scanned.source)
        if steps is not None:
            return steps[1]
        sizes = self._sizes.get(scanned.source.name or "")
        return linear_size(sizes[scanned.axis]) if sizes is not None else None

    def _range(self, source: ir.Value) -> tuple[Size, Size] | None:
        """The first element and the length of a sequence of integers that grows by 1."""
        line = self._spaced.line(source)
        if line is None or line.rank != 1 or (line.elements.steps != (1,) and line.shape != (1,)):
            return None
        return line.elements.start, unclamped(line.shape[0])

    def _number(self, scanned: Scanned) -> Size | None:
        """The element of a scanned range at a step."""
        steps = self._range(scanned.source)
        if steps is None:
            return None
        first, length = steps
        return first + length - 1 - STEP if scanned.backward else first + STEP

    def _counter(self, state: State) -> Size | None:
        """A state to which every step adds the same constant."""
        first = self.indices.single(state.initial)
        if first is None or state.before.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
            return None
        trial = Indices(self._sizes)
        trial.declare(state.before, STEP)
        after = trial.single(state.after)
        growth = after - STEP if after is not None else None
        return first + STEP * growth if isinstance(growth, int) else None


def picking(body: ir.Graph, op_type: str) -> list[ir.Node]:
    """The nodes of `body` that read a value of outside at a position computed while running."""
    inner = scopes_within(body)
    return [
        node
        for node in body
        if node.op_type == op_type
        and node.domain == ""
        and len(node.inputs) > 1
        and node.inputs[0] is not None
        and node.inputs[0].graph not in inner
        and constant_array(node.inputs[1]) is None
    ]
