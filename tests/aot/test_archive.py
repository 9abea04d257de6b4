from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ostinato.aot.archive import Member, archive
from tests.aot import models

MEMBERS = [
    Member("one.o", b"abc", ["first", "second"]),
    Member("a_name_of_more_than_sixteen_letters.o", b"defg", ["third"]),
]


def members(data: bytes) -> dict[int, tuple[str, bytes]]:
    """Name and contents of every member, by its offset."""
    assert data.startswith(b"!<arch>\n")
    found, place = {}, 8
    while place < len(data):
        header = data[place : place + 60]
        assert header[58:] == b"`\n"
        size = int(header[48:58])
        found[place] = header[:16].decode().strip(), data[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    return found


def test_the_index_of_system_v_leads_to_the_members() -> None:
    found = members(archive(MEMBERS))
    (index_name, index), (names_name, names), *_ = found.values()
    assert (index_name, names_name) == ("/", "//")
    count, *offsets = struct.unpack_from(">4I", index)
    assert count == 3 and index[16:] == b"first\0second\0third\0"
    assert [found[offset][1] for offset in offsets] == [b"abc", b"abc", b"defg"]
    places = [int(found[offset][0][1:]) for offset in offsets]
    assert names[places[0] :].startswith(b"one.o/\n")
    assert names[places[2] :].startswith(b"a_name_of_more_than_sixteen_letters.o/\n")


def test_the_index_of_bsd_leads_to_the_members() -> None:
    found = members(archive(MEMBERS, apple=True))
    index_name, index = next(iter(found.values()))
    assert index_name == "#1/12" and index.startswith(b"__.SYMDEF\0\0\0")
    (size,) = struct.unpack_from("<I", index, 12)
    rows = [struct.unpack_from("<II", index, 16 + i) for i in range(0, size, 8)]
    names = index[16 + size + 4 :]
    assert [names[place : names.index(b"\0", place)] for place, _ in rows] == [
        b"first",
        b"second",
        b"third",
    ]
    for (_, offset), expected in zip(rows, (b"abc", b"abc", b"defg"), strict=True):
        header, contents = found[offset]
        start = int(header.removeprefix("#1/"))
        assert contents[start:].startswith(expected) and (offset + 60 + start) % 8 == 0


@pytest.mark.skipif(shutil.which("ar") is None, reason="no ar here")
def test_the_archiver_of_the_system_reads_it(tmp_path: Path) -> None:
    library = models.gru_library()
    (tmp_path / "libgru.a").write_bytes(library.archive())
    subprocess.run(["ar", "x", "libgru.a"], cwd=tmp_path, check=True)
    assert (tmp_path / "gru.o").read_bytes() == library.object
    listed = subprocess.run(
        ["nm", "-s", "libgru.a"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert "gru_step in gru.o" in listed and "gru_create in gru_heap.o" in listed
