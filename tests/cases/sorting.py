"""Cases of order, position and running sums."""

from __future__ import annotations

from tests.cases.case import Case

CASES: list[Case] = []
