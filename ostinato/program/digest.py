"""A digest of all of a program but its weights: equal for programs that are scheduled alike.

Scheduling and code generation know of a constant what its buffer says. They read the contents only
of constants of one byte an element, which may fit into fewer bits (`schedule/fields.py`), of what
is read beside these, their scales (`schedule/float_fields.py`), and of words of four bytes, which
may become words of two halves (`schedule/widen_bytes.py`). All else that they do to contents is to
move them (`program/laid.py`). `watched` tells where they read more; no code is stored for other
weights then.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from ostinato.program.laid import Contents, Laid, Watched, elements
from ostinato.program.nodes import Program
from ostinato.program.transformed import Transformed


def digest(program: Program) -> bytes:
    """Return 32 bytes that differ for programs whose code could differ."""
    described = {
        field: getattr(program, field) for field in program.__match_args__ if field != "constants"
    }
    state, seen = hashlib.sha256(), counted(program)
    for name, constant in program.constants.items():
        state.update(f"{name} {constant.dtype.name} {constant.size}\n".encode())
        if name in seen:
            state.update(hashlib.sha256(elements(constant).tobytes()).digest())
    _describe(described, state)
    return state.digest()


def watched(program: Program) -> tuple[Program, set[str]]:
    """Return the program, and the names of those constants whose contents are read from now on."""
    read: set[str] = set()
    constants: dict[str, Contents] = {}
    for name, constant in program.constants.items():
        assert isinstance(constant, np.ndarray | Transformed | Laid)
        constants[name] = Watched(name, constant, read)
    return replace(program, constants=constants), read


def counted(program: Program) -> set[str]:
    """Name the constants whose contents are part of the digest."""
    narrow = {name for name, c in program.constants.items() if c.dtype.itemsize == 1}
    beside = (k.reads() for k in program.kernels() if not narrow.isdisjoint(k.reads()))
    words = {name for name, c in program.constants.items() if c.dtype == np.int32}
    return narrow.union(words, *beside)


def _describe(root: Any, state: hashlib._Hash) -> None:
    """Feed the digest with a tree of frozen dataclasses, tuples and tables.

    Equal parts are numbered once, operands first, so that what is shared is described once. Nothing
    recurses: expressions may be thousands of nodes deep.
    """
    numbers: dict[str, int] = {}
    # By identity. The root holds all parts, so that no other takes the identity of one.
    known: dict[int, int] = {}
    # Nodes that are being described: each with its remaining parts and the text of those already
    # seen.
    opened = [(root, iter(_parts(root)), [type(root).__name__])]
    while opened:
        node, parts, texts = opened[-1]
        for part in parts:
            if type(part) in _PLAIN:
                texts.append(repr(part))
            elif isinstance(part, float):
                texts.append(f"float {struct.pack('d', part).hex()}")
            elif isinstance(part, (str, int)):
                texts.append(f"{type(part).__name__} {part!r}")
            elif id(part) in known:
                texts.append(f"#{known[id(part)]}")
            else:
                opened.append((part, iter(_parts(part)), [type(part).__name__]))
                break
        else:
            opened.pop()
            text = ", ".join(texts)
            number = numbers.get(text)
            if number is None:
                number = numbers[text] = len(numbers)
                state.update(f"{text}\n".encode())
            known[id(node)] = number
            if opened:
                opened[-1][2].append(f"#{number}")


# Types whose values `repr` tells from those of any other type.
_PLAIN = frozenset({str, int, bool, type(None)})


def _parts(node: Any) -> Iterable[Any]:
    if type(node) is tuple:
        return node
    if isinstance(node, Mapping):
        return [part for item in node.items() for part in item]
    kind: Any = type(node)
    return _fields_of(kind)(node)


@cache
def _fields_of(kind: Any) -> Callable[[Any], Iterable[Any]]:
    """Return a function that gives the fields of a dataclass."""
    names: tuple[str, ...] = kind.__match_args__
    if len(names) > 1:
        return attrgetter(*names)
    return lambda node: [getattr(node, name) for name in names]
