"""The table of streaming rules.

A rule is called for nodes that read a stream, or sizes made from shapes. It changes the node, or
writes others in its place, and says what the outputs are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ostinato.graph.rules import Rules

if TYPE_CHECKING:
    from ostinato.streaming.context import Context

Rule: TypeAlias = "Callable[[Context], None]"

RULES: Rules[Rule] = Rules("streaming")
ROW_RULES: Rules[Rule] = Rules("streaming by rows")
"""Rules for what reads frames that are merged with another axis; others treat each row alone."""
TAKE_LENGTHS: set[str] = set()
"""Operators whose rules know what to do with sizes that grow with the sequence."""
TAKE_FIRST_FRAMES: set[str] = set()
"""Those that know what to do with first frames that are a value; others get them sent."""


def streams(
    *op_types: str, lengths: bool = False, first_frames: bool = False
) -> Callable[[Rule], Rule]:
    """Declare the rule of some operators, and what it takes."""
    TAKE_LENGTHS.update(op_types if lengths else ())
    TAKE_FIRST_FRAMES.update(op_types if first_frames else ())
    return RULES.register(*op_types)


def streams_rows(*op_types: str) -> Callable[[Rule], Rule]:
    """Declare the rule of some operators for frames that are merged with another axis."""
    return ROW_RULES.register(*op_types)
