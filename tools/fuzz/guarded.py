"""Loads and runs a model where nothing it does can hurt anybody else.

Every buffer that compiled code touches lies beside a page that cannot be read or written: inputs,
outputs, constants and arenas, each flush with the page behind or before it. Constants and inputs
cannot be written at all. Time and memory are limited.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import random
import re
import resource
import signal
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

import ostinato
from ostinato import limits
from ostinato.element_types import dtype_name, numpy_dtype
from ostinato.errors import RunError
from ostinato.native import function as native

Array = np.ndarray[Any, Any]

# Seconds of CPU that a load and its runs may take.
SECONDS = 10.0
# Bytes that a load and its runs may take.
MEMORY = 2 << 30
# Steps of one kernel that may be run: so few that they end in time.
STEPS = 1 << 28
# Inputs of more elements are not made.
_MOST_ELEMENTS = 1 << 20
_PAGE = mmap.PAGESIZE
_ALIGNMENT = 64
_RUNS = 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_NOTHING, _READ, _WRITE = 0, mmap.PROT_READ, mmap.PROT_WRITE


class _Pages:
    """Pages between two that cannot be touched; they are freed with the last array over them."""

    def __init__(self, size: int) -> None:
        self.size = max(-(-size // _PAGE), 1) * _PAGE
        self._whole = self.size + 2 * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._start = _libc.mmap(None, self._whole, _NOTHING, flags, -1, 0)
        if self._start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"{size} bytes")
        self.start = self._start + _PAGE
        self.protect(_READ | _WRITE)

    def protect(self, protection: int) -> None:
        _libc.mprotect(self.start, self.size, protection)

    def __del__(self) -> None:
        if getattr(self, "_start", None) not in (None, ctypes.c_void_p(-1).value):
            _libc.munmap(self._start, self._whole)


class Guards:
    """Makes arrays that begin or end at a page that cannot be touched, as `chance` has it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def empty(self, size: int, alignment: int = _ALIGNMENT) -> tuple[Array, _Pages]:
        """A uint8 array of `size` bytes, and its pages."""
        pages = _Pages(size)
        at_end = (pages.size - size) // alignment * alignment
        start = pages.start + (at_end if self._chance.random() < 0.7 else 0)
        memory = (ctypes.c_uint8 * size).from_address(start)
        memory.pages = pages
        return np.frombuffer(memory, np.uint8), pages

    def arena(self, size: int) -> Array:
        """In place of `ostinato.native.memory.aligned_empty`, with the error of that."""
        try:
            return self.empty(size)[0]
        except MemoryError as error:
            raise RunError(f"intermediate values: no memory for {size} bytes") from error

    def constants(self, data: bytes | Array) -> Array:
        """In place of `ostinato.native.memory.aligned`: a copy that cannot be written."""
        source = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1)
        return self._filled(source.view(np.uint8), _ALIGNMENT)

    def copy(self, array: Array) -> Array:
        """A copy of an input that cannot be written."""
        array = np.asarray(array, order="C")
        if array.dtype == object:
            return array
        made = self._filled(array.reshape(-1).view(np.uint8), array.itemsize)
        return made.view(array.dtype).reshape(array.shape)

    def like(self, array: Array) -> Array:
        """Room for an output."""
        made, _ = self.empty(array.nbytes, array.itemsize)
        return made.view(array.dtype).reshape(array.shape)

    def _filled(self, source: Array, alignment: int) -> Array:
        made, pages = self.empty(source.size, alignment)
        made[:] = source
        pages.protect(_READ)
        return made


@contextmanager
def guarded(guards: Guards) -> Iterator[None]:
    """Let sessions made and run inside take their memory from `guards`."""
    with (
        mock.patch.object(native, "aligned_empty", guards.arena),
        mock.patch.object(native, "aligned", guards.constants),
        mock.patch.object(limits, "MOST_STEPS", STEPS),
    ):
        yield


FAILURES = ("nameless", "bare", "crash", "hang")


@dataclass(frozen=True)
class Outcome:
    """What became of a file.

    kind: "ran", "loaded" (it cannot be fed), "refused", "nameless" (refused without naming
        anything), "bare" (an exception that is not ours), "crash" or "hang".
    what: the class of the exception. where: tells failures of one kind apart.
    """

    kind: str
    what: str = ""
    where: str = ""
    message: str = ""

    @property
    def is_failure(self) -> bool:
        return self.kind in FAILURES

    @property
    def signature(self) -> tuple[str, str, str]:
        """What two files share that fail for the same reason."""
        return self.kind, self.what, self.where


def limit(trace: Any) -> None:
    """Limit memory and time of this process; `trace` takes the stack where it is ended."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(trace)
    faulthandler.register(signal.SIGPROF, trace, all_threads=False, chain=True)
    warnings.simplefilter("ignore")


def attempt(path: Path, chance: random.Random) -> Outcome:
    """Load the file and run it a few times; ends the process where it takes too long."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    guards = Guards(chance)
    try:
        with guarded(guards):
            return _attempt(path, chance, guards)
    except ostinato.OstinatoError as error:
        name, message = type(error).__name__, str(error)
        if _names_something(message, path):
            return Outcome("refused", name, "", message)
        return Outcome("nameless", name, _template(message, path), message)
    except Exception as error:
        stack = "".join(traceback.format_exception(error)[-8:])
        return Outcome("bare", type(error).__name__, _place(error), stack)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _attempt(path: Path, chance: random.Random, guards: Guards) -> Outcome:
    session = ostinato.InferenceSession(path, cache_dir=None)
    names = {n for one in session.get_inputs() for n in one.shape or () if isinstance(n, str)}
    for _ in range(_RUNS):
        sizes = {name: chance.choice((1, 1, 2, 3, 5, 0)) for name in sorted(names)}
        feeds = {one.name: _feed(one, sizes, chance, guards) for one in session.get_inputs()}
        if any(value is None for value in feeds.values()):
            return Outcome("loaded")
        results = session.run(None, feeds)
        if all(isinstance(y, np.ndarray) and y.dtype != object for y in results):
            pairs = zip(session.get_outputs(), results, strict=True)
            session.run(None, feeds, out={one.name: guards.like(y) for one, y in pairs})
    return Outcome("ran")


def _feed(one: Any, sizes: dict[str, int], chance: random.Random, guards: Guards) -> Any:
    """An array for an input; None where there is none that is small and simple."""
    shape = one.shape
    if shape is None and one.type.startswith("tensor("):
        shape = [chance.choice((1, 2, 3)) for _ in range(chance.randint(0, 3))]
    if shape is None:
        element = re.search(r"tensor\((\w+)\)", one.type)
        is_list = one.type.startswith("seq(tensor") and element is not None
        if element is None or not is_list or element.group(1) == "undefined":
            return None
        tensor = type(one)(one.name, element.group(0), None)
        made = [_feed(tensor, sizes, chance, guards) for _ in range(chance.randint(0, 3))]
        return None if any(part is None for part in made) else made
    fixed = [sizes[n] if isinstance(n, str) else n for n in shape]
    if min(fixed, default=1) < 0 or np.prod([float(max(n, 1)) for n in fixed]) > _MOST_ELEMENTS:
        return None
    dtype = numpy_dtype(dtype_name(one.type[len("tensor(") : -1]))
    return guards.copy(_elements(dtype, fixed, chance))


def _elements(dtype: np.dtype[Any], shape: Sequence[int], chance: random.Random) -> Array:
    numbers = np.random.default_rng(chance.getrandbits(32))
    if dtype.kind == "O":
        return np.full(shape, "word", object)
    if dtype.kind == "b":
        return numbers.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        low, high = chance.choice(
            ((0, 2), (0, 4), (1, 9), (-4, 4), (-(2**40), 2**40), (-(2**63), 2**63 - 1))
        )
        with np.errstate(all="ignore"):
            return np.asarray(numbers.integers(low, high, shape)).astype(dtype)
    with np.errstate(all="ignore"):
        values = np.asarray(numbers.standard_normal(shape) * chance.choice((1, 1, 1, 1e30)))
        if chance.random() < 0.1 and values.size:
            values.flat[chance.randrange(values.size)] = chance.choice((np.nan, np.inf, -np.inf))
        return values.astype(dtype)


# How messages mention what they are about, and words of protobuf and of the checks of the onnx
# package, which tell a reader nothing.
_MENTION = re.compile(
    r"\b(node|value|input|output|tensor|initializer|function|graph|attribute|operator|pass) "
    r"b?['\"]"
    r"|\bopset |\bintermediate values\b|\b(IR version|domain) "
    r"|has no graph|\b(input|output) \d+ has no name"
)
_RAW = re.compile(
    r"Field '|is required but missing|bad_alloc|ShapeInferenceError|TypeProto|\.proto"
)


def _names_something(message: str, path: Path) -> bool:
    """Whether the message says more than that the file is bad: which node, value or part of it.

    A file that is no message at all has no parts that could be named.
    """
    try:
        model = onnx.ModelProto.FromString(path.read_bytes())
    except Exception:
        return str(path) in message
    if not model.ListFields():
        return str(path) in message
    rest = message.replace(str(path), "")
    return bool(_MENTION.search(rest)) and not _RAW.search(rest)


def _template(message: str, path: Path) -> str:
    """The message without what differs from model to model."""
    rest = message.replace(str(path), "FILE")
    return re.sub(r"'[^']*'|\"[^\"]*\"|\([^)]*\)|\d+|:[^:]*inserted\w+", "_", rest)[:120]


def _place(error: BaseException) -> str:
    """The function of this package in which an exception arose."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/ostinato/" in frame.filename]
    frame = (ours or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.name}"


def place_of_trace(text: str) -> str:
    """As `_place`, from what faulthandler writes."""
    for file, name in re.findall(r'File "([^"]*/ostinato/[^"]*)", line \d+ in (\S+)', text):
        return f"{os.path.basename(file)}:{name}"
    return ""


def discard(path: Path) -> None:
    """Remove a file that may not be there."""
    with suppress(OSError):
        path.unlink()
