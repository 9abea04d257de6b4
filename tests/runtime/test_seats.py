from __future__ import annotations

import pytest

from ostinato.errors import StreamError
from ostinato.runtime.seats import Seats


def test_rows_are_taken_again_but_handles_never() -> None:
    seats = Seats(2)
    first, second = seats.take(), seats.take()
    assert dict(seats.slots) == {first: 0, second: 1} and seats.owner(1) == second
    with pytest.raises(StreamError, match="all 2 streams"):
        seats.next_free()
    assert seats.leave(first) == 0
    assert seats.next_free() == 0
    third = seats.take()
    assert third not in (first, second) and seats.slot(third) == 0
    with pytest.raises(StreamError, match=f"stream {first} is closed"):
        seats.slot(first)


def test_a_closed_pool_has_no_seats() -> None:
    seats = Seats(1)
    handle = seats.take()
    seats.close()
    assert handle not in seats
    for use in (seats.next_free, lambda: seats.leave(handle)):
        with pytest.raises(StreamError, match="closed"):
            use()
