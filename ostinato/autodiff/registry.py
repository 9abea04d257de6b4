"""The table of gradient rules.

A rule is called for nodes with the gradient of an output and an input that wants one. It writes
nodes and gives the gradients of those inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ostinato.graph.rules import Rules

if TYPE_CHECKING:
    from ostinato.autodiff.context import Context

Rule: TypeAlias = "Callable[[Context], None]"

RULES: Rules[Rule] = Rules("gradient")
differentiates = RULES.register
