from __future__ import annotations

from ostinato.program.expr import Axis, op
from ostinato.program.words import BYTES, first_of_word, loads_at_once, pair, word
from tests.program.programs import at

C = Axis("c", 3)


def neighbours(step: int = 1) -> list:
    return [at("x", (C, 4 * step), offset=n * step, dtype="uint8") for n in range(BYTES)]


def test_a_word_of_neighbours_is_one_load():
    weight = at("w", (C, 1), dtype="int32")
    whole = word(neighbours())
    assert first_of_word(whole) == neighbours()[0]
    assert list(loads_at_once(whole, weight)) == [neighbours()[0], weight]


def test_a_pair_of_neighbours_is_one_load():
    halves = [at("x", (C, 2), offset=n, dtype="int16") for n in range(2)]
    whole = pair(halves)
    assert first_of_word(whole) == halves[0] and list(loads_at_once(whole)) == halves[:1]
    assert first_of_word(pair(halves[::-1])) is None


def test_bytes_that_lie_apart_are_loads_of_their_own():
    whole = word(neighbours(2))
    assert first_of_word(whole) is None
    assert set(loads_at_once(whole)) == set(neighbours(2))


def test_parts_of_a_word_are_no_word():
    whole = word(neighbours())
    assert [first_of_word(part) for part in whole.args] == [None, None]
    assert first_of_word(op("add", whole, whole)) is None
