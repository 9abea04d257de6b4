"""Cases of ops that the standard defines as functions of others."""

from __future__ import annotations

from tests.cases.case import Case

CASES: list[Case] = []
