from __future__ import annotations

import itertools

import pytest

from ostinato.graph.dilation import Span, count_of_phases, parts, phases, share_on_data, spans
from ostinato.graph.windows import Moves, Window, placed
from ostinato.sizes.dims import Size, symbol


def window(
    extent: Size, kernel: int = 3, dilation: int = 1, pads: int = 0, stride: int = 1
) -> Window[Size]:
    return placed(Moves([stride], [dilation], "NOTSET", [pads, pads]), 0, kernel, extent)


def test_places_by_their_taps_on_data():
    assert spans(window(14, 3, 12, 12), 14) == [
        Span(0, 2, 1, 2),
        Span(2, 10, 1, 1),
        Span(12, 2, 0, 2),
    ]
    assert spans(window(14, 3, 24, 24), 14) == [Span(0, 14, 1, 1)]
    assert spans(window(4, 2, 2, 6), 4) == [
        Span(0, 4, 0, 0),
        Span(4, 2, 1, 1),
        Span(6, 2, 0, 2),
        Span(8, 2, 0, 1),
        Span(10, 4, 0, 0),
    ]
    assert spans(window(symbol("N"), 3, 2, 2), symbol("N")) is None


@pytest.mark.parametrize(
    ("extent", "kernel", "dilation", "pads", "stride"),
    [
        given
        for given in itertools.product((3, 8), (2, 3), (1, 2, 5), (0, 2, 5), (1, 2))
        if given[0] + 2 * given[3] >= (given[1] - 1) * given[2] + 1
    ],
)
def test_spans_and_parts_are_all_places_and_their_taps(extent, kernel, dilation, pads, stride):
    moved = window(extent, kernel, dilation, pads, stride)
    found = spans(moved, extent)
    assert found is not None and sum(span.count for span in found) == moved.outputs
    met = [
        [k for k in range(kernel) if 0 <= i * stride - pads + k * dilation < extent]
        for i in range(int(moved.outputs))
    ]
    assert list(map(len, met)) == [span.taps for span in found for _ in range(span.count)]
    divided = parts([moved, moved], [extent, extent])
    assert divided is not None
    for along in divided:
        assert sum(span.count for span in along) == moved.outputs
        of_places = [span for span in along for _ in range(span.count)]
        for taps, span in zip(met, of_places, strict=True):
            assert {*taps} <= {*range(span.tap, span.tap + span.taps)}


def test_parts_are_worth_weights_of_their_own():
    few = window(51, 29, 2, 28)
    assert len(spans(few, 51) or []) == 29
    [along] = parts([few], [51]) or []
    assert 1 < len(along) < 8
    many = window(33, 3, 12, 12)
    assert parts([many, many], [33, 33]) == [spans(many, 33)] * 2
    assert parts([window(400, 200, 2, 199)], [400]) is None


def test_the_share_counts_what_small_parts_take():
    # 2 / 3 of the taps lie on data for 12 of 33 places on either side, all for those between.
    share = (12 * 2 / 3 + 9 + 12 * 2 / 3) / 33
    moved = window(33, 3, 12, 12)
    assert share_on_data([moved, moved], [33, 33]) == pytest.approx(share * share)
    # Two places take as long as eight.
    assert share_on_data([window(9, 3, 4, 4)], [9]) > 0.9
    assert share_on_data([window(symbol("N"), 3, 4, 4)], [symbol("N")]) == 1.0


def test_windows_over_phases_have_no_dilation():
    (inner,) = phases([window(14, 3, 4, 4)])
    assert (inner.dilation, inner.before, inner.after, inner.outputs) == (1, 0, 0, 4)
    assert count_of_phases([window(14, 3, 4), window(14, 3, 2)]) == 8
