from __future__ import annotations

import pytest

from ostinato.codegen.target import find_target
from ostinato.errors import OptionError
from ostinato.machine.record import AVX2, AVX512
from ostinato.machine.targets import TARGETS

ARM, X86 = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"


@pytest.mark.parametrize("name", ["x86-64-v4", "cortex-a53", "graviton3", "apple-m1", "wasm"])
def test_records_of_the_table_are_what_llvm_says(name):
    known = TARGETS[name]
    assert find_target(f"{known.triple}:{known.cpu}:{known.features}") == known


@pytest.mark.parametrize(
    ("name", "registers", "dots"),
    [
        (f"{X86}:haswell", AVX2, "none"),
        (f"{X86}:sapphirerapids:+avx512vnni", AVX512, "vnni"),
        (f"{X86}:skylake-avx512", AVX512, "none"),
        (f"{X86}:x86-64-v3:+avx512f,+avx512vl,+avx512dq", AVX2, "none"),
        (f"{ARM}:neoverse-v2", TARGETS["android-arm64"].machine, "usdot"),
        (f"{ARM}::+dotprod", TARGETS["android-arm64"].machine, "sdot"),
    ],
)
def test_what_a_cpu_has_is_seen(name, registers, dots):
    found = find_target(name).machine
    assert found.vector_bytes == registers.vector_bytes
    assert found.vector_registers == registers.vector_registers
    assert found.byte_dots == dots


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{ARM}:cortex-a77x:", r"no CPU 'cortex-a77x' for .*; did you mean cortex-a77,"),
        (f"{ARM}:cortex-a77:+dotprd", r"no feature '\+dotprd' for .*; did you mean dotprod\?"),
        (
            f"{ARM}:cortex-a77:dotprod",
            r"no feature 'dotprod' .*; did you mean \+dotprod or -dotprod",
        ),
        (f"{ARM}:generic:-neon", "needs NEON"),
        (f"{X86}:x86-64", r"needs AVX2 and FMA; add \+avx2,\+fma or take x86-64-v3"),
        (f"{X86}:sandybridge:+fma", "needs AVX2 and FMA"),
        ("wasm32-unknown-unknown:generic", r"needs vectors; add \+simd128"),
        ("riscv64-linux-gnu:generic", "expected a triple of aarch64, wasm32, x86_64"),
        (":", "expected a triple of aarch64, wasm32, x86_64, got ''"),
        ("aarch64_be-linux-gnu:generic", "expected a triple of aarch64, wasm32, x86_64"),
        ("aarch64-linux-gnu_ilp32:generic", "expected addresses of 64 bits"),
        ("aarch64-pc-windows-msvc:generic", "expected x86_64 of Windows"),
    ],
)
def test_what_cannot_be_compiled_for_is_an_error(name, message):
    with pytest.raises(OptionError, match=message):
        find_target(name)


@pytest.mark.parametrize(
    "triple", ["x86_64-pc-windows-msvc", "x86_64-windows", "x86_64-w64-mingw32"]
)
def test_windows_has_one_kind_of_objects(triple):
    known = TARGETS["windows"]
    assert find_target(f"{triple}:{known.cpu}:{known.features}") == known
