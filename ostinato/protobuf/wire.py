"""Protobuf's wire format: fields of messages, without the library.

The encoding is that of protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# As `items` has them.
Item: TypeAlias = tuple[int, int, int, int, int]


def fields(data: memoryview, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, begin, begin of the contents, end) of the fields that have a length.

    Raises IndexError where the data ends early.
    """
    for number, kind, begin, first, last in items(data, position, end):
        if kind == BYTES:
            yield number, begin, first, last


def integer(data: memoryview, position: int, end: int) -> int:
    """The integer of a field; 0 for a field of another kind."""
    ((_, kind, _, first, _),) = items(data, position, end)
    return _read_varint(data, first)[0] if kind == VARINT else 0


def items(data: memoryview, position: int, end: int) -> Iterator[Item]:
    """(field number, kind, begin, begin of the contents, end) of the fields of a message.

    Raises IndexError where the data ends early.
    """
    while position < end:
        begin = position
        key, first = _read_varint(data, position)
        kind = key & 7
        if kind == VARINT:
            _, position = _read_varint(data, first)
        elif kind == BYTES:
            length, first = _read_varint(data, first)
            position = first + length
        elif kind in (FIXED64, FIXED32):
            position = first + (8 if kind == FIXED64 else 4)
        else:
            raise IndexError
        if position > end and kind == BYTES:
            raise IndexError
        yield key >> 3, kind, begin, first, position


def field(number: int, contents: int) -> bytes:
    """The beginning of a field with a length: this many bytes of contents follow."""
    return _varint(number << 3 | BYTES) + _varint(contents)


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    done = bytearray()
    while value > 127:
        done.append(value & 127 | 128)
        value >>= 7
    done.append(value)
    return bytes(done)
