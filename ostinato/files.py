"""Opening files that somebody else may have put there."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import weakref
from io import BufferedReader

from ostinato.errors import MissingModelError, ModelError
from ostinato.spelling import mistyped

# Models of more bytes are mapped while they are compiled, not read: what has been taken of them
# needs no memory then, but a file that is cut short in place meanwhile ends the process. A load of
# any model takes 160 MB: what is a tenth of that is not worth the risk.
READ_UP_TO = 16 << 20


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


class MappedFile(mmap.mmap):
    """A file in memory, to be read; `drop_pages` gives the memory back in between."""

    def __new__(cls, file: BufferedReader) -> MappedFile:
        made = super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        _MAPPED.add(made)
        return made


_MAPPED: weakref.WeakSet[MappedFile] = weakref.WeakSet()


def drop_pages() -> None:
    """Take no memory for what has been read of mapped files; whoever reads it again gets it."""
    for mapped in tuple(_MAPPED):
        if hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def contents(file: BufferedReader) -> memoryview:
    """All that is in a file, mapped where it is large and the file system has mapped files."""
    if os.fstat(file.fileno()).st_size > READ_UP_TO:
        with contextlib.suppress(OSError):
            return memoryview(MappedFile(file))
    return memoryview(file.read())


def beside(folder: str | os.PathLike[str], name: str) -> str | None:
    """The path of a file in a folder; None for what is not in it, or there by a link alone.

    Raises `OSError` where there is no such file, `ValueError` for what cannot be a path.
    """
    root = os.path.join(os.path.realpath(folder), "")
    place = os.path.join(root, name)
    if not place.startswith(root) or os.path.realpath(place) != place:
        return None
    return place if os.stat(place).st_nlink == 1 else None


def open_model(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a model's file.

    Raises `MissingModelError` where there is none, `ModelError` for what cannot be read or is
    empty.
    """
    try:
        file = open_file(path)
    except FileNotFoundError as error:
        raise MissingModelError(f"{os.fspath(path)}: {_missing(os.fspath(path))}") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot be read: {error}") from error
    return file


def _missing(path: str) -> str:
    """Say that there is no such file, and which one may be meant."""
    if re.match("[a-z]{3,}:/", path):
        return "no such file, and addresses are not fetched: download the model, give its path"
    folder, name = os.path.split(path)
    try:
        meant = mistyped(name, os.listdir(folder or "."))
    except OSError:
        meant = ""
    return f"no such file; {meant}" if meant else "no such file"


def no_onnx_file(beginning: bytes) -> ModelError:
    """The error for a file that begins like this and is no ONNX file."""
    kind = "a text file" if _is_text(beginning) else "truncated, or another format"
    return ModelError(f"not an ONNX file ({_other_kind(beginning) or kind})")


# Other kinds of files that are taken for models: the place of a mark, the mark in lower case, the
# kind.
_OTHERS = (
    (0, b"version https://git-lfs", "a pointer of Git LFS: `git lfs pull` fetches the file"),
    (0, b"<!doctype html", "a web page"),
    (0, b"<html", "a web page"),
    (0, b"pk\x03\x04", "a ZIP archive, such as torch.save writes: torch.onnx.export writes ONNX"),
    (0, b"\x1f\x8b", "compressed by gzip"),
    (0, b"\x89hdf", "HDF5, as Keras writes: tf2onnx converts models"),
    (4, b"ortm", "onnxruntime's own format: compile the ONNX file that it was made from"),
    (4, b"tfl3", "TensorFlow Lite: tf2onnx converts models"),
)


def _other_kind(beginning: bytes) -> str | None:
    """The kind of a file that begins like this, if it has the mark of something else."""
    found = beginning.lower()
    return next((kind for place, mark, kind in _OTHERS if found.startswith(mark, place)), None)


def _is_text(beginning: bytes) -> bool:
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        if error.start < len(beginning) - 3:
            return False
        # A character that is cut off by the end.
        text = beginning[: error.start].decode()
    return all(character.isprintable() or character.isspace() for character in text)


def require_model(path: str | os.PathLike[str]) -> None:
    """Raise `ModelError` for what cannot be a model, with nothing but the standard library.

    It looks at the outermost fields of the protobuf message alone, so that a mistaken path is an
    error at once, without the time that a compiler takes to load.
    """
    try:
        with open_model(path) as file:
            fields = _fields(file)
        if _GRAPH not in fields:
            raise ModelError("not an ONNX model: it has no graph")
    except MissingModelError:
        raise
    except ModelError as error:
        raise ModelError(f"{os.fspath(path)}: {error}") from error


# Number and wire type of the field `graph` of ModelProto (onnx.proto).
_GRAPH = (7, 2)


def _fields(file: BufferedReader) -> set[tuple[int, int]]:
    """Numbers and wire types of a message's fields, which are not looked into but for groups.

    The encoding is that of protobuf.dev/programming-guides/encoding.
    """
    size = os.fstat(file.fileno()).st_size
    if not size:
        raise ModelError("the file is empty")
    beginning = file.read(64)
    file.seek(0)
    if _other_kind(beginning):
        raise no_onnx_file(beginning)
    found = set()
    groups: list[int] = []
    while file.tell() < size:
        tag = _varint(file)
        number, wire = tag >> 3, tag & 7
        skipped = {0: 0, 1: 8, 2: -1, 3: 0, 4: 0, 5: 4}.get(wire)
        if tag < 0 or not number or skipped is None:
            raise no_onnx_file(beginning)
        if wire == 3:
            groups.append(number)
        if wire == 4 and (not groups or groups.pop() != number):
            raise no_onnx_file(beginning)
        if wire in (0, 2):
            length = _varint(file)
            skipped = length if wire == 2 else min(length, 0)
        if skipped < 0 or file.seek(skipped, os.SEEK_CUR) > size:
            raise no_onnx_file(beginning)
        if not groups:
            found.add((number, wire))
    if groups:
        raise no_onnx_file(beginning)
    return found


def _varint(file: BufferedReader) -> int:
    """The next number; -1 where there is none."""
    value = 0
    for place in range(10):
        byte = file.read(1)
        if not byte:
            return -1
        value |= (byte[0] & 0x7F) << 7 * place
        if byte[0] < 0x80:
            return value
    return -1


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
