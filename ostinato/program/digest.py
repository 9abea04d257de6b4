"""What two programs have in common that are scheduled alike: a digest of all but their weights.

Scheduling and code generation know of a constant what its buffer says. They look at the contents of
those of one byte an element alone, which may fit into fewer bits (`schedule/fields.py`), and of
what is read beside these, their scales (`schedule/float_fields.py`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

from ostinato.program.laid import elements
from ostinato.program.nodes import Program


def digest(program: Program) -> bytes:
    """32 bytes that differ for programs of which different code could be made."""
    described = {
        field: getattr(program, field) for field in program.__match_args__ if field != "constants"
    }
    state, seen = hashlib.sha256(), _seen(program)
    for name, constant in program.constants.items():
        state.update(f"{name} {constant.dtype.name} {constant.size}\n".encode())
        if name in seen:
            state.update(hashlib.sha256(elements(constant).tobytes()).digest())
    _describe(described, state)
    return state.digest()


def _seen(program: Program) -> set[str]:
    """The constants of which scheduling looks at the contents."""
    narrow = {name for name, c in program.constants.items() if c.dtype.itemsize == 1}
    beside = (k.reads() for k in program.kernels() if not narrow.isdisjoint(k.reads()))
    return narrow.union(*beside)


def _describe(root: Any, state: hashlib._Hash) -> None:
    """Feed what a tree of frozen dataclasses, tuples and tables is made of.

    Equal parts are numbered once, operands first, so that what is shared is described once. Nothing
    recurses: expressions may be thousands of nodes deep.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    # By identity; the objects are held as well, so that no other takes the identity of one.
    known: dict[int, tuple[Any, int]] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if id(node) in known:
            stack.pop()
            continue
        kind, inner = type(node), []
        key: list[Any] = [kind.__name__]
        for part in node if kind is tuple else _parts(node):
            text = _leaf(part)
            if text is None:
                found = known.get(id(part))
                if found is None:
                    inner.append(part)
                else:
                    key.append(found[1])
            else:
                key.append(text)
        if inner:
            stack += inner
            continue
        stack.pop()
        described = tuple(key)
        number = numbers.get(described)
        if number is None:
            number = numbers[described] = len(numbers)
            state.update(repr(described).encode())
        known[id(node)] = node, number


def _parts(node: Any) -> list[Any]:
    if isinstance(node, Mapping):
        return [part for item in node.items() for part in item]
    return [getattr(node, name) for name in node.__match_args__]


def _leaf(part: Any) -> str | None:
    """Text that tells values and types apart, floats by their bits; None for what has parts."""
    kind = type(part)
    if kind is str:
        return f"'{part}"
    if kind is int:
        return str(part)
    if part is None or isinstance(part, int):
        return repr(part)
    if isinstance(part, str):
        return f"'{part}"
    return struct.pack("d", part).hex() if isinstance(part, float) else None
