"""Which operators have a rule for streams.

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
streams = RULES.register
