"""Files of NumPy arrays by name, written by this package, and read as if by nobody knows whom.

A file is an .npz archive whose members are not compressed. It is read against a description of what
must be in it: names and sizes are compared before the contents of a member are touched, so memory
is bounded by what is expected, and by the size of the file where a size is open.
"""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.errors import InputError

Array = np.ndarray[Any, Any]

_SUFFIX = ".npy"
# Bytes before the elements of a member, at most.
_HEADER_BYTES = 1 << 14
_ENCRYPTED = 1
_FINGERPRINT = "fingerprint"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Entry:
    """An array that a file has under a name.

    shape: None for each size that is open, or for an open rank. is_optional: whether the file may
    do without it.
    """

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None
    is_optional: bool = False

    def __str__(self) -> str:
        sizes = ["..."] if self.shape is None else ["?" if n is None else n for n in self.shape]
        return f"{self.dtype.name}[{', '.join(map(str, sizes))}]"

    def most_bytes(self) -> int | None:
        """The most that its elements can take; None where a size is open."""
        if self.shape is None or None in self.shape:
            return None
        return math.prod(size or 0 for size in self.shape) * self.dtype.itemsize

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        """Whether an array can be this one, as far as dtype and shape tell."""
        expected = shape if self.shape is None else self.shape
        same = len(shape) == len(expected) and all(
            size >= 0 and wanted in (None, size)
            for wanted, size in zip(expected, shape, strict=True)
        )
        return same and dtype in (self.dtype, _in_file(self.dtype))


@dataclass(frozen=True)
class Kind:
    """Describe a file for messages: "a saved state"; and one that is of `another` model."""

    name: str
    another: str


def write_arrays(
    path: str | os.PathLike[str], fingerprint: str, arrays: Mapping[str, Array]
) -> None:
    """Write arrays by name. An old file at `path` stays until the new one is complete.

    fingerprint: of what the arrays belong to.
    """
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    written: dict[str, Any] = {_FINGERPRINT: np.array(fingerprint), **arrays}
    try:
        with open(partial, "wb") as file:
            np.savez(file, **written)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def read_arrays(
    path: str | os.PathLike[str], kind: Kind, fingerprint: str, expected: Mapping[str, Entry]
) -> dict[str, Array]:
    """The arrays of a file that `write_arrays` wrote: those of `expected` and no others.

    Raises `InputError` with the path, the member and the reason for anything else: a file that is
    damaged, or whose fingerprint, names, dtypes, shapes or sizes are not the expected ones.
    """
    name = os.fspath(path)
    try:
        # Opening a pipe would wait for somebody to write to it.
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise _Damage("it is no regular file")
        with zipfile.ZipFile(name) as file:
            members = _by_name(file)
            written = _read(file, _found(members.pop(_FINGERPRINT, None), _FINGERPRINT), None)
            if str(written) != fingerprint:
                raise InputError(f"{name}: {kind.another}")
            _check(members, expected)
            return {n: _read(file, member, expected[n]) for n, member in members.items()}
    except InputError:
        raise
    except Exception as error:  # zipfile raises a dozen kinds for what is damaged
        is_missing = isinstance(error, FileNotFoundError)
        reason = "no such file" if is_missing else str(error) or type(error).__name__
        raise InputError(f"{name}: no {kind.name} ({reason})") from error


class _Damage(Exception):
    """Describe what is wrong with a file, to be told with its name."""


def _by_name(file: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by the name of their array, none of which is compressed."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in file.infolist():
        name = member.filename.removesuffix(_SUFFIX)
        if name in members:
            raise _Damage(f"member {member.filename!r} is there twice")
        if member.flag_bits & _ENCRYPTED or member.compress_type != zipfile.ZIP_STORED:
            raise _Damage(f"member {member.filename!r} is compressed or encrypted")
        members[name] = member
    return members


def _found(member: zipfile.ZipInfo | None, name: str) -> zipfile.ZipInfo:
    if member is None:
        raise _Damage(f"member {name + _SUFFIX!r} is missing")
    return member


def _check(members: Mapping[str, zipfile.ZipInfo], expected: Mapping[str, Entry]) -> None:
    """Refuse what can be seen to be wrong without reading a member."""
    for name, member in members.items():
        if name not in expected:
            listed = ", ".join(repr(name) for name in expected)
            raise _Damage(f"member {member.filename!r}: expected {listed}")
        most = expected[name].most_bytes()
        if most is not None and member.file_size > most + _HEADER_BYTES:
            size = f"{member.file_size} bytes"
            raise _Damage(f"member {member.filename!r}: expected {expected[name]}, got {size}")
    for name, entry in expected.items():
        if not entry.is_optional:
            _found(members.get(name), name)


def _read(file: zipfile.ZipFile, member: zipfile.ZipInfo, entry: Entry | None) -> Array:
    """The array of a member, which is a short text where no `entry` says what it is."""
    try:
        if entry is None and member.file_size > _HEADER_BYTES:
            raise _Damage(f"expected a short text, got {member.file_size} bytes")
        # It is not compressed, so that is no more than the file has. The check sum is compared.
        return _decoded(file.read(member), entry)
    except Exception as error:  # the header is a Python literal, of which anything can be wrong
        reason = str(error) or type(error).__name__
        raise _Damage(f"member {member.filename!r}: {reason}") from error


def _decoded(data: bytes, entry: Entry | None) -> Array:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read_header = _HEADERS.get(version)
    if read_header is None:
        raise _Damage(f"version {version} of the format .npy")
    shape, by_columns, dtype = read_header(stream)
    is_text = dtype.kind == "U" and shape == ()
    if not (is_text if entry is None else entry.fits(dtype, shape)):
        found = f"{dtype.name}[{', '.join(map(str, shape))}]"
        raise _Damage(f"expected {entry or 'a text'}, got {found}")
    elements, size = data[stream.tell() :], math.prod(shape) * dtype.itemsize
    if len(elements) != size:
        raise _Damage(f"expected {size} bytes of elements, got {len(elements)}")
    array: Array = np.ndarray(shape, dtype, bytearray(elements), order="F" if by_columns else "C")
    if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise _Damage("an element is neither true nor false")
    return array if entry is None else array.view(entry.dtype)


def _in_file(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in NumPy's files for elements of `dtype`: bytes where NumPy does not know it."""
    is_known = dtype.isbuiltin == 1
    return dtype if is_known else np.dtype(f"V{dtype.itemsize}")
