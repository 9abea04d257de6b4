"""Find the target of a name: a known machine, this machine, or one that LLVM describes.

Emitters ask the target's record, never a CPU name.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ostinato.codegen.objects import host
from ostinato.errors import OptionError
from ostinato.machine.record import AVX2, AVX512, NEON
from ostinato.machine.targets import (
    HOST,
    NO_SVE,
    TARGETS,
    Target,
    arm_machine,
    check_target_name,
    x86_machine,
)

__all__ = ["Target", "data_layout", "find_target", "host_target", "require_runnable"]


def find_target(name: str) -> Target:
    """The target of an alias, of `host`, or of `triple:cpu:features`.

    Raises `OptionError` for a name, CPU or feature that does not exist, with those that are near,
    and for machines that code cannot be generated for.
    """
    check_target_name(name)
    if name == HOST:
        return host_target()
    if name in TARGETS:
        return TARGETS[name]
    from ostinato.codegen.described import described

    return described(name)


@functools.cache
def host_target() -> Target:
    """This machine. Raises `OptionError` where it lacks fused multiply-add."""
    triple, cpu, features = host()
    found = Target(triple, cpu, features, NEON)
    enabled = found.enabled
    if found.architecture == "aarch64":
        machine = arm_machine(cpu, "dotprod" in enabled, "i8mm" in enabled)
        return Target(triple, cpu, features + NO_SVE, machine)
    if not {"avx2", "fma"} <= enabled:
        raise OptionError(f"this CPU ({cpu}) has no AVX2 and FMA, which compiled code needs")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= enabled:
        # Without this LLVM splits 64-byte vectors on some CPUs.
        wide = f"{features},-prefer-256-bit"
        machine = x86_machine(AVX512, cpu, "avx512vnni" in enabled, "avx512vbmi" in enabled)
        machine = replace(machine, byte_tiles="amx-int8" in enabled)
        return Target(triple, cpu, wide, machine)
    return Target(triple, cpu, features, x86_machine(AVX2, cpu, "avxvnni" in enabled))


def require_runnable(name: str) -> None:
    """Raise `OptionError` unless this machine runs code for the target of that name."""
    if name == HOST:
        return
    target, here = find_target(name), host_target()
    same = (target.architecture, target.system) == (here.architecture, here.system)
    missing = sorted(target.enabled - here.enabled)
    # What another CPU implies is not known; the table lists the features that matter.
    if target.cpu not in {here.cpu, "generic", *(known.cpu for known in TARGETS.values())}:
        missing.insert(0, target.cpu)
    if same and not missing:
        return
    why = f"it needs {', '.join(missing)}" if same else f"it is {target.triple}, not {here.triple}"
    raise OptionError(
        f"target={name!r}: code for another machine cannot be run here ({why}); "
        "`ostinato build` and `ostinato.build` make files for it"
    )


@functools.lru_cache(maxsize=16)
def data_layout(target: Target) -> str:
    """Sizes and alignments of types, as LLVM spells them in a module."""
    return str(llvm_machine(target).target_data)


@functools.lru_cache(maxsize=4)
def llvm_machine(target: Target, level: int | None = None) -> Any:
    """Create LLVM's target machine.

    level: of its optimisations; None for those that pay.
    """
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    if level is None:
        # Level 2 schedules once more after register allocation, which takes a fifteenth of LLVM's
        # time. Cores for x86-64 reorder instructions themselves: no row of `benchmarks.versions`
        # gains.
        level = 1 if target.architecture == "x86_64" else 2
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="pic", codemodel="small"
    )
