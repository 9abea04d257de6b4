"""Walk down from nodes without recursion: a graph may be as deep as a model."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def operands_first(
    roots: Iterable[T], below: Callable[[T], Iterable[T]], skip: Container[object] = ()
) -> Iterator[T]:
    """Yield the roots and every distinct node below them, each behind those below it.

    below: gives the operands of a node. skip: nodes that are not visited, nor what is only below
    them; it may grow on the way.
    """
    seen: set[T] = set()
    stack = [(node, False) for node in roots][::-1]
    while stack:
        node, expanded = stack.pop()
        if node in seen or node in skip:
            continue
        if expanded:
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack += [(operand, False) for operand in below(node)][::-1]
