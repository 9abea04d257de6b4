"""Cases of conversions between element types."""

from __future__ import annotations

from tests.cases.case import Case

CASES: list[Case] = []
