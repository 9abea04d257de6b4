"""The target of LLVM, with the record of that kind of machine.

Emitters ask the record, never a CPU name.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ostinato.codegen.objects import host
from ostinato.errors import OptionError
from ostinato.machine.record import AVX2, AVX512, NEON, Machine


@dataclass(frozen=True)
class Target:
    """A machine to compile for; `triple`, `cpu` and `features` as LLVM spells them."""

    triple: str
    cpu: str
    features: str
    machine: Machine


@functools.cache
def host_target() -> Target:
    """This machine. Raises `OptionError` where it lacks fused multiply-add."""
    triple, cpu, features = host()
    enabled = {name[1:] for name in features.split(",") if name.startswith("+")}
    if triple.startswith(("aarch64", "arm64")):
        return Target(triple, cpu, features, NEON)
    if not {"avx2", "fma"} <= enabled:
        raise OptionError(f"this CPU ({cpu}) has no AVX2 and FMA, which compiled code needs")
    if "avx512f" in enabled and "avx512vl" in enabled and "avx512dq" in enabled:
        # Without this LLVM splits 64-byte vectors on some CPUs.
        wide = f"{features},-prefer-256-bit"
        return Target(triple, cpu, wide, replace(AVX512, byte_dots="avx512vnni" in enabled))
    return Target(triple, cpu, features, replace(AVX2, byte_dots="avxvnni" in enabled))
