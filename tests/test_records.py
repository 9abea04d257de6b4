"""Records behave as the dataclasses that type checkers take them for."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

import pytest

from ostinato.records import cached_property, dataclass


@dataclass(frozen=True)
class Pair:
    first: int
    second: str = "b"
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Triple(Pair):
    third: int = 3


@dataclass(frozen=True, eq=False)
class Apart:
    value: int


@dataclass
class Open:
    values: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Derived:
    value: int
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.__dict__["text"] = f"{self.value}"


@dataclass(frozen=True)
class Own:
    value: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"


@dataclass(frozen=True)
class Equal:
    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and abs(self.value - other.value) < 2


def test_equality_is_that_of_compared_fields_in_one_class() -> None:
    assert Pair(1) == Pair(1, "b", note="x")
    assert Pair(1) != Pair(2)
    assert Pair(1) != (1, "b")
    assert Pair(1) != Triple(1)
    assert Triple(1) != Triple(1, third=4)
    assert Apart(1) != Apart(1)
    assert Open([1]) == Open([1])


def test_hashes_agree_with_equality() -> None:
    assert {Pair(1): "x"}[Pair(1, note="y")] == "x"
    assert len({Triple(1), Triple(1), Triple(1, third=4)}) == 2
    assert len({Apart(1), Apart(1)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Open())


def test_what_a_class_defines_stays() -> None:
    own: Any = Own(1)
    assert own == 5 and hash(own) == 7 and repr(own) == "own"
    assert Equal(1) == Equal(2) and hash(Equal(1)) == hash((1,))


def test_they_print_by_name() -> None:
    assert repr(Pair(1)) == f"{Pair.__qualname__}(first=1, second='b')"
    assert repr(Triple(1)) == f"{Triple.__qualname__}(first=1, second='b', third=3)"


def test_dataclasses_knows_them() -> None:
    assert dataclasses.replace(Triple(1), second="c") == Triple(1, "c")
    assert dataclasses.asdict(Pair(1)) == {"first": 1, "second": "b", "note": ""}
    match Triple(1):
        case Triple(first, second):
            assert (first, second) == (1, "b")


def test_defaults_are_made_anew() -> None:
    one, other = Open(), Open()
    one.values.append(1)
    assert other.values == []


def test_constructors_take_what_dataclasses_take() -> None:
    assert Triple(1, third=4) == Triple(1, "b", "", 4)
    assert Open([1]).values == [1]
    assert Open().values is not Open().values
    assert Derived(3).text == "3"
    with pytest.raises(TypeError, match="value"):
        Derived()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="text"):
        Derived(3, text="")  # type: ignore[call-arg]


def test_a_property_is_computed_once_and_is_no_field() -> None:
    computed = []

    @dataclass(frozen=True)
    class Squared:
        value: int

        @cached_property
        def square(self) -> int:
            """Its square."""
            computed.append(self.value)
            return self.value**2

    one = Squared(3)
    assert (one.square, one.square, computed) == (9, 9, [3])
    assert dataclasses.replace(one, value=4).square == 16
    assert one == Squared(3)
    assert Squared.square.__doc__ == "Its square."
