from __future__ import annotations

import numpy as np
import pytest

from ostinato.graph.windows import Window
from ostinato.ops.core.tensor import Tensor
from ostinato.ops.rules.winograd_ways import fastest
from ostinato.sizes.dims import Size, floordiv, symbol

HEIGHT, WIDTH = floordiv(symbol("H") + 1, 2), symbol("W")


def window(outputs: Size, kernel: int = 3, stride: int = 1, dilation: int = 1) -> Window[Size]:
    return Window(kernel, stride, dilation, 1, 1, outputs, 0)


@pytest.mark.parametrize(
    ("shape", "windows", "group", "counts"),
    [
        ((128, 128, 3, 3), [window(28), window(28)], 1, (4, 4)),
        ((512, 512, 3, 3), [window(7), window(7)], 1, (2, 2)),
        ((128, 128, 3, 3), [window(6), window(28)], 1, (2, 4)),
        ((256, 256, 3, 3), [window(8), window(8)], 1, (2, 2)),
        ((128, 128, 3, 3), [window(14, stride=2), window(28)], 1, (1, 4)),
        ((128, 128, 2, 3), [window(28, kernel=2), window(28)], 1, (1, 4)),
        ((128, 128, 5, 3), [window(28, kernel=5), window(28)], 1, (4, 4)),
        ((128, 128, 4, 9), [window(28, kernel=4), window(28, kernel=9)], 1, (1, 4)),
        ((32, 32, 21, 11), [window(41, kernel=21, stride=2), window(100, kernel=11)], 1, (2, 4)),
        # Phases of strided axes are channels of their own.
        ((64, 64, 5, 2), [window(16, kernel=5, stride=2), window(100, kernel=2)], 1, (4, 1)),
        ((64, 64, 5, 2), [window(16, kernel=5, stride=2), window(WIDTH, kernel=2)], 1, (4, 1)),
        ((64, 64, 5, 2), [window(HEIGHT, kernel=5, stride=2), window(100, kernel=2)], 1, ()),
        (
            (64, 64, 6, 6),
            [window(32, kernel=6, stride=2), window(32, kernel=6, stride=2)],
            1,
            (4, 4),
        ),
        ((64, 64, 4, 4), [window(32, kernel=4, stride=4), window(32, kernel=4, stride=4)], 1, ()),
        ((64, 32, 8, 3), [window(32, kernel=8, stride=4), window(64)], 1, (4, 4)),
        ((128, 128, 4, 4), [window(28, kernel=4), window(28, kernel=4)], 1, (1, 4)),
        ((128, 128, 2, 2), [window(28, kernel=2), window(28, kernel=2)], 1, ()),
        # Phases of dilated axes are images of their own; few places are too few for many phases.
        ((128, 128, 3, 3), [window(28), window(28, dilation=2)], 1, (4, 4)),
        ((128, 128, 3, 3), [window(28, dilation=2), window(28, dilation=2)], 1, (4, 4)),
        ((128, 128, 3, 3), [window(28), window(28, dilation=12)], 1, (4, 1)),
        ((128, 128, 3, 3), [window(14, dilation=12), window(14, dilation=12)], 1, ()),
        ((128, 128, 3, 3), [window(28, stride=2), window(28, dilation=2)], 1, ()),
        ((128, 128, 3, 3), [window(HEIGHT, dilation=2), window(WIDTH, dilation=2)], 1, ()),
        ((128, 128, 2, 3, 3), [window(4, kernel=2), window(8), window(8)], 1, (1, 4, 4)),
        ((8, 8, 3, 3), [window(64), window(64)], 1, ()),
        ((512, 512, 3, 3), [window(2), window(4)], 1, ()),
        ((128, 128, 3, 3), [window(28, stride=2), window(28, stride=2)], 1, ()),
        ((128, 64, 3, 3), [window(28), window(28)], 2, ()),
        ((128, 128, 3), [window(1000)], 1, ()),
        ((128, 128, 3, 3), [window(HEIGHT), window(WIDTH)], 1, (4, 4)),
        ((128, 128, 3, 3), [window(HEIGHT, stride=2), window(WIDTH)], 1, (1, 4)),
        ((8, 8, 3, 3), [window(HEIGHT), window(WIDTH)], 1, ()),
        # Times of which a run tells the number may come in parts, those of a step alone.
        ((128, 128, 3, 3), [window(HEIGHT), window(28)], 1, (1, 4)),
        ((128, 128, 3, 3), [window(28), window(WIDTH)], 1, (4, 1)),
        ((128, 128, 3, 3), [window(WIDTH), window(WIDTH + 1)], 1, ()),
        ((128, 128, 3, 3), [window(HEIGHT), window(symbol("n", computed=True))], 1, ()),
    ],
)
def test_positions_are_computed_together_where_that_takes_less_time(shape, windows, group, counts):
    w = np.zeros(shape, np.float32)
    assert fastest(Tensor("float32", shape, None, known=w), windows, group) == counts


def test_weights_of_a_run_and_other_types_are_not_transformed():
    shape, windows = (128, 128, 3, 3), [window(28), window(28)]
    doubles = np.zeros(shape)
    assert fastest(Tensor("float32", shape, None), windows, 1) == ()
    assert fastest(Tensor("float64", shape, None, known=doubles), windows, 1) == ()
