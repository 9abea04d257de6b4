"""Cases of Fourier transforms, framing and windows."""

from __future__ import annotations

from tests.cases.case import Case

CASES: list[Case] = []
