"""Fields of protobuf messages, beside the library."""

from __future__ import annotations

import onnx
import pytest

from ostinato.protobuf.wire import field, fields


def test_fields_that_have_a_length_are_found() -> None:
    tensor = onnx.TensorProto(name="n" * 300, dims=[3], data_type=1, raw_data=b"123")
    data = memoryview(tensor.SerializeToString())
    found = {
        number: (begin, first, last) for number, begin, first, last in fields(data, 0, len(data))
    }
    assert found.keys() == {8, 9}
    for number, text in ((8, b"n" * 300), (9, b"123")):
        begin, first, last = found[number]
        assert data[first:last] == text
        assert data[begin:first] == field(number, len(text))


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x0a\xff"])
def test_data_that_ends_early_is_an_error(data: bytes) -> None:
    with pytest.raises(IndexError):
        list(fields(memoryview(data), 0, len(data)))
