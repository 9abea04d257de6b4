"""Tell Linux's `perf` where compiled functions lie and what they are called.

The environment variable `OSTINATO_PERF` says how:

    map     lines in /tmp/perf-PID.map, which `perf report` reads by itself
    dump    /tmp/jit-PID.dump with the code as well, for `perf inject --jit` and `perf annotate`

Formats: tools/perf/Documentation/jit-interface.txt and jitdump-specification.txt of Linux. Other
values are refused, and no value costs nothing. Code is laid out as LLVM's JIT linker does it:
sections of the same protection one after the other, in the order of the object.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import re
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ostinato.codegen.relocatable import FILE, PROGBITS, SECTION, SYMBOL, SYMTAB
from ostinato.errors import OptionError
from ostinato.locks import new_lock

_VARIABLE = "OSTINATO_PERF"
FOLDER = Path("/tmp")
_EXECUTABLE = 0x4
_FUNCTION = 2
# Of a jitdump: magic, version, size, machine, padding, process, time, flags.
_HEADER = struct.Struct("<IIIIIIQQ")
_MAGIC = 0x4A695444
# Of a record of loaded code: its kind, size, time; process, thread, address twice, size, number.
_RECORD = struct.Struct("<IIQIIQQQQ")
_LOAD = 0
_LOCK = new_lock()


class _Function(NamedTuple):
    """A function in this process. text: its code; machine: the number that ELF has for it."""

    name: str
    address: int
    text: bytes
    machine: int


def announce(
    kind: str, object_code: bytes, addresses: Mapping[str, int], titles: Mapping[str, str]
) -> None:
    """Tell perf of the functions of a linked object.

    kind: the value of `OSTINATO_PERF`. addresses: of some of its symbols. titles: texts to add to
        the names of functions.
    Raises `OptionError` for a kind that is neither "map" nor "dump", and where there is no perf.
    """
    if sys.platform != "linux":
        raise OptionError(f"{_VARIABLE}={kind!r}: perf is a tool of Linux")
    if kind not in _WRITERS:
        raise OptionError(f"{_VARIABLE}={kind!r}: expected one of {', '.join(_WRITERS)}")
    with _LOCK, contextlib.suppress(OSError):
        _WRITERS[kind]([*_functions(object_code, addresses, titles)])


def _functions(
    object_code: bytes, addresses: Mapping[str, int], titles: Mapping[str, str]
) -> Iterator[_Function]:
    """Yield the functions of an ELF object at their places, which follow from some addresses."""
    if not object_code.startswith(b"\x7fELF\x02\x01"):
        return
    header = FILE.unpack_from(object_code)
    start, count = header[6], header[12]
    sections = [SECTION.unpack_from(object_code, start + i * SECTION.size) for i in range(count)]
    table = next(s for s in sections if s[1] == SYMTAB)
    names = sections[table[6]][4]
    symbols = []
    for symbol in SYMBOL.iter_unpack(object_code[table[4] : table[4] + table[5]]):
        if symbol[1] & 15 == _FUNCTION and 0 < symbol[3] < len(sections):
            end = object_code.index(b"\0", names + symbol[0])
            symbols.append((object_code[names + symbol[0] : end].decode(), *symbol[3:]))
    places = _places(sections)
    bases = {addresses[n] - v - places[s] for n, s, v, _ in symbols if n in addresses}
    if len(bases) != 1:
        return
    (base,) = bases
    for name, section, value, size in symbols:
        if section not in places or not size:
            continue
        address = base + places[section] + value
        title = f"{name} {titles[name]}" if name in titles else name
        yield _Function(
            re.sub(r"\s+", " ", title), address, ctypes.string_at(address, size), header[2]
        )


def _places(sections: list[tuple[int, ...]]) -> dict[int, int]:
    """The place of each section of code, relative to the first one."""
    places: dict[int, int] = {}
    end = 0
    for number, section in enumerate(sections):
        _, kind, flags, _, _, size, _, _, alignment, _ = section
        if kind == PROGBITS and flags & _EXECUTABLE and size:
            end += -end % max(alignment, 1)
            places[number] = end
            end += size
    return places


def _open(path: str, flags: int) -> int:
    """Open a file without following links, which anybody may put into the folder."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _write_map(functions: list[_Function]) -> None:
    lines = [f"{f.address:x} {len(f.text):x} {f.name}\n" for f in functions]
    path = FOLDER / f"perf-{os.getpid()}.map"
    with open(path, "a", encoding="utf-8", opener=_open) as file:
        file.writelines(lines)


def _write_dump(functions: list[_Function]) -> None:
    for function in functions:
        descriptor = _dump(function.machine)
        name = function.name.encode() + b"\0"
        size = _RECORD.size + len(name) + len(function.text)
        place, numbers = function.address, (os.getpid(), threading.get_native_id())
        code = (place, place, len(function.text), next(_NUMBERS))
        record = _RECORD.pack(_LOAD, size, time.monotonic_ns(), *numbers, *code)
        os.write(descriptor, record + name + function.text)


_NUMBERS = itertools.count()
# The descriptor of the file and its mapping, by process.
_dumps: dict[int, tuple[int, mmap.mmap]] = {}


def _dump(machine: int) -> int:
    """Open the file of this process. It is mapped, by which perf learns of it."""
    process = os.getpid()
    if process not in _dumps:
        path = FOLDER / f"jit-{process}.dump"
        descriptor = _open(str(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        now = time.monotonic_ns()
        os.write(descriptor, _HEADER.pack(_MAGIC, 1, _HEADER.size, machine, 0, process, now, 0))
        mapped = mmap.mmap(descriptor, _HEADER.size, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        _dumps[process] = descriptor, mapped
    return _dumps[process][0]


_WRITERS: dict[str, Callable[[list[_Function]], None]] = {"map": _write_map, "dump": _write_dump}
