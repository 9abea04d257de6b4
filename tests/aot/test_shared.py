from __future__ import annotations

import dataclasses
import importlib.util

import pytest

from ostinato.aot.shared import require_linker, shared_library
from ostinato.codegen.target import find_target
from ostinato.errors import OptionError, OstinatoError
from tests.aot import models

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="no ziglang here"
)


@pytest.mark.parametrize(
    "target, names, magic",
    [
        ("x86-64-v3", ["libgru.so"], b"\x7fELF"),
        ("raspberry-pi-4", ["libgru.so"], b"\x7fELF"),
        ("android-arm64", ["libgru.so"], b"\x7fELF"),
        ("apple-m1", ["libgru.dylib"], b"\xcf\xfa\xed\xfe"),
        ("windows", ["gru.dll", "gru.lib"], b"MZ"),
    ],
)
def test_a_shared_library_for_every_system(target: str, names: list[str], magic: bytes) -> None:
    files = shared_library(models.gru_library(target=target))
    assert list(files) == names and files[names[0]].startswith(magic)
    assert b"gru_step\0" in files[names[0]]


def test_systems_without_shared_libraries_are_named() -> None:
    with pytest.raises(OptionError, match="only for linux, android, macos, windows"):
        require_linker(find_target("arm64-apple-ios16.0:apple-a14:"))


def test_what_the_linker_says_is_in_the_error() -> None:
    broken = dataclasses.replace(models.gru_library(), object=b"no object")
    with pytest.raises(OstinatoError, match=r"zig cc .*code\.o"):
        shared_library(broken)
