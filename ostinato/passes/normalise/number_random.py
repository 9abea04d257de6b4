"""Random nodes are numbered, so that each draws numbers of its own."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.random import NUMBER, is_random
from ostinato.model.graphs import nodes_of


def number_random(model: ir.Model) -> int:
    """Write a number into the metadata of each random node that has none; returns how many.

    Matches random operators in any graph. The numbers 1, 2, .. follow the order of the nodes, those
    of an enclosing graph first; numbers that are there and occur once are kept. Valid because the
    metadata of a node has no meaning in ONNX.
    """
    nodes = [node for node in nodes_of(model) if is_random(node)]
    taken: dict[str, ir.Node] = {}
    for node in nodes:
        if (number := node.metadata_props.get(NUMBER)) is not None and number.isdecimal():
            taken.setdefault(number, node)
    last, written = 0, 0
    for node in nodes:
        if taken.get(node.metadata_props.get(NUMBER, "")) is node:
            continue
        while str(last := last + 1) in taken:
            pass
        node.metadata_props[NUMBER] = str(last)
        written += 1
    return written
