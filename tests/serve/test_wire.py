from __future__ import annotations

import numpy as np
import pytest

from ostinato.serve.lanes import Call, Failure, Job, Step
from ostinato.serve.protocol import Status
from ostinato.serve.wire import Close, Inbox, encoded, packed, packed_step, unpacked, unpacked_step


def fed(inbox: Inbox, data: bytes) -> list[object]:
    space = inbox.space()
    space[: len(data)] = data
    return inbox.received(len(data))


@pytest.mark.parametrize("piece", [1, 7, 4096, 1 << 16])
def test_parcels_out_of_pieces(piece: int) -> None:
    parcels = ["a", {"b": 1}, "c" * 1000, b"d" * 300_000, "", b"e" * 3_000_000, "f", b"g" * 70_000]
    data, inbox, found = b"".join(map(encoded, parcels * 2)), Inbox(), []
    if piece < 4096:
        parcels = parcels[:3]
        data = b"".join(map(encoded, parcels * 2))
    while data:
        count = min(piece, len(inbox.space()))
        found += fed(inbox, data[:count])
        data = data[count:]
    assert found == parcels * 2


def test_an_inbox_forgets_the_memory_of_a_long_parcel() -> None:
    inbox, data = Inbox(), encoded(b"x" * 5_000_000)
    while data:
        count = len(inbox.space())
        fed(inbox, data[:count])
        data = data[count:]
    assert len(inbox.space()) <= 1 << 20


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_arrays_arrive_as_they_were(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, dtype)
    job = Job(3, "m", {"x": x, "y": x.T}, 5, start=True)
    inbox = Inbox()
    (parcel,) = fed(inbox, encoded(packed([job, Close("m", 5)])))
    other, close = unpacked(parcel)
    assert close == Close("m", 5)
    assert isinstance(other, Job)
    assert (other.number, other.model, other.sequence) == (3, "m", 5)
    assert (other.start, other.end) == (True, False)
    step = Step({3: {"z": x}, 4: Failure(Status.INVALID, "no")}, [Call("m", 1, 0.5)])
    (parts,) = fed(inbox, encoded(packed_step(step)))
    back = unpacked_step(parts)
    assert back.outcomes[4] == step.outcomes[4]
    assert back.calls == step.calls
    z = back.outcomes[3]
    assert isinstance(z, dict)
    for array, wanted in ((other.inputs["x"], x), (other.inputs["y"], x.T), (z["z"], x)):
        assert array.dtype == wanted.dtype
        np.testing.assert_array_equal(array, wanted)
