"""The target of `triple:cpu:features`: LLVM tells which names exist, and what the CPU has."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from dataclasses import replace

from ostinato.errors import OptionError
from ostinato.machine.record import AVX2, AVX512, NEON, WASM
from ostinato.machine.targets import NO_SVE, TARGETS, Target, arm_machine, x86_machine
from ostinato.spelling import nearest

# Environments whose addresses are narrower than registers.
_NARROW = ("ilp32", "x32")


@functools.lru_cache(maxsize=16)
def described(name: str) -> Target:
    """Return the target of `triple:cpu:features`; its record follows from LLVM's code for a probe.

    Raises `OptionError` as `find_target` does.
    """
    parts = [*name.split(":", 2), "", ""]
    triple, cpu, features = parts[0], parts[1] or "generic", parts[2]
    target = Target(triple, cpu, features, NEON)
    if target.architecture not in _PROBES:
        known = ", ".join(sorted(_PROBES))
        raise OptionError(f"target={name!r}: expected a triple of {known}, got {triple!r}")
    if (target.architecture, target.system) == ("aarch64", "windows"):
        raise OptionError(f"target={name!r}: expected x86_64 of Windows, got {triple!r}")
    if triple.endswith(_NARROW):
        raise OptionError(f"target={name!r}: expected addresses of 64 bits, got {triple!r}")
    cpus, flags, assembly = _told_by_llvm(target)
    if cpu not in cpus:
        raise OptionError(f"target={name!r}: no CPU {cpu!r} for {triple}; {nearest(cpu, cpus)}")
    for feature in filter(None, features.split(",")):
        if feature[0] not in "+-" or feature[1:] not in flags:
            hint = nearest(feature.lstrip("+-"), flags)
            if feature in flags:
                hint = f"did you mean +{feature} or -{feature}?"
            raise OptionError(
                f"target={name!r}: no feature {feature!r} for {triple} (+name or -name); {hint}"
            )
    if target.object_format == "coff":
        # Linkers of all environments accept objects for GNU's, which define the run-time functions
        # they need.
        target = replace(target, triple=TARGETS["windows"].triple)
    return _with_record(target, name, assembly)


def _with_record(target: Target, name: str, assembly: str) -> Target:
    if target.architecture == "wasm32":
        if "simd128" not in target.enabled:
            raise OptionError(f"target={name!r}: compiled code needs vectors; add +simd128")
        relaxed = "relaxed-simd" in target.enabled
        return replace(target, machine=TARGETS["wasm"].machine if relaxed else WASM)
    if target.architecture == "aarch64":
        if "fmla" not in assembly:
            raise OptionError(f"target={name!r}: compiled code needs NEON and its floats")
        features = target.features
        if not {"+sve", "-sve"} & {*features.split(",")}:
            features = f"{features}{NO_SVE}".lstrip(",")
        machine = arm_machine(target.cpu, "sdot" in assembly, "usdot" in assembly)
        return replace(target, features=features, machine=machine)
    if "vfmadd" not in assembly or not _AVX2_ADDITION.search(assembly):
        raise OptionError(
            f"target={name!r}: compiled code needs AVX2 and FMA; add +avx2,+fma or take x86-64-v3"
        )
    if "vpmullq" not in assembly or "vpsrlvw" not in assembly:
        return replace(target, machine=x86_machine(AVX2, target.cpu, "avxvnni" in target.enabled))
    wide = target.features
    if "-prefer-256-bit" not in wide:
        wide = f"{wide},-prefer-256-bit".lstrip(",")
    has_dots, has_lookups = "avx512vnni" in target.enabled, "avx512vbmi" in target.enabled
    machine = x86_machine(AVX512, target.cpu, has_dots, has_lookups)
    return replace(target, features=wide, machine=machine)


# Functions whose assembly shows by its instructions what a CPU has: fused multiply-add, dot
# products of bytes; AVX2; 64-bit products, which need both AVX512DQ and AVX512VL; shifts of 16 bits
# by a vector, which need AVX512BW.
_DOT = """
define <4 x i32> @{name}(<4 x i32> %c, <16 x i8> %a, <16 x i8> %b) {{
  %x = {left} <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %z = mul <16 x i32> %x, %y
  %r = call <4 x i32> @llvm.vector.partial.reduce.add.v4i32.v16i32(<4 x i32> %c, <16 x i32> %z)
  ret <4 x i32> %r
}}
"""
_FMA = """
declare <{n} x float> @llvm.fma.v{n}f32(<{n} x float>, <{n} x float>, <{n} x float>)
define <{n} x float> @f(<{n} x float> %a, <{n} x float> %b, <{n} x float> %c) {{
  %r = call <{n} x float> @llvm.fma.v{n}f32(<{n} x float> %a, <{n} x float> %b, <{n} x float> %c)
  ret <{n} x float> %r
}}
"""
_BINARY = """
define <{n} x {t}> @{op}(<{n} x {t}> %a, <{n} x {t}> %b) {{
  %r = {op} <{n} x {t}> %a, %b
  ret <{n} x {t}> %r
}}
"""
_PROBES = {
    "aarch64": _FMA.format(n=4)
    + "declare <4 x i32> @llvm.vector.partial.reduce.add.v4i32.v16i32(<4 x i32>, <16 x i32>)\n"
    + _DOT.format(name="mixed", left="zext")
    + _DOT.format(name="signed", left="sext"),
    "x86_64": _FMA.format(n=8)
    + _BINARY.format(n=8, t="i32", op="add")
    + _BINARY.format(n=4, t="i64", op="mul")
    + _BINARY.format(n=8, t="i16", op="lshr"),
    "wasm32": "",
}


# Before AVX2 only floats had registers of 32 bytes.
_AVX2_ADDITION = re.compile(r"vpaddd.*ymm")
_TELL = """
import sys
import llvmlite.binding as llvm
triple, cpu, features, probe = sys.argv[1:]
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple(triple)
target.create_target_machine(cpu="help")
machine = target.create_target_machine(cpu=cpu, features=features)
print(machine.emit_assembly(llvm.parse_assembly(probe)))
"""


@functools.cache
def _told_by_llvm(target: Target) -> tuple[frozenset[str], frozenset[str], str]:
    """Ask LLVM for the CPUs and features of a triple, and for its assembly of the probe.

    LLVM lists names only on standard error, and ends the process for combinations of features that
    it cannot handle: so it runs in a process of its own.
    """
    probe = f'target triple = "{target.triple}"{_PROBES[target.architecture]}'
    command = [sys.executable, "-c", _TELL, target.triple, target.cpu, target.features, probe]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    cpus, _, features = told.stderr.partition("Available features")
    return _names(cpus), _names(features), told.stdout


def _names(text: str) -> frozenset[str]:
    lines = (line.partition(" - ") for line in text.splitlines())
    return frozenset(name.strip() for name, dash, _ in lines if dash)
