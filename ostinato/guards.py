"""The sizes for which a program may be specialised."""

from __future__ import annotations

from enum import IntEnum


class Guards(IntEnum):
    """The sizes for which a program is made; guards exclude all others.

    NONE: all. LIKELY: the likely ones, and where sizes decide an If whose ways differ in rank,
    those that choose the first way, such as the Squeeze of an axis that is 1. OTHERWISE: the same
    with those that choose the second way, a single row for a Squeeze without axes, and the less
    likely number of parts for a transform of numbers that may be complex.
    """

    NONE = 0
    LIKELY = 1
    OTHERWISE = 2
