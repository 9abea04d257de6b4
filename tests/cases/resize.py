"""Cases of resampling and transposed convolution."""

from __future__ import annotations

from tests.cases.case import Case

CASES: list[Case] = []
