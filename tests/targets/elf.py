"""Relocatable objects for AArch64 (ELF): sections placed in memory, relocations applied.

Format: System V ABI, chapter 4; relocations: ELF for the Arm 64-bit Architecture, section 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_ALLOCATED = 2
_FIRST_RESERVED, _ABSOLUTE = 0xFF00, 0xFFF1
_AARCH64 = 183
_PAGE = 4096

ABS64, PREL64, PREL32 = 257, 260, 261
ADR_PREL_LO21, ADR_PREL_PG_HI21, ADD_ABS_LO12 = 274, 275, 277
# Loads and stores by the bytes they move, as shifts of the offset.
LOADS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
JUMP26, CALL26 = 282, 283
ADR_GOT_PAGE, LD64_GOT_LO12 = 311, 312


@dataclass(frozen=True)
class Placed:
    """An object in memory: its bytes, and the addresses of its symbols."""

    contents: bytes
    symbols: Mapping[str, int]


def is_for_aarch64(data: bytes) -> bool:
    """Whether this is an object for little-endian AArch64."""
    return data[:6] == b"\x7fELF\x02\x01" and data[18] == _AARCH64


class Object:
    """An object that has not been placed.

    size: bytes that it takes when it is placed at a multiple of the size of a page, with a table of
        the addresses that code loads from one.
    undefined: names that others have to define.
    """

    def __init__(self, data: bytes) -> None:
        assert is_for_aarch64(data), "no object for AArch64"
        (start,), (count,) = (struct.unpack_from(f, data, at) for f, at in (("<Q", 40), ("<H", 60)))
        self._sections = [_SECTION.unpack_from(data, start + 64 * i) for i in range(count)]
        self._data = data
        self._offsets: dict[int, int] = {}
        end = 0
        for i, (_, _, flags, _, _, size, _, _, align, _) in enumerate(self._sections):
            if flags & _ALLOCATED:
                end = -(-end // max(align, 1)) * max(align, 1)
                self._offsets[i] = end
                end += size
        table = next(s for s in self._sections if s[1] == _SYMTAB)
        strings = self._contents(self._sections[table[6]])
        self._symbols = []
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(self._contents(table)):
            text = strings[name : strings.index(b"\0", name)].decode()
            self._symbols.append((text, section, value))
        self._table = -(-end // 8) * 8
        self.size = self._table + 8 * len(self._symbols)
        self.undefined = {name for name, section, _ in self._symbols if name and not section}

    def _contents(self, section: tuple[int, ...]) -> bytes:
        return self._data[section[4] : section[4] + section[5]]

    def placed(self, base: int, imports: Mapping[str, int]) -> Placed:
        """The object at an address; `imports`: addresses of what it does not define."""
        memory = bytearray(self.size)
        for i, offset in self._offsets.items():
            if self._sections[i][1] != _NOBITS:
                contents = self._contents(self._sections[i])
                memory[offset : offset + len(contents)] = contents
        addresses = []
        for name, section, value in self._symbols:
            if section in self._offsets:
                value += base + self._offsets[section]
            elif name and section != _ABSOLUTE and section < _FIRST_RESERVED:
                value = imports.get(name, 0)
            addresses.append(value)
        for number, address in enumerate(addresses):
            struct.pack_into("<Q", memory, self._table + 8 * number, address)
        for section in self._sections:
            if section[1] == _RELA and section[7] in self._offsets:
                for at, what, addend in _RELOCATION.iter_unpack(self._contents(section)):
                    number, kind = what >> 32, what & 0xFFFFFFFF
                    slot = base + self._table + 8 * number
                    if kind in (ADR_GOT_PAGE, LD64_GOT_LO12):
                        target = slot
                    else:
                        target = addresses[number] + addend
                    place = self._offsets[section[7]] + at
                    _relocate(memory, place, base + place, kind, target)
        names = (name for name, _, _ in self._symbols)
        return Placed(bytes(memory), dict(zip(names, addresses, strict=True)))


def _relocate(memory: bytearray, at: int, place: int, kind: int, target: int) -> None:
    """Write an address to the bytes at `at`, which are at the address `place`."""
    if kind in (ABS64, PREL64):
        value = target - (place if kind == PREL64 else 0)
        struct.pack_into("<Q", memory, at, value & (1 << 64) - 1)
        return
    if kind == PREL32:
        struct.pack_into("<i", memory, at, target - place)
        return
    (word,) = struct.unpack_from("<I", memory, at)
    if kind in (ADR_PREL_PG_HI21, ADR_GOT_PAGE, ADR_PREL_LO21):
        value = target - place
        if kind != ADR_PREL_LO21:
            value = target // _PAGE - place // _PAGE
        assert -(1 << 20) <= value < 1 << 20
        word |= (value & 3) << 29 | (value >> 2 & 0x7FFFF) << 5
    elif kind in (JUMP26, CALL26):
        assert (target - place) % 4 == 0 and abs(target - place) < 1 << 27, "a call too far"
        word |= (target - place) >> 2 & 0x3FFFFFF
    else:
        shift = 3 if kind == LD64_GOT_LO12 else 0 if kind == ADD_ABS_LO12 else LOADS[kind]
        assert target % (1 << shift) == 0
        word |= (target % _PAGE >> shift) << 10
    struct.pack_into("<I", memory, at, word)
