"""Compiled code and packed weights on disk, one file an entry.

    prefix      magic, size of the header, size of the file, CRC-32 of all that follows
    header      JSON: the key, the caller's header, (offset, size) of every blob; padded
    blobs       at multiples of 64 bytes, so that mapped weights are aligned

An entry that is damaged, truncated, foreign (another user's or another key's) or unreadable is a
miss; storing replaces it. Files are written beside their place and moved there, so a reader sees
a whole entry or none, whatever number of processes write. An entry is read into memory, so that
nothing that becomes of its file afterwards matters; a very large one is mapped.

Entries are compiled models and single kernels (`KernelStore`): of a changed model only the kernels
that changed are compiled. Those not used for the longest time are removed when all together are too
large.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import mmap
import os
import re
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.caller import warn
from ostinato.codegen import objects
from ostinato.codegen.target import Target
from ostinato.files import open_file
from ostinato.native.memory import aligned_empty
from ostinato.records import dataclass
from ostinato.version import __version__

Array = np.ndarray[Any, Any]

# Entries of more bytes are mapped, not read: processes then share them, but one that is cut short
# in place by somebody else ends the process that uses it.
_READ_UP_TO = 256 << 20
_MAGIC = b"OSTINAT1"
_PREFIX = struct.Struct("<8sQQI")
_ALIGNMENT = 64
# An entry is marked as used at most so often, in seconds.
_MARKED_EVERY = 3600
# A file that is not finished after this many seconds never will be.
_STALE = 86400
_ENTRY = re.compile(r"[0-9a-f]{64}")
# The file that says how much entries may take.
_LIMIT = "limit"
_UNFINISHED = re.compile(r"\.[0-9a-f]{16}-\w+")
_warned: set[str] = set()
# Seconds from one attempt to put a file to its place to the next.
_DELAYS = (0.001, 0.01, 0.1)
# Bytes that may still be written to a folder before it is looked at again, by folder and limit.
_room: dict[tuple[str, int], int] = {}
# This many processes may write at once before entries exceed their limit.
_WRITERS = 32


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
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        for name in sorted(names):
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
    """Entries in `folder`, which is made on demand; a folder of None never holds anything.

    A folder to which other users can write, or that is theirs, is not used: entries are code.
    limit: bytes that the entries may take; None for no limit.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, limit: int | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._limit = limit

    def load(self, key: str) -> Entry | None:
        """The entry stored under `key`, or None when there is none that can be trusted."""
        if self._folder is None or not self._is_safe(self._folder):
            return None
        path = self._folder / key
        try:
            data = _read(path)
            entry = None if data is None else _decode(data, key)
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return None
        if entry is not None:
            _mark(path)
        return entry

    def store(self, key: str, header: Mapping[str, Any], blobs: Sequence[bytes | Array]) -> None:
        """Write an entry. A folder that cannot be written to is warned about once, not raised."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_safe(self._folder):
                return
            pieces = _encode(key, header, blobs)
            _write(self._folder, key, pieces)
        except OSError as error:
            self._warn(f"{self._folder} is not writable ({error})")
            return
        limits = [limit for limit in (self._limit, self.folder_limit()) if limit is not None]
        if limits:
            self._keep_within(min(limits), sum(map(len, pieces)), key)

    def folder_limit(self) -> int | None:
        """The bytes that entries of the folder may take, whoever writes them; None if not said."""
        if self._folder is None:
            return None
        try:
            return max(0, int((self._folder / _LIMIT).read_text()))
        except (OSError, ValueError):
            return None

    def set_limit(self, limit: int | None) -> None:
        """Say how many bytes entries of the folder may take; None takes it back.

        Raises `OSError` for a folder that cannot be written to.
        """
        if self._folder is None:
            return
        if limit is None:
            (self._folder / _LIMIT).unlink(missing_ok=True)
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._folder / _LIMIT).write_text(f"{limit}\n")

    def header(self, path: Path) -> Mapping[str, Any] | None:
        """The header of an entry, without a look at its blobs; None for what is no entry."""
        try:
            with open_file(path, follow=False) as file:
                magic, head, _, _ = _PREFIX.unpack(file.read(_PREFIX.size))
                record = json.loads(file.read(head)) if magic == _MAGIC else None
        except (OSError, ValueError, struct.error):
            return None
        return record["header"] if isinstance(record, dict) else None

    def _keep_within(self, limit: int, written: int, key: str) -> None:
        """Trim when the entries may exceed the limit, for a folder may hold thousands.

        An eighth of it becomes free then, or every entry that follows would look at all others.
        """
        place = str(self._folder), limit
        left = _room.get(place, 0) - written
        if left < 0:
            used = self._used()
            if used > limit:
                self.trim(limit - limit // 8, keep=key)
                used = self._used()
            left = max(0, limit - used) // _WRITERS
        _room[place] = left

    def _used(self) -> int:
        return sum(facts.st_size for _, facts in self._files())

    def entries(self) -> list[tuple[Path, os.stat_result]]:
        """The files of all entries, the one that was used last first."""
        found = []
        for path, facts in self._files():
            if _ENTRY.fullmatch(path.name):
                found.append((path, facts))
        return sorted(found, key=lambda pair: pair[1].st_mtime, reverse=True)

    def trim(self, limit: int, keep: str = "") -> int:
        """Remove what was used longest ago until `limit` bytes are left; returns how many files.

        Other processes may remove entries at the same time. The entry `keep` stays in any case.
        Files that a process has begun to write and has not finished in a day go as well.
        """
        removed = used = 0
        for path, facts in self._files():
            if _UNFINISHED.fullmatch(path.name) and facts.st_mtime < time.time() - _STALE:
                removed += _remove(path)
        for path, facts in self.entries():
            used += facts.st_size
            if used > limit and path.name != keep:
                removed += _remove(path)
        return removed

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """The plain files of the folder."""
        found: list[tuple[Path, os.stat_result]] = []
        if self._folder is None or not self._is_safe(self._folder):
            return found
        with contextlib.suppress(OSError), os.scandir(self._folder) as listing:
            for item in listing:
                with contextlib.suppress(OSError):
                    if item.is_file(follow_symlinks=False):
                        found.append((Path(item.path), item.stat(follow_symlinks=False)))
        return found

    def _is_safe(self, folder: Path) -> bool:
        """Whether nobody else can put anything into the folder, or nothing but files of theirs."""
        try:
            facts = os.stat(folder)
        except (OSError, ValueError):
            return True  # there is nothing in it
        if not hasattr(os, "geteuid"):
            return True
        is_shared = (
            facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not facts.st_mode & stat.S_ISVTX
        )
        if facts.st_uid in (0, os.geteuid()) and not is_shared:
            return True
        self._warn(f"other users can write to {folder}; give it mode 700, or set another cache_dir")
        return False

    def _warn(self, reason: str) -> None:
        """Warn once for each folder."""
        if str(self._folder) not in _warned:
            _warned.add(str(self._folder))
            warn(f"compiled models are not kept: {reason}", RuntimeWarning)


@dataclass(frozen=True)
class KernelStore:
    """Objects of kernels in a cache, by their LLVM text: another model may have the same ones."""

    cache: Cache

    def __call__(self, text: str, target: Target, make: Callable[[str, Target], bytes]) -> bytes:
        """The stored object, or the one that `make` gives, which is then stored."""
        key = machine_key("kernel", text, repr(target))
        entry = self.cache.load(key)
        if entry is not None:
            return entry.blobs[0].tobytes()
        made = make(text, target)
        self.cache.store(key, {}, [made])
        return made


def _remove(path: Path) -> bool:
    """Remove a file that somebody else may have removed; whether it was there."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _mark(path: Path) -> None:
    """Let the entry count as just used."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_mtime < time.time() - _MARKED_EVERY:
            os.utime(path)


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
        _put(name, folder / key)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _put(name: str, path: Path) -> None:
    """Move a file to its place.

    Windows refuses that while somebody reads or maps what is there. Readers are soon done. A mapped
    entry is a good one of the same key, and stays.
    """
    for delay in _DELAYS:
        with contextlib.suppress(PermissionError):
            os.replace(name, path)
            return
        time.sleep(delay)
    if path.is_file():
        os.unlink(name)
    else:
        os.replace(name, path)


def _read(path: Path) -> Array | None:
    """The contents of a file of ours, aligned to 64 bytes; None if it cannot be an entry."""
    with open_file(path, follow=False) as file:
        facts = os.fstat(file.fileno())
        is_ours = not hasattr(os, "geteuid") or facts.st_uid == os.geteuid()
        if not is_ours or facts.st_size <= _PREFIX.size:
            return None
        if facts.st_size > _READ_UP_TO:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        data = aligned_empty(facts.st_size)
        if file.readinto(data.data) != facts.st_size:
            return None
        data.flags.writeable = False
        return data


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
