"""Cases whose shapes depend on the values of inputs."""

from __future__ import annotations

from tests.cases.case import Case

CASES: list[Case] = []
