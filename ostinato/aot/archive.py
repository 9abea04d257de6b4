"""Static libraries: the format of `ar`, with an index of symbols, so that linkers take them.

    "!<arch>"       and a line feed
    index           which symbol is in the member at which offset
    members         a header of 60 characters and the contents, each at an even offset

GNU's and Microsoft's linkers read the index of System V: big-endian offsets, then names. Apple's
read that of BSD: pairs of a name's and a member's offset, little-endian, and names of members in
front of their contents. All times and owners are 0, so that equal builds are equal files.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_MAGIC = b"!<arch>\n"
_HEADER = 60


@dataclass(frozen=True)
class Member:
    """An object file, and the symbols it defines as its linker spells them."""

    name: str
    contents: bytes
    symbols: Sequence[str]


def archive(members: Sequence[Member], apple: bool = False) -> bytes:
    """The library of these members."""
    return _bsd(members) if apple else _system_v(members)


def _header(name: str, size: int) -> bytes:
    fields = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{size:<10}`\n"
    assert len(fields) == _HEADER, fields
    return fields.encode()


def _system_v(members: Sequence[Member]) -> bytes:
    symbols = [(symbol, i) for i, member in enumerate(members) for symbol in member.symbols]
    names = b"".join(symbol.encode() + b"\0" for symbol, _ in symbols)
    long_names = b"".join(f"{member.name}/\n".encode() for member in members)
    index_size = 4 + 4 * len(symbols) + len(names)
    start = len(_MAGIC) + _HEADER + _even(index_size) + _HEADER + _even(len(long_names))
    offsets: list[int] = []
    parts: list[bytes] = []
    place = 0
    for member in members:
        offsets.append(start + sum(map(len, parts)))
        parts.append(_padded(_header(f"/{place}", len(member.contents)) + member.contents))
        place += len(member.name) + 2
    index = struct.pack(f">I{len(symbols)}I", len(symbols), *(offsets[i] for _, i in symbols))
    head = _padded(_header("/", index_size) + index + names)
    table = _padded(_header("//", len(long_names)) + long_names)
    return _MAGIC + head + table + b"".join(parts)


def _bsd(members: Sequence[Member]) -> bytes:
    """Contents begin at multiples of eight, as Apple's linker wants them."""
    symbols = [(symbol, i) for i, member in enumerate(members) for symbol in member.symbols]
    names = b"".join(symbol.encode() + b"\0" for symbol, _ in symbols)
    names += bytes(-len(names) % 8)
    index_name = b"__.SYMDEF\0\0\0"
    index_size = len(index_name) + 4 + 8 * len(symbols) + 4 + len(names)
    start = len(_MAGIC) + _HEADER + index_size
    offsets: list[int] = []
    parts: list[bytes] = []
    for member in members:
        place = start + sum(map(len, parts))
        offsets.append(place)
        name = member.name.encode() + b"\0"
        name += bytes(-(place + _HEADER + len(name)) % 8)
        contents = member.contents + bytes(-len(member.contents) % 8)
        size = len(name) + len(contents)
        parts.append(_header(f"#1/{len(name)}", size) + name + contents)
    rows, place = b"", 0
    for symbol, i in symbols:
        rows += struct.pack("<II", place, offsets[i])
        place += len(symbol) + 1
    index = struct.pack("<I", len(rows)) + rows + struct.pack("<I", len(names)) + names
    return (
        _MAGIC + _header(f"#1/{len(index_name)}", index_size) + index_name + index + b"".join(parts)
    )


def _even(size: int) -> int:
    return size + size % 2


def _padded(part: bytes) -> bytes:
    return part + b"\n" * (len(part) % 2)
