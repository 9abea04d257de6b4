"""Sums and rows are dealt out to loops and tiles."""

from __future__ import annotations

import pytest

from ostinato.schedule.shapes import sums_at_once


@pytest.mark.parametrize(
    ("sums", "vectors", "held", "count"),
    [(4, 8, None, 4), (4, 8, 16, 2), (3, 8, 16, 2), (4, 5, 16, 2), (4, 4, 16, 4), (2, 99, 16, 1)],
)
def test_sums_are_dealt_out_evenly(sums, vectors, held, count):
    assert sums_at_once(sums, vectors, held) == count
