from __future__ import annotations

import ctypes
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import ostinato
from ostinato.codegen import perf, units
from tests.golden import parse

# Two layers that are alike, in kernels long enough to be units of their own.
MODEL = """
    g (float[N, 8] x) => (float[N, 8] y) {
        a = Tanh(x)
        b = Softmax <axis = 1> (a)
        c = Tanh(b)
        y = Softmax <axis = 1> (c)
    }
    """
pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="perf is of Linux")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(units, "SHORTEST", 1000)
    monkeypatch.setattr(perf, "FOLDER", tmp_path)
    monkeypatch.setattr(perf, "_dumps", {})
    return tmp_path


def session(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> ostinato.InferenceSession:
    monkeypatch.setenv("OSTINATO_PERF", kind)
    return ostinato.InferenceSession(parse(MODEL), cache_dir=folder / "cache")


def executable(address: int) -> bool:
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if "x" in line.split()[1]]
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in ranges)


def test_a_map_has_kernels_by_their_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in ("compiled", "cached"):
        found = session(folder, "map", monkeypatch)
        path = folder / f"perf-{os.getpid()}.map"
        rows = [line.split(" ", 2) for line in path.read_text().splitlines()]
        path.unlink()
        kernels = [row for row in rows if row[2].startswith("kernel.")]
        functions = {record["function"] for record in found.report().kernels}
        assert functions == {row[2].split()[0] for row in kernels}
        assert any(re.fullmatch(r"kernel\.\w+ .*, 1 alike", row[2]) for row in kernels)
        assert "entry" in {row[2] for row in rows}
        for address, size, _ in rows:
            assert executable(int(address, 16))
            assert executable(int(address, 16) + int(size, 16) - 1)
        # Each function begins behind another one's end: the byte before it is padding or a return.
        ends = {int(a, 16) + int(n, 16) for a, n, _ in rows}
        assert len(ends) == len(rows)
        for address in sorted(int(a, 16) for a, _, _ in rows):
            assert not any(int(a, 16) < address < int(a, 16) + int(n, 16) for a, n, _ in rows)


def test_a_dump_has_the_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = session(folder, "dump", monkeypatch)
    found.run(None, {"x": np.zeros((2, 8), np.float32)})
    data = (folder / f"jit-{os.getpid()}.dump").read_bytes()
    magic, version, size, _, _, process, _, _ = struct.unpack_from("<IIIIIIQQ", data)
    assert (magic, version, process) == (0x4A695444, 1, os.getpid())
    assert str(folder / f"jit-{os.getpid()}.dump") in Path("/proc/self/maps").read_text()
    names = []
    while size < len(data):
        kind, total, _, _, _, place, address, length, _ = struct.unpack_from(
            "<IIQIIQQQQ", data, size
        )
        name, _, code = data[size + 56 : size + total].partition(b"\0")
        assert (kind, place, len(code)) == (0, address, length)
        assert code == ctypes.string_at(address, length)
        names.append(name.decode())
        size += total
    assert size == len(data)
    assert any(name.startswith("kernel.") and " " in name for name in names)


def test_other_values_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ostinato.OptionError, match=r"OSTINATO_PERF='yes': expected one of map"):
        session(folder, "yes", monkeypatch)


def test_nothing_is_written_unasked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(folder, "", monkeypatch)
    assert [path.name for path in folder.iterdir()] == ["cache"]
