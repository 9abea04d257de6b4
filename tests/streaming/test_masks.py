"""What rows of a mask see."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.streaming.masks import Band, band_of, seen_by_rows

COUNT, LIMIT = 20, 8
ROW, COLUMN = np.arange(COUNT)[:, None], np.arange(COUNT)
ROW_CHUNK, COLUMN_CHUNK = ROW // 4, COLUMN // 4

BANDS = {
    "all so far": (COLUMN <= ROW, Band(1, (7,))),
    "a window": ((COLUMN <= ROW) & (ROW - COLUMN < 3), Band(1, (2,))),
    "longer than the limit": ((COLUMN <= ROW) & (ROW - COLUMN < 12), Band(1, (7,))),
    "itself": (ROW == COLUMN, Band(1, (0,))),
    "minus infinity elsewhere": (np.where(COLUMN <= ROW, 0.0, -np.inf), Band(1, (7,))),
    "chunks": (ROW_CHUNK == COLUMN_CHUNK, Band(4, (0, 1, 2, 3))),
    "chunks and the one before": (
        (COLUMN_CHUNK <= ROW_CHUNK) & (COLUMN_CHUNK >= ROW_CHUNK - 1),
        Band(4, (4, 5, 6, 7)),
    ),
    "chunks, all so far": (COLUMN_CHUNK <= ROW_CHUNK, Band(4, (7, 7, 7, 7))),
    "chunks, each row a window back": (
        (COLUMN_CHUNK <= ROW_CHUNK) & (COLUMN > ROW - 3),
        Band(4, (2, 2, 2, 2)),
    ),
    "every other frame": ((COLUMN <= ROW) & ((ROW - COLUMN) % 2 == 0), Band(1, (7,), exact=False)),
    "heads with windows of their own": (
        np.stack([(COLUMN <= ROW) & (ROW - n < COLUMN) for n in (2, 5)]),
        Band(1, (7,), exact=False),
    ),
    "everything": (np.ones((COUNT, COUNT), bool), None),
    "one ahead": (COLUMN <= ROW + 1, None),
    "not itself": (COLUMN < ROW, None),
    "a prefix": ((COLUMN <= ROW) | (COLUMN < 5), None),
    "the second chunk longer": ((COLUMN_CHUNK <= ROW_CHUNK) | ((ROW == 4) & (COLUMN == 8)), None),
}


@pytest.mark.parametrize("name", BANDS)
def test_bands(name: str) -> None:
    table, band = BANDS[name]
    seen = seen_by_rows(table)
    assert seen is not None
    assert band_of(seen, LIMIT) == band


def test_what_is_no_square_is_no_mask() -> None:
    assert seen_by_rows(np.ones((3, 4), bool)) is None
    assert seen_by_rows(np.ones(3, bool)) is None
