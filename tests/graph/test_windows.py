"""Windows by the rule against every place that can be counted."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from ostinato.graph.windows import Moves, placed, read_moves, spread
from ostinato.model.attributes import Attributes
from ostinato.sizes.dims import symbol


def _moves(automatic: str = "NOTSET", stride: int = 2, pads: tuple[int, int] = (1, 0)) -> Moves:
    return Moves((stride,), (2,), automatic, pads)


@pytest.mark.parametrize("extent", range(5, 12))
@pytest.mark.parametrize("ceil", [False, True])
def test_places_are_those_below_which_the_window_fits(extent: int, ceil: bool) -> None:
    window = placed(_moves(), 0, 3, extent, ceil)
    starts = range(-1, extent if ceil else extent - 4, 2)
    fits = [start for start in starts if start + 4 < extent + ceil]
    assert window.outputs == len(fits)
    assert window.span == 5 and window.beyond == max(fits[-1] + 5 - extent, 0)


@pytest.mark.parametrize("extent", [7, 8])
def test_automatic_padding_puts_the_odd_element_where_it_is_said(extent: int) -> None:
    for automatic, (first, second) in {"SAME_UPPER": (0, 1), "SAME_LOWER": (1, 0)}.items():
        window = placed(_moves(automatic), 0, 3, extent)
        total = (4 - 1) * 2 + 5 - extent
        assert window.outputs == 4
        assert (window.before, window.after) == (
            total // 2 + first * (total % 2),
            total // 2 + second * (total % 2),
        )


def test_sizes_of_a_run_are_polynomials() -> None:
    length = symbol("T")
    window = placed(_moves(stride=1), 0, 3, length)
    assert window.outputs == length - 3
    assert placed(_moves("SAME_UPPER", 1), 0, 3, length).before == 2


def test_a_transposed_window_undoes_one() -> None:
    for extent in range(5, 12):
        window = placed(_moves(), 0, 3, extent)
        assert isinstance(window.outputs, int)
        rest = (extent + 1 - window.span) % 2
        assert spread(_moves(), 0, 3, window.outputs, rest, None).outputs == extent


def test_an_asked_size_decides_the_padding() -> None:
    window = spread(_moves("SAME_UPPER"), 0, 3, 4, 0, 9)
    assert (window.before, window.after, window.outputs) == (1, 1, 9)


def test_attributes_have_defaults() -> None:
    node = ir.Node("", "Conv", [], [ir.AttrInt64s("strides", [3, 4])])
    moves = read_moves(Attributes(node), 2)
    assert moves == Moves((3, 4), (1, 1), "NOTSET", (0, 0, 0, 0)) and moves.padding(1) == (0, 0)
