"""Files of arrays: whatever is wrong with one is an error that names the file and the member."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ostinato import InputError
from ostinato.runtime.archive import Entry, Kind, read_arrays, write_arrays

KIND = Kind("thing", "another thing")
A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([True, False])
EXPECTED = {
    "a": Entry(A.dtype, (2, None)),
    "b": Entry(B.dtype, (2,)),
    "c": Entry(np.dtype(ml_dtypes.bfloat16), None, is_optional=True),
}


def read(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(path, KIND, "print", EXPECTED)


def header(text: str, elements: bytes = b"") -> bytes:
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + elements


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


MEMBERS = {"fingerprint.npy": as_npy(np.array("print")), "a.npy": as_npy(A), "b.npy": as_npy(B)}


def written(path: Path, members: dict[str, bytes | None], **settings: Any) -> Path:
    with zipfile.ZipFile(path, "w", **settings) as file:
        for name, data in (MEMBERS | members).items():
            if data is not None:
                file.writestr(name, data)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    c = np.array([1.5, 2], ml_dtypes.bfloat16)
    arrays = {"a": np.asfortranarray(A), "b": B, "c": c}
    write_arrays(tmp_path / "file", "print", arrays)
    found = read(tmp_path / "file")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].flags.writeable
        np.testing.assert_array_equal(found[name], array)
    assert read(written(tmp_path / "file", {})).keys() == {"a", "b"}


WRONG: dict[str, tuple[dict[str, bytes | None], str]] = {
    "a name": ({"d.npy": as_npy(A)}, "member 'd.npy': expected 'a', 'b', 'c'"),
    "no suffix": ({"a.npy": None, "a": as_npy(A), "a.npx": b""}, "member 'a.npx'"),
    "nothing": ({"b.npy": None}, "member 'b.npy' is missing"),
    "no fingerprint": ({"fingerprint.npy": None}, "member 'fingerprint.npy' is missing"),
    "long fingerprint": ({"fingerprint.npy": bytes(1 << 20)}, "expected a short text"),
    "dtype": ({"a.npy": as_npy(A.astype(np.float64))}, r"'a.npy': expected float32\[2, \?\]"),
    "shape": ({"b.npy": as_npy(np.zeros(3, bool))}, r"expected bool\[2\], got bool\[3\]"),
    "size": ({"b.npy": bytes(1 << 20)}, r"'b.npy': expected bool\[2\], got 1048576 bytes"),
    "objects": (
        {"a.npy": header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}")},
        "'a.npy': expected float32",
    ),
    "huge shape": (
        {"a.npy": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1 << 60)}")},
        "member 'a.npy'",
    ),
    "huge number": (
        {"a.npy": header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': (2, {2**61})}}")},
        "'a.npy': expected 18446744073709551616 bytes",
    ),
    "negative": (
        {"a.npy": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}")},
        r"got float32\[2, -3\]",
    ),
    "an open bracket": ({"a.npy": header("{'descr': '<f4', ((")}, "member 'a.npy'"),
    "nested": ({"a.npy": header("(" * 100)}, "member 'a.npy'"),
    "short": ({"a.npy": as_npy(A)[:-4]}, "expected 24 bytes of elements, got 20"),
    "long": ({"a.npy": as_npy(A) + b"1234"}, "expected 24 bytes of elements, got 28"),
    "neither": ({"b.npy": as_npy(B)[:-1] + b"\x02"}, "neither true nor false"),
    "empty": ({"a.npy": b""}, "member 'a.npy'"),
    "version": ({"a.npy": b"\x93NUMPY\x09\x00" + bytes(20)}, r"version \(9, 0\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_members_that_are_wrong(name: str, tmp_path: Path) -> None:
    members, message = WRONG[name]
    path = written(tmp_path / "file.npz", members)
    with pytest.raises(InputError, match=rf"file\.npz: no thing \(.*{message}"):
        read(path)


def flagged(path: Path) -> None:
    """Say of each member, in both of its headers, that it is encrypted."""
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 1)
    path.write_bytes(data)


def twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("a.npy", MEMBERS["a.npy"])


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: (path.unlink(), make(path))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flagged, "no thing .*compressed or encrypted"),
        (twice, "'a.npy' is there twice"),
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "no thing"),
        (lambda path: path.write_bytes(b""), "no thing"),
        (lambda path: path.unlink(), "no thing"),
        (replaced_by(os.mkfifo), "no regular file"),
        (replaced_by(Path.mkdir), "no regular file"),
        (lambda path: written(path, {"fingerprint.npy": as_npy(np.array("x"))}), "another thing"),
    ],
)
def test_files_that_are_wrong(
    damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "file.npz", {})
    damage(path)
    with pytest.raises(InputError, match=rf"file\.npz: .*{message}|file\.npz: {message}"):
        read(path)


def test_nothing_is_inflated(tmp_path: Path) -> None:
    bomb = as_npy(np.zeros((2, 1 << 23), np.float32))
    path = written(tmp_path / "file.npz", {"a.npy": bomb}, compression=zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="compressed"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    write_arrays(path, "print", {"a": A, "b": B})
    content, random = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] = random.integers(256)
        path.write_bytes(damaged)
        try:
            found = read(path)
        except InputError as error:
            refused += 1
            assert str(path) in str(error)
        else:
            np.testing.assert_array_equal(found["a"], A)
            np.testing.assert_array_equal(found["b"], B)
    assert refused > 100
