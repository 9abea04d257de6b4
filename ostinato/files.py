"""Opening files that somebody else may have put there."""

from __future__ import annotations

import os
import stat
from io import BufferedReader


def open_file(path: str | os.PathLike[str], follow: bool = True) -> BufferedReader:
    """Open a file for reading, and nothing that is none.

    A pipe, a device or a socket could keep the reader waiting, or feed it, for ever: they are
    refused without waiting. So are links, unless `follow`. Raises `OSError` and, for a path that
    cannot be one, `ValueError`.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    # Opening a device can have effects, so its kind is asked for before, and again afterwards.
    _require_file(os.stat(path, follow_symlinks=follow))
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        _require_file(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _require_file(facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(f"it is {_KINDS.get(stat.S_IFMT(facts.st_mode), 'no file')}, not a file")


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
