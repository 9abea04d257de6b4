"""Compiled code and packed weights on disk, one file an entry.

    prefix      magic, size of the header, size of the file, CRC-32 of all that follows
    header      JSON: the key, the caller's header, (offset, size) of every blob; padded
    blobs       at multiples of 64 bytes, so that mapped weights are aligned

An entry that is damaged, truncated, foreign (another user's or another key's) or unreadable is a
miss; storing replaces it. Files are written beside their place and moved there, so a reader sees
a whole entry or none, whatever number of processes write. Blobs are mapped read-only: processes
that load one entry share its pages.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import mmap
import os
import stat
import struct
import tempfile
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.codegen import objects
from ostinato.version import __version__

Array = np.ndarray[Any, Any]

_MAGIC = b"OSTINAT1"
_PREFIX = struct.Struct("<8sQQI")
_ALIGNMENT = 64
_warned: set[str] = set()


@dataclass(frozen=True)
class Entry:
    """A loaded entry: the header given to `store`, and read-only uint8 views of its blobs."""

    header: Mapping[str, Any]
    blobs: tuple[Array, ...]


@functools.cache
def _source_stamp() -> str:
    """Sizes and times of the package's files: a changed compiler is another compiler."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(__version__.encode())
    for folder, subfolders, files in os.walk(root):
        subfolders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                facts = os.stat(os.path.join(folder, name))
                digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def machine_key(*parts: bytes | str) -> str:
    """Name of the entry for `parts` on this machine with these versions, as hexadecimal digits."""
    digest = hashlib.sha256()
    for part in (*parts, _source_stamp(), *objects.versions(), *objects.host()):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """Entries in `folder`, which is made on demand; a folder of None never holds anything."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)

    def load(self, key: str) -> Entry | None:
        """The entry stored under `key`, or None when there is none that can be trusted."""
        if self._folder is None:
            return None
        try:
            data = _map(self._folder / key)
            return None if data is None else _decode(data, key)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, key: str, header: Mapping[str, Any], blobs: Sequence[bytes | Array]) -> None:
        """Write an entry. A folder that cannot be written to is warned about once, not raised."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._folder, key, _encode(key, header, blobs))
        except OSError as error:
            if str(self._folder) not in _warned:
                _warned.add(str(self._folder))
                message = f"compiled models are not kept: {self._folder} is not writable ({error})"
                warnings.warn(message, RuntimeWarning, stacklevel=2)


def _bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _encode(
    key: str, header: Mapping[str, Any], blobs: Sequence[bytes | Array]
) -> list[bytes | memoryview]:
    """The file's pieces in order."""
    views = [memoryview(blob) if isinstance(blob, bytes) else _bytes_of(blob) for blob in blobs]
    # Offsets count from the end of the header, whose own size depends on them.
    places, end = [], 0
    for view in views:
        places.append((end, len(view)))
        end = _aligned(end + len(view))
    text = json.dumps({"key": key, "header": header, "blobs": places}).encode()
    head = text + b" " * (-(_PREFIX.size + len(text)) % _ALIGNMENT)
    pieces: list[bytes | memoryview] = [head]
    for view in views:
        pieces += [view, bytes(_aligned(len(view)) - len(view))]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    size = _PREFIX.size + len(head) + end
    return [_PREFIX.pack(_MAGIC, len(head), size, checksum), *pieces]


def _write(folder: Path, key: str, pieces: Sequence[bytes | memoryview]) -> None:
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{key[:16]}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
        os.replace(name, folder / key)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _map(path: Path) -> Array | None:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        facts = os.fstat(descriptor)
        is_ours = not hasattr(os, "geteuid") or facts.st_uid == os.geteuid()
        if not (stat.S_ISREG(facts.st_mode) and is_ours and facts.st_size > _PREFIX.size):
            return None
        return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(descriptor)


def _decode(data: Array, key: str) -> Entry | None:
    magic, head, size, checksum = _PREFIX.unpack(data[: _PREFIX.size].tobytes())
    start = _PREFIX.size + head
    if magic != _MAGIC or size != len(data) or start > size:
        return None
    if zlib.crc32(data[_PREFIX.size :].data) != checksum:
        return None
    record = json.loads(data[_PREFIX.size : start].tobytes())
    if record["key"] != key:
        return None
    blobs = tuple(data[start + place : start + place + length] for place, length in record["blobs"])
    return Entry(record["header"], blobs)
