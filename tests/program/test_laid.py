from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ostinato.program.laid import Laid, Piece


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.int8, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn],
)
def test_constants_of_any_type_are_laid_out(dtype):
    source = np.arange(6).astype(dtype)
    # The transpose of a matrix of two rows, and a zero behind it.
    piece = Piece("w", 0, (1, 3), 0, (2, 1), (3, 2))
    laid = Laid(np.dtype(dtype), 7, (piece,), {"w": source})
    expected = [*source.reshape(2, 3).T.reshape(-1).astype(np.float32), 0]
    assert laid.elements().dtype == dtype
    np.testing.assert_array_equal(laid.elements().astype(np.float32), expected)
