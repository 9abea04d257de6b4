"""Names of kernels for people."""

from __future__ import annotations

from collections.abc import Sequence


def title(nodes: Sequence[str]) -> str:
    """Name the last node, which makes the kernel's value, and count how many more it computes."""
    more = len(nodes) - 1
    return "".join(nodes[-1:]) + (f" and {more} more" if more > 0 else "")
