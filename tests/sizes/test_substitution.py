from __future__ import annotations

import pytest

from ostinato.sizes.dims import (
    SPARE,
    Atom,
    Dim,
    Size,
    floordiv,
    maximum,
    minimum,
    symbol,
    terms_of,
    wrap,
)
from ostinato.sizes.substitution import (
    largest,
    one_of,
    powers,
    renamed,
    replaced,
    upper,
    with_equal,
)

N, M = symbol("n"), symbol("m", computed=True)
SIGNED = symbol("s", signed=True)


@pytest.mark.parametrize(
    ("size", "most"),
    [
        (7, 7),
        (N, None),
        (minimum(N, 3), 3),
        (minimum(N, 3) + 2 * minimum(M, 4), 11),
        (5 - N, 5),
        (5 - SIGNED, None),
        (maximum(minimum(N, 3), minimum(M + 1, 4)), 4),
        (maximum(N, 3), None),
        (floordiv(minimum(N, 9), 2), 4),
        (floordiv(minimum(N, 9), maximum(M, 3)), 3),
        (floordiv(minimum(N, 9), M), 9),
        (floordiv(minimum(N, 9), SIGNED), None),
        (wrap(SIGNED, 256) + 1, 128),
    ],
)
def test_largest_holds_whatever_the_symbols_are(size: Size, most: int | None):
    assert largest(size) == most


def test_an_upper_bound_does_not_depend_on_the_memory_to_spare_where_it_need_not():
    spare = symbol(SPARE)
    assert upper(minimum(M, 3), {"m": spare}) == 3
    assert upper(maximum(M, 3), {"m": spare}) == maximum(spare, 3)


def test_products_of_symbols_are_counted_once() -> None:
    several = maximum(N, floordiv(N * M, 2) + 1)
    found = ["".join(sorted(product.elements())) for product in powers(several * several + N)]
    assert sorted(found) == ["", "mmnn", "mn", "mnn", "n", "nn"]
    # Choices of choices would be as many products as there are ways through them.
    for i in range(40):
        several = maximum(several, minimum(several + i, N))
    assert len(powers(several)) == 3


def test_a_choice_is_taken_apart_with_what_is_added_to_it():
    function, (left, right) = one_of(maximum(M - N, 0) + 2, frozenset(["m"])) or ("", (0, 0))
    assert (function, left, right) == ("max", M - N + 2, 2)
    assert one_of(2 * maximum(M - N, 0), frozenset(["m"])) is None
    assert one_of(maximum(N - 1, 0), frozenset(["m"])) is None


def test_symbols_and_functions_get_other_names() -> None:
    size = 3 * M * floordiv(N + 1, 3) - floordiv(N + 1, 3) + 2
    found: dict[Atom, Dim] = {}
    changed = renamed(size, lambda atom: found.setdefault(atom, symbol(f"p{len(found)}")))
    assert len(found) == 2
    assert str(changed) in ("3*p0*p1 - p0 + 2", "3*p0*p1 - p1 + 2")
    assert renamed(5, lambda atom: 1 // 0) == 5


def test_symbols_are_replaced_in_what_functions_are_of() -> None:
    (half,), (n,) = terms_of(floordiv(N, 2))[0][0], terms_of(N)[0][0]
    size = M * floordiv(N, 2) + floordiv(N + 2, 4) + N
    assert replaced(size, {}) == size
    assert replaced(size, {half: 5}) == 5 * M + floordiv(N + 2, 4) + N
    # By something of itself: only once.
    even = 8 * floordiv(N, 8)
    assert replaced(size, {n: even}) == 4 * M * floordiv(N, 8) + 10 * floordiv(N, 8)
    assert replaced(even, {n: even}) == even


def test_a_function_is_replaced_where_it_is_a_factor() -> None:
    longer = maximum(N, SIGNED)
    size = 3 * longer * N + longer - minimum(longer, 8) + 2
    assert with_equal(size, {longer: N}) == 3 * N * N + N - minimum(longer, 8) + 2
    assert with_equal(7, {longer: N}) == 7
