"""Which cases are compiled with LLVM's optimizations; all others are without.

They change no bit, which the first of an operator's cases show as well as the last, and take twice
the time. So of an operator that has many cases, one in three is compiled with them: the kernels of
one operator hardly differ in what LLVM makes of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from tests import unoptimized
from tests.cases.case import Case
from tests.cases.table import CASES

# So many cases of one operator share something out.
MANY = 12
ONE_IN = 3


@cache
def _unoptimised() -> frozenset[str]:
    """The names of cases that are compiled without optimizations."""
    of_operator: dict[str, list[str]] = {}
    for case in CASES:
        if case.every_mode and case.operator is not None:
            of_operator.setdefault(case.operator, []).append(case.name)
    found: set[str] = set()
    for names in of_operator.values():
        if len(names) >= MANY:
            # In no order that a table of cases may have, nor in that of turns in modes.
            names.sort(key=lambda name: zlib.crc32(f"optimised {name}".encode()))
            found |= {name for place, name in enumerate(names) if place % ONE_IN}
    return frozenset(found)


@contextmanager
def compiled_by_turns(case: Case) -> Iterator[None]:
    """Whoever compiles the case inside has the same code of it, from the same cache."""
    if case.name not in _unoptimised():
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        unoptimized.patch(patch)
        yield
