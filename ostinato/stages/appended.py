"""Find inputs that a model appends rows to: `present = Concat(past, new)`."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ostinato.errors import InputError
from ostinato.graph.grown_parts import Part, grown, parts_of
from ostinato.model.attributes import describe
from ostinato.records import dataclass
from ostinato.stages.values import shape_of


@dataclass(frozen=True)
class Appended:
    """An input that an output contains, with new rows beside it along an axis of no fixed size.

    how: the nodes between the two, which may put rows beside parts of the input.
    """

    past: ir.Value
    present: ir.Value
    how: Part

    @property
    def names(self) -> tuple[str, str]:
        """The names of the input and of the output."""
        return self.past.name or "", self.present.name or ""

    @property
    def axis(self) -> int:
        """The axis along which the output is longer than the input."""
        assert self.how.growing is not None
        return self.how.growing

    @property
    def moved(self) -> int | None:
        """The axis along which rows of the input are reordered before that, if they are."""
        if self.how.moved is None:
            return None
        return self.how.moved.attributes.get_int("axis", 0) % len(self.how.box)

    def refused(self, reason: str) -> InputError:
        """Return the error for a state that grows in a way that no stream keeps."""
        node = self.present.producer()
        where = "" if node is None else f" (node {describe(node)!r}, {node.op_type})"
        return InputError(
            f"state {self.past.name!r} of a stream changes its shape: its next value "
            f"{self.present.name!r}{where} {reason}"
        )


def appended(graph: ir.Graph) -> Iterator[Appended]:
    """Yield the inputs that a model appends rows to."""
    for past in graph.inputs:
        shape = shape_of(past)
        if shape is None or all(isinstance(size, int) for size in shape):
            continue
        parts = parts_of(past, shape, graph)
        for present in graph.outputs:
            how = grown(parts, past, present)
            if how is not None:
                found = Appended(past, present, how)
                if not isinstance(shape[found.axis], int) and found.moved != found.axis:
                    yield found
