"""For which sizes a program may be specialised."""

from __future__ import annotations

from enum import IntEnum


class Guards(IntEnum):
    """Whether guards may exclude sizes from a program.

    LIKELY: all but the likely ones; where sizes decide an If whose ways differ in rank, those that
    choose the first, a Squeeze of an axis that is 1 for instance. OTHERWISE: those that choose the
    second.
    """

    NONE = 0
    LIKELY = 1
    OTHERWISE = 2
