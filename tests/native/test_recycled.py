from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from ostinato.native.recycled import RecycledMemory, is_large

pytestmark = pytest.mark.host

FLOAT = np.dtype(np.float32)
LARGE = (256, 1024)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_of_a_large_array_is_given_out_again_when_the_last_view_is_gone() -> None:
    memory = RecycledMemory(1)
    first = memory.empty(LARGE, FLOAT)
    place, view = address(first), first[7:9, ::2]
    del first
    second = memory.empty(LARGE, FLOAT)
    assert not np.shares_memory(view, second)
    del view
    assert address(memory.empty(LARGE, FLOAT)) == place


@pytest.mark.parametrize("dtype", ["float64", "bool", "uint8", ml_dtypes.bfloat16])
def test_large_arrays_are_aligned_and_have_shape_and_dtype(dtype: object) -> None:
    array = RecycledMemory(1).empty((3, 1 << 16), np.dtype(dtype))
    assert array.shape == (3, 1 << 16) and array.dtype == np.dtype(dtype)
    assert address(array) % 64 == 0 and array.flags.c_contiguous and array.flags.writeable


def test_small_arrays_are_those_of_numpy() -> None:
    shape = (16, 16)
    assert not is_large(shape, FLOAT) and RecycledMemory(1).empty(shape, FLOAT).flags.owndata
    assert is_large(LARGE, FLOAT)


def test_a_block_is_not_given_out_for_much_less_or_more_than_it_has() -> None:
    memory = RecycledMemory(1)
    place = address(memory.empty((256, 1024), FLOAT))
    assert address(memory.empty((257, 1024), FLOAT)) != place
    assert address(memory.empty((127, 1024), FLOAT)) != place


def test_two_blocks_per_output_wait() -> None:
    memory = RecycledMemory(1)
    held = [memory.empty(LARGE, FLOAT) for _ in range(5)]
    places = [address(array) for array in held]
    while held:
        del held[0]
    again = [memory.empty(LARGE, FLOAT) for _ in range(2)]
    assert {address(array) for array in again} == set(places[-2:])


def test_threads_never_get_the_same_memory() -> None:
    memory, wrong = RecycledMemory(2), []

    def use(number: int) -> None:
        for _ in range(300):
            array = memory.empty(LARGE, FLOAT)
            array[::32] = number
            if not (array[::32] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_more_than_there_is_raises_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        RecycledMemory(1).empty((1 << 46,), FLOAT)
