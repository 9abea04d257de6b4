"""The pieces that a Split makes."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.model.values import constant_array, optional_input


def piece_lengths(split: ir.Node, extent: object) -> list[int] | None:
    """The sizes of the pieces of a Split; None where they are not known.

    extent: the size of the axis, where it is a number.
    """
    given = constant_array(optional_input(split, 1))
    if given is not None:
        return [int(length) for length in given.reshape(-1)]
    if "split" in split.attributes:
        return list(split.attributes.get_ints("split", ()))
    if len(split.inputs) > 1 or not isinstance(extent, int):
        return None
    return even_pieces(extent, len(split.outputs))


def even_pieces(extent: int, count: int) -> list[int]:
    """Sizes of equal pieces, of which the last may be smaller."""
    piece = -(-extent // count)
    return [max(min(piece, extent - i * piece), 0) for i in range(count)]
