"""Objects of LLVM are found again for what they were made of, and for nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ostinato.codegen.target import Target, find_target, host_target
from tests import kept_objects
from tests.kept_objects import SHORTEST, kept, trim

TEXT = "x" * SHORTEST


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Target]]:
    """What objects were made of, in a folder of the test."""
    monkeypatch.setenv(kept_objects.FOLDER, str(tmp_path))
    return []


def test_an_object_is_made_once_for_a_text_and_a_target(made: list[tuple[str, Target]]) -> None:
    def make(text: str, target: Target) -> bytes:
        made.append((text, target))
        return f"{text} {target}".encode()

    here, there = host_target(), find_target("cortex-a53")
    asked = [(TEXT, here), (TEXT + "y", here), (TEXT, there)]
    for _ in range(2):
        # As in another run.
        find = kept(make)
        assert [find(*one) for one in asked] == [f"{a} {b}".encode() for a, b in asked]
    assert made == asked


def test_short_texts_and_damaged_files_are_made_anew(
    made: list[tuple[str, Target]], tmp_path: Path
) -> None:
    def make(text: str, target: Target) -> bytes:
        made.append((text, target))
        return text.encode()

    find = kept(make)
    for _ in range(2):
        assert find("short", host_target()) == b"short"
    assert len(made) == 2 and not [*tmp_path.iterdir()]
    find(TEXT, host_target())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert find(TEXT, host_target()) == TEXT.encode()
    assert len(made) == 4
    assert find(TEXT, host_target()) == TEXT.encode()
    assert len(made) == 4


def test_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    for number, name in enumerate("cab"):
        (tmp_path / name).write_bytes(b"0123")
        os.utime(tmp_path / name, (number, number))
    trim(tmp_path, 9)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


@pytest.mark.usefixtures("made")
def test_two_functions_have_objects_of_their_own() -> None:
    def first(text: str, target: Target) -> bytes:
        return b"first"

    def second(text: str, target: Target) -> bytes:
        return b"second"

    assert kept(first)(TEXT, host_target()) == b"first"
    assert kept(second)(TEXT, host_target()) == b"second"
