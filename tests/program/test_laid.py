from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ostinato.program.laid import Laid, Made, Piece, Words, lay_out


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


def test_what_is_made_of_others_is_made_when_it_is_written():
    asked = []

    def make():
        asked.append(len(asked))
        return np.arange(6, dtype=np.float32).reshape(2, 3)

    made = Made(np.dtype(np.float32), 6, make)
    laid = Laid(made.dtype, 6, (Piece("u", 0, (1, 3), 0, (2, 1), (3, 2)),), {"u": made})
    assert made.nbytes == laid.nbytes == 24 and not asked
    blob = lay_out({"turned": laid, "u": made})
    assert asked == [0, 1]
    values = blob.data.view(np.float32)
    np.testing.assert_array_equal(values[:6], [0, 3, 1, 4, 2, 5])
    np.testing.assert_array_equal(values[blob.offsets["u"] // 4 :][:6], range(6))


def test_words_are_neighbours_of_others_the_first_one_lowest():
    source = np.arange(1, 5, dtype=ml_dtypes.bfloat16)
    # The two of a word are apart.
    halves = Laid(source.dtype, 4, (Piece("w", 0, (2, 1), 0, (1, 2), (2, 2)),), {"w": source})
    words = Words(halves, np.dtype(np.int32))
    assert (words.size, words.nbytes) == (2, 8)
    first, second = source.view(np.uint16).reshape(2, 2).astype(np.int32)
    np.testing.assert_array_equal(words.elements(), first | second << 16)
    np.testing.assert_array_equal(lay_out({"h": words}).data.view(np.int32)[:2], words.elements())
