import pytest

from ostinato.program.expr import Axis, reached
from ostinato.sizes.dims import Size, symbol

N = symbol("n")


@pytest.mark.parametrize(
    ("offset", "factors", "ends"),
    [
        (3, (), (3, 3)),
        (0, ((4, 2),), (0, 6)),
        (5, ((3, -2), (N + 1, 1)), (1, N + 5)),
        # A run tells which one is the least.
        (0, ((2, N - 3),), None),
    ],
)
def test_the_ends_of_a_sum_of_axes(
    offset: Size, factors: tuple[tuple[Size, Size], ...], ends: tuple[Size, Size] | None
) -> None:
    terms = [(Axis(f"a{i}", extent), factor) for i, (extent, factor) in enumerate(factors)]
    assert reached(offset, terms) == ends
