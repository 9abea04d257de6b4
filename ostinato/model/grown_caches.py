"""Caches that a model stores into, which callers let grow instead.

Such a cache is an input whose length the caller chooses: as long as it will ever be, or as long as
the rows in it. A definition whose caller keeps its rows in a stream puts new ones behind the others
(`present = Concat(past, new)`), on conditions that each run has to meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import onnx_ir as ir

from ostinato.records import dataclass

_CACHES = "ostinato.caches"


@dataclass
class GrownCaches:
    """The caches of a model, by the names of inputs and outputs.

    grown: the output by the input of those whose rows the caller keeps. found: likewise, of all
    whose length callers choose; lengths: the names of the axes. conditions: outputs that no caller
    sees, bools that all have to hold, and what is wrong where one does not.
    """

    grown: Mapping[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)

    def are_grown(self, axis: int, *caches: tuple[ir.Value | None, ir.Value]) -> bool:
        """Whether the caller lets all of these inputs grow, with the output of each, along an axis.

        Notes them where callers may.
        """
        names: dict[str, str] = {}
        lengths: dict[str, str] = {}
        for past, present in caches:
            is_state = past is not None and past.is_graph_input() and present.is_graph_output()
            if past is None or past.shape is None or not is_state:
                return False
            length = past.shape[axis]
            if isinstance(length, int) or length.value is None:
                return False
            names[past.name or ""] = present.name or ""
            lengths[past.name or ""] = str(length.value)
        self.found.update(names)
        self.lengths.update(lengths)
        return names.items() <= self.grown.items()


def note_grown_caches(model: ir.Model, grown: Mapping[str, str]) -> None:
    """Let the caches of `model` grow whose outputs, by input, are among these states."""
    model.meta[_CACHES] = GrownCaches(grown)


def grown_caches(model: ir.Model) -> GrownCaches:
    """What is known of the caches of a model."""
    caches: GrownCaches = model.meta.setdefault(_CACHES, GrownCaches())
    return caches
