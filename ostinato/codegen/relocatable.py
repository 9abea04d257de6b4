"""Join relocatable objects (ELF, 64 bits, little-endian) into one, as `ld -r` does, and trim them.

Sections are kept apart, so no address inside of one changes: sections and symbols get new numbers,
and a symbol that one object lacks and another one defines becomes the same. Format: System V ABI,
chapter 4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from ostinato.records import dataclass

FILE = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

PROGBITS, SYMTAB, _STRTAB, _RELA, _NOBITS = 1, 2, 3, 4, 8
_KEPT = frozenset((PROGBITS, _RELA, _NOBITS))
# Tells some linkers which symbols' addresses matter.
_LLVM_ADDRSIG = 0x6FFF4C03
_LEFT_OUT = frozenset((0, SYMTAB, _STRTAB, _LLVM_ADDRSIG))
_FILE_SYMBOL = 4
_SECTION_SYMBOL = 3
# Symbols without a type, and objects: those that are no functions.
_DATA_SYMBOLS = (0, 1)
_MERGE, _STRINGS = 0x10, 0x20
# Numbers from here on are no sections but absolute and common symbols.
_RESERVED = 0xFF00
_HEADER = b"\x7fELF\x02\x01\x01"


class NotRelocatable(ValueError):
    """Raised for bytes that are no object of the kind that can be joined."""


@dataclass
class _Strings:
    """A string table; equal strings are stored once."""

    data: bytearray = field(default_factory=lambda: bytearray(1))
    _places: dict[bytes, int] = field(default_factory=lambda: {b"": 0})

    def place(self, text: bytes) -> int:
        if text not in self._places:
            self._places[text] = len(self.data)
            self.data += text + b"\0"
        return self._places[text]


def _text(table: bytes, place: int) -> bytes:
    return table[place : table.index(b"\0", place)]


class _Object:
    """The parts of one object."""

    def __init__(self, data: bytes) -> None:
        self.header = FILE.unpack_from(data)
        if not data.startswith(_HEADER) or self.header[1] != 1:
            raise NotRelocatable("no relocatable object of ELF, 64 bits, little-endian")
        start, count, names = self.header[6], self.header[12], self.header[13]
        self.sections = [SECTION.unpack_from(data, start + i * 64) for i in range(count)]
        self.contents = [
            b"" if s[1] == _NOBITS else data[s[4] : s[4] + s[5]] for s in self.sections
        ]
        self.names = [_text(self.contents[names], s[0]) for s in self.sections]
        unknown = {s[1] for s in self.sections} - _KEPT - _LEFT_OUT
        tables = [i for i, s in enumerate(self.sections) if s[1] == SYMTAB]
        # Tables for unwinding would have to be merged; functions that nothing unwinds have none.
        if unknown or len(tables) != 1 or b".eh_frame" in self.names:
            raise NotRelocatable(f"sections {b' '.join(self.names).decode()}")
        self.symbols = list(SYMBOL.iter_unpack(self.contents[tables[0]]))
        self.strings = self.contents[self.sections[tables[0]][6]]
        self.locals = self.sections[tables[0]][7]

    def kept(self) -> Iterator[int]:
        return (i for i, section in enumerate(self.sections) if section[1] in _KEPT)


def join(objects: Sequence[bytes], names: Mapping[str, str] | None = None) -> bytes:
    """Join objects into one with the sections and symbols of all.

    names: of symbols, with their new names.
    Raises `NotRelocatable` for bytes of another format.
    """
    try:
        return _joined([_Object(data) for data in objects], names or {})
    except (struct.error, IndexError, ValueError) as error:
        raise NotRelocatable(str(error)) from error


def without_labels(data: bytes) -> bytes:
    """Make relocations relative to sections, instead of labels of constants in them.

    Otherwise each constant that fills a vector has a label, which is longer than the constant.
    Raises `NotRelocatable` for bytes of another format.
    """
    try:
        part = _Object(data)
        _drop_labels(part)
        return _joined([part], {})
    except (struct.error, IndexError, ValueError) as error:
        raise NotRelocatable(str(error)) from error


def _drop_labels(part: _Object) -> None:
    labels = {
        number
        for number, (_, info, _, section, *_) in enumerate(part.symbols[: part.locals])
        if info & 15 in _DATA_SYMBOLS and 0 < section < _RESERVED
    }
    sections = sorted({part.symbols[number][3] for number in labels})
    symbols = [part.symbols[0]]
    symbols += [(0, _SECTION_SYMBOL, 0, section, 0, 0) for section in sections]
    moved: dict[int, tuple[int, int]] = {0: (0, 0)}
    for number, symbol in enumerate(part.symbols[1:], 1):
        if number in labels:
            moved[number] = 1 + sections.index(symbol[3]), symbol[4]
        else:
            moved[number] = len(symbols), 0
            symbols.append(symbol)
    part.symbols, part.locals = symbols, part.locals - len(labels) + len(sections)
    for number, section in enumerate(part.sections):
        if number in sections:
            # Linkers may no longer move parts of the section one by one.
            flags = section[2] & ~(_MERGE | _STRINGS)
            part.sections[number] = (*section[:2], flags, *section[3:9], 0)
        if section[1] == _RELA:
            rows = []
            for at, what, addend in _RELOCATION.iter_unpack(part.contents[number]):
                target, more = moved[what >> 32]
                rows.append(_RELOCATION.pack(at, target << 32 | what & 0xFFFFFFFF, addend + more))
            part.contents[number] = b"".join(rows)


def _joined(parts: Sequence[_Object], renamed: Mapping[str, str]) -> bytes:
    numbers: list[dict[int, int]] = []
    count = 1
    for part in parts:
        numbers.append({old: count + new for new, old in enumerate(part.kept())})
        count += len(numbers[-1])
    strings = _Strings()
    symbols, found, own = _symbols(parts, numbers, strings, renamed)
    names = _Strings()
    sections: list[tuple[tuple[int, ...], bytes]] = [((0,) * 10, b"")]
    for part, places, numbered in zip(parts, numbers, found, strict=True):
        for old in places:
            _, kind, flags, address, _, size, link, info, align, entry = part.sections[old]
            contents = part.contents[old]
            if kind == _RELA:
                link, info = count, places[info]
                contents = b"".join(
                    _RELOCATION.pack(at, numbered[what >> 32] << 32 | what & 0xFFFFFFFF, addend)
                    for at, what, addend in _RELOCATION.iter_unpack(contents)
                )
            elif link:
                link = places.get(link, 0)
            name = names.place(part.names[old])
            fields = (name, kind, flags, address, 0, size, link, info, align, entry)
            sections.append((fields, contents))
    table = b"".join(SYMBOL.pack(*symbol) for symbol in symbols)
    last = [names.place(name) for name in (b".symtab", b".strtab", b".shstrtab")]
    sections += [
        ((last[0], SYMTAB, 0, 0, 0, len(table), count + 1, own, 8, SYMBOL.size), table),
        ((last[1], _STRTAB, 0, 0, 0, len(strings.data), 0, 0, 1, 0), bytes(strings.data)),
        ((last[2], _STRTAB, 0, 0, 0, len(names.data), 0, 0, 1, 0), bytes(names.data)),
    ]
    return _file(parts[0].header, sections)


def _symbols(
    parts: Sequence[_Object],
    numbers: Sequence[dict[int, int]],
    strings: _Strings,
    renamed: Mapping[str, str],
) -> tuple[list[tuple[int, ...]], list[dict[int, int]], int]:
    """Collect all symbols, their new numbers for each object, and how many of them are local."""
    symbols: list[tuple[int, ...]] = [(0,) * 6]
    found: list[dict[int, int]] = [{0: 0} for _ in parts]
    others = {old.encode(): new.encode() for old, new in renamed.items()}

    def moved(part: _Object, places: dict[int, int], symbol: tuple[int, ...]) -> tuple[int, ...]:
        name, info, other, section, value, size = symbol
        if 0 < section < _RESERVED:
            section = places[section]
        text = _text(part.strings, name)
        return strings.place(others.get(text, text)), info, other, section, value, size

    for part, places, numbered in zip(parts, numbers, found, strict=True):
        for old, symbol in enumerate(part.symbols[1 : part.locals], 1):
            in_dropped = 0 < symbol[3] < _RESERVED and symbol[3] not in places
            if symbol[1] & 15 != _FILE_SYMBOL and not in_dropped:
                numbered[old] = len(symbols)
                symbols.append(moved(part, places, symbol))
    own = len(symbols)
    by_name: dict[int, int] = {}
    for part, places, numbered in zip(parts, numbers, found, strict=True):
        for old, symbol in enumerate(part.symbols[part.locals :], part.locals):
            new = moved(part, places, symbol)
            numbered[old] = by_name.setdefault(new[0], len(symbols))
            if numbered[old] == len(symbols):
                symbols.append(new)
            elif new[3]:
                symbols[numbered[old]] = new
    return symbols, found, own


def _file(header: tuple[int, ...], sections: Sequence[tuple[tuple[int, ...], bytes]]) -> bytes:
    """Write the file of these sections, the last of which holds their names."""
    data = bytearray(FILE.size)
    table = bytearray()
    for fields, contents in sections:
        data += bytes(-len(data) % max(fields[8], 1))
        table += SECTION.pack(*fields[:4], len(data), *fields[5:])
        data += contents
    data += bytes(-len(data) % 8)
    count = len(sections)
    data[: FILE.size] = FILE.pack(*header[:6], len(data), *header[7:12], count, count - 1)
    return bytes(data + table)
