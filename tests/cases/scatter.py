"""Cases of indexed reading and writing."""

from __future__ import annotations

from tests.cases.case import Case

CASES: list[Case] = []
