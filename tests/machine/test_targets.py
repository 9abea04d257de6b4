from __future__ import annotations

import pytest

from ostinato.errors import OptionError
from ostinato.machine.record import AVX2, AVX512, KIB
from ostinato.machine.targets import TARGETS, Target, check_target_name, x86_machine
from ostinato.options import Options


@pytest.mark.parametrize(
    ("triple", "facts"),
    [
        ("x86_64-unknown-linux-gnu", ("x86_64", "linux", "elf")),
        ("x86_64-w64-windows-gnu", ("x86_64", "windows", "coff")),
        ("x86_64-pc-windows-msvc", ("x86_64", "windows", "coff")),
        ("x86_64-pc-windows-msvc-elf", ("x86_64", "windows", "elf")),
        ("aarch64-unknown-linux-android21", ("aarch64", "android", "elf")),
        ("arm64-apple-macosx11.0.0", ("aarch64", "macos", "mach-o")),
        ("aarch64-apple-darwin23", ("aarch64", "macos", "mach-o")),
        ("arm64-apple-ios15", ("aarch64", "ios", "mach-o")),
        ("wasm32-unknown-unknown", ("wasm32", "none", "wasm")),
    ],
)
def test_a_triple_tells_architecture_system_and_format(triple, facts):
    found = Target(triple, "generic", "", TARGETS["wasm"].machine)
    assert (found.architecture, found.system, found.object_format) == facts


def test_features_that_are_left_out_are_not_enabled():
    assert "prefer-256-bit" not in TARGETS["x86-64-v4"].enabled
    assert {"avx2", "avx512vl"} <= TARGETS["x86-64-v4"].enabled


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raspbery-pi-4", r"did you mean raspberry-pi-4, raspberry-pi-5\?"),
        ("mips", "and no 'triple:cpu:features'; known are android-arm64, apple-m1, "),
        ("", "no such target"),
        ("aarch64-linux-gnu", "of a triple take 'aarch64-linux-gnu::'; known are"),
        ("x86_64-linux-gnu", "of a triple take 'x86_64-linux-gnu:x86-64-v3:'"),
        (3, "target=3: expected a name"),
    ],
)
def test_unknown_names_are_errors_that_name_the_nearest(name, message):
    with pytest.raises(OptionError, match=message):
        Options(target=name)


@pytest.mark.parametrize("name", [*TARGETS, "host", "aarch64-linux-gnu:generic"])
def test_known_names_and_descriptions_pass(name):
    check_target_name(name)


def test_the_second_level_cache_is_that_of_the_cpu() -> None:
    large, small = (x86_machine(AVX512, cpu, True) for cpu in ("sapphirerapids", "znver4"))
    assert large.second_level_bytes == AVX512.second_level_bytes == 2 * small.second_level_bytes
    assert small.byte_dots == "vnni" and small.vector_bytes == 64
    assert x86_machine(AVX2, "znver3", False).second_level_bytes == small.second_level_bytes


def test_panels_stay_in_the_first_level_cache_of_the_cpu() -> None:
    large, small = (x86_machine(AVX512, cpu, True) for cpu in ("znver5", "znver4"))
    near = [machine.near_bytes * machine.panel_share for machine in (large, small)]
    assert near[0] == AVX512.near_bytes and near[1] < 32 * KIB < near[0]
    assert x86_machine(AVX2, "znver3", False).panel_share == 1.0
