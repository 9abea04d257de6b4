"""The machines that code can be compiled for, one record each.

A target is an alias of the table below, `host` for this machine, or `triple:cpu:features` as LLVM
spells them (`aarch64-unknown-linux-gnu:cortex-a76:+dotprod`), which `codegen.target` reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from ostinato.errors import OptionError
from ostinato.machine.record import (
    AVX2,
    AVX512,
    CORTEX_A53,
    CORTEX_A72,
    CORTEX_A76,
    FIRESTORM,
    KIB,
    NEON,
    NEOVERSE_V1,
    WASM,
    Machine,
)
from ostinato.records import dataclass
from ostinato.spelling import nearest

ObjectFormat: TypeAlias = Literal["elf", "mach-o", "coff", "wasm"]
HOST = "host"


@dataclass(frozen=True)
class Target:
    """A machine to compile for; `triple`, `cpu` and `features` as LLVM spells them."""

    triple: str
    cpu: str
    features: str
    machine: Machine

    @property
    def architecture(self) -> str:
        """The first part of the triple; "aarch64" for arm64 as well."""
        first = self.triple.partition("-")[0]
        return "aarch64" if first == "arm64" else first

    @property
    def system(self) -> str:
        """The operating system: "linux", "macos", "windows", "android", "ios" or "none"."""
        rest = self.triple.partition("-")[2]
        for word, system in _SYSTEMS:
            if word in rest:
                return system
        return "none"

    @property
    def object_format(self) -> ObjectFormat:
        """The format of object files."""
        if self.architecture.startswith("wasm"):
            return "wasm"
        if self.system == "windows" and not self.triple.endswith("-elf"):
            return "coff"
        return "mach-o" if self.system in ("macos", "ios") else "elf"

    @property
    def enabled(self) -> frozenset[str]:
        """The features that are asked for by name, without those that the CPU implies."""
        return frozenset(name[1:] for name in self.features.split(",") if name.startswith("+"))


# Android is a Linux: the longer word comes first.
_SYSTEMS = (
    ("android", "android"),
    ("linux", "linux"),
    ("windows", "windows"),
    ("mingw", "windows"),
    ("macos", "macos"),
    ("darwin", "macos"),
    ("ios", "ios"),
)

_V3 = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt"
# Without the last one LLVM splits 64-byte vectors on some CPUs.
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit"
# Vectors have 16 bytes. Left to itself LLVM mixes in the scalable ones of a CPU that has them.
NO_SVE = ",-sve"
_NEON = f"+neon{NO_SVE}"
_DOTPROD = f"{_NEON},+dotprod"
_ARM_LINUX = "aarch64-unknown-linux-gnu"
_SIMD128 = "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint"

TARGETS: dict[str, Target] = {
    "x86-64-v3": Target("x86_64-unknown-linux-gnu", "x86-64-v3", _V3, AVX2),
    "x86-64-v4": Target("x86_64-unknown-linux-gnu", "x86-64-v4", _V4, AVX512),
    "windows": Target("x86_64-w64-windows-gnu", "x86-64-v3", _V3, AVX2),
    "cortex-a53": Target(_ARM_LINUX, "cortex-a53", _NEON, CORTEX_A53),
    "raspberry-pi-4": Target(_ARM_LINUX, "cortex-a72", _NEON, CORTEX_A72),
    "raspberry-pi-5": Target(_ARM_LINUX, "cortex-a76", _DOTPROD, CORTEX_A76),
    "graviton3": Target(_ARM_LINUX, "neoverse-v1", f"{_DOTPROD},+i8mm", NEOVERSE_V1),
    "apple-m1": Target("arm64-apple-macosx11.0.0", "apple-m1", _DOTPROD, FIRESTORM),
    "android-arm64": Target("aarch64-unknown-linux-android21", "generic", _NEON, NEON),
    "wasm": Target(
        "wasm32-unknown-unknown",
        "generic",
        f"{_SIMD128},+relaxed-simd",
        replace(WASM, fused_multiply_add="relaxed"),
    ),
    "wasm-baseline": Target("wasm32-unknown-unknown", "generic", _SIMD128, WASM),
}


# Cores whose second-level cache is half of the record's (optimisation manuals of Intel and AMD). On
# Zen 4, panels that are fetched for 2 MiB evict each other: measured on dilated convolutions of 192
# to 384 channels over 48 positions; an LSTM, ResNet-18 and BERT take the same time with either.
# Zen 3 and its predecessors have a quarter, but the third level is so near that pieces of a sum for
# that take up to 1.2 of the time (dilated convolutions and `attention 8x1500x64` of bench_micro).
_ONE_MIB = {
    *("skylake-avx512", "cascadelake", "cooperlake"),
    *("znver1", "znver2", "znver3", "znver4", "znver5"),
}
# Cores with AVX-512 whose first-level cache is two thirds of the record's. Panels of weights of
# 32 KiB leave it: on Zen 4 products of bytes of 256 by 128 channels over 28 x 28 and 56 x 56 pixels
# take 0.67 of the time with half of that, float32 networks the same (`benchmarks.versions --onnx`).
# What else is measured by that cache stays as it is, as with AVX2.
_SMALL_FIRST_LEVEL = {"skylake-avx512", "cascadelake", "cooperlake", "znver4"}


def x86_machine(registers: Machine, cpu: str, has_dots: bool, has_lookups: bool = False) -> Machine:
    """The record of a core with these registers."""
    second = 1024 * KIB if cpu in _ONE_MIB else registers.second_level_bytes
    is_small = registers is AVX512 and cpu in _SMALL_FIRST_LEVEL
    return replace(
        registers,
        second_level_bytes=second,
        panel_share=2 / 3 if is_small else 1.0,
        byte_dots="vnni" if has_dots else "none",
        byte_lookups=has_lookups,
    )


def arm_machine(cpu: str, has_dotprod: bool, has_i8mm: bool) -> Machine:
    """The record of a core that the table knows, else of any; dots as the features have them."""
    cores = {t.cpu: t.machine for t in TARGETS.values() if t.architecture == "aarch64"}
    return replace(
        cores.get(cpu, NEON),
        byte_dots="usdot" if has_i8mm else "sdot" if has_dotprod else "widening",
        byte_pairs=has_i8mm,
    )


# By the beginning of a triple, the least CPU and features that code is made for.
_LEAST = {
    "aarch64": ":",
    "arm64": ":",
    "x86_64": "x86-64-v3:",
    "wasm32": ":+simd128",
}


def check_target_name(name: object) -> None:
    """Raise `OptionError` for what is neither an alias nor of the form `triple:cpu:features`."""
    if not isinstance(name, str):
        raise OptionError(f"target={name!r}: expected a name, or 'triple:cpu:features'")
    if ":" not in name and name not in TARGETS and name != HOST:
        hint = nearest(name, [*TARGETS, HOST])
        architecture = name.partition("-")[0]
        if architecture in _LEAST:
            hint = f"of a triple take '{name}:{_LEAST[architecture]}'; {hint}"
        raise OptionError(f"target={name!r}: no such target, and no 'triple:cpu:features'; {hint}")
