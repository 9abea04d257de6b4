from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ostinato.program.laid import Laid, Piece, Words, lay_out, view_of
from ostinato.program.transformed import Transformed


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


def test_what_is_computed_from_others_is_laid_out_like_these():
    taps = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    u = Transformed(taps, (((0, 1, 2),),), (2,), is_transposed=False)
    laid = Laid(u.dtype, u.size, (Piece("u", 0, (1, 2), 0, (4, 1), (2, 4)),), {"u": u})
    assert u.shape == (4, 1, 1, 2) and u.nbytes == laid.nbytes == 32
    blob = lay_out({"turned": laid, "u": u})
    values = blob.data.view(np.float32)
    # Of three taps: the first, half of their sum with each sign of the middle one, and the last.
    expected = [[0, 1.5, 0.5, 2], [3, 6, 2, 5]]
    np.testing.assert_array_equal(values[:8].reshape(2, 4), expected)
    made = values[blob.offsets["u"] // 4 :][:8]
    np.testing.assert_array_equal(made.reshape(4, 2), np.transpose(expected))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::-1],
        lambda x: x[1:, ::-2],
        lambda x: np.broadcast_to(x[:1], (3, 512)),
        lambda x: x[:, 3],
    ],
)
def test_views_are_copied_in_the_order_of_their_axes(view):
    array = view(np.arange(1024 * 512, dtype=np.float32).reshape(1024, 512))
    np.testing.assert_array_equal(view_of(array).elements(), array.reshape(-1))


def test_words_are_neighbours_of_others_the_first_one_lowest():
    source = np.arange(1, 5, dtype=ml_dtypes.bfloat16)
    # The two of a word are apart.
    halves = Laid(source.dtype, 4, (Piece("w", 0, (2, 1), 0, (1, 2), (2, 2)),), {"w": source})
    words = Words(halves, np.dtype(np.int32))
    assert (words.size, words.nbytes) == (2, 8)
    first, second = source.view(np.uint16).reshape(2, 2).astype(np.int32)
    np.testing.assert_array_equal(words.elements(), first | second << 16)
    np.testing.assert_array_equal(lay_out({"h": words}).data.view(np.int32)[:2], words.elements())
