from __future__ import annotations

import numpy as np
import pytest

from ostinato.sizes.dims import symbol
from ostinato.sizes.strides import dense_strides, dropped, expanded, inserted, reshaped

N = symbol("N")
MEMORY = np.arange(120).reshape(2, 3, 4, 5)


def strides(array: np.ndarray) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


@pytest.mark.parametrize(
    "view", [MEMORY, MEMORY[:, ::2], MEMORY.transpose(1, 0, 2, 3), MEMORY[..., 1:3], MEMORY[:, :1]]
)
def test_views_of_numpy(view: np.ndarray):
    shape, own = view.shape, strides(view)
    longer = np.expand_dims(view, (0, 3))
    moving = [i for i, extent in enumerate(longer.shape) if extent != 1]
    found = inserted(own, (0, 3))
    assert [found[i] for i in moving] == [strides(longer)[i] for i in moving]
    assert dropped(found, (0, 3)) == own
    wanted = (6, *(7 if extent == 1 else extent for extent in shape))
    assert expanded(shape, own, wanted) == strides(np.broadcast_to(view, wanted))
    flat = (shape[0], shape[1], shape[2] * shape[3])
    copied = view.reshape(flat)
    expected = strides(copied) if np.shares_memory(copied, MEMORY) else None
    got = reshaped(shape, own, flat)
    assert (got is None) == (expected is None)
    if got is not None and expected is not None:
        assert [s for s, n in zip(got, flat, strict=True) if n != 1] == [
            s for s, n in zip(expected, flat, strict=True) if n != 1
        ]


def test_run_time_sizes():
    assert dense_strides((2, N, 5)) == (5 * N, 5, 1)
    assert reshaped((N, 4), (4, 1), (N, 2, 2)) == (4, 2, 1)
    assert reshaped((N, 4), (8, 1), (4 * N,)) is None
