"""Python's collector of cycles, which finds next to nothing while the compiler works."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_is_waiting = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Let the collector of this process wait until the block ends, unless it is off anyway.

    It would look again and again at all that importing and compiling make, most of which stays: a
    tenth of the time of either. Of several threads in such blocks the first one decides.
    """
    global _is_waiting
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _is_waiting = True
    try:
        yield
    finally:
        _is_waiting = False
        gc.enable()


def _resume() -> None:
    """In the child of a fork no thread is left that would end the block."""
    if _is_waiting:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume)
