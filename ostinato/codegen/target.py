"""The facts about a machine that code generation depends on.

Emitters ask this record, never a CPU name.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ostinato.codegen.objects import host
from ostinato.errors import OptionError
from ostinato.schedule.tile import Registers


@dataclass(frozen=True)
class Target:
    """A machine to compile for.

    triple, cpu, features: as LLVM spells them.
    vector_bytes: bytes of one vector register.
    vector_registers: how many there are.
    byte_dots: whether one instruction adds four products of bytes to each 32-bit lane (VNNI).
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    byte_dots: bool = False

    @property
    def registers(self) -> Registers:
        """What tiling needs to know."""
        return Registers(self.vector_bytes, self.vector_registers)


@functools.cache
def host_target() -> Target:
    """This machine. Raises `OptionError` where it lacks fused multiply-add."""
    triple, cpu, features = host()
    enabled = {name[1:] for name in features.split(",") if name.startswith("+")}
    if triple.startswith(("aarch64", "arm64")):
        return Target(triple, cpu, features, 16, 32)
    if not {"avx2", "fma"} <= enabled:
        raise OptionError(f"this CPU ({cpu}) has no AVX2 and FMA, which compiled code needs")
    if "avx512f" in enabled and "avx512vl" in enabled and "avx512dq" in enabled:
        # Without this LLVM splits 64-byte vectors on some CPUs.
        wide = f"{features},-prefer-256-bit"
        return Target(triple, cpu, wide, 64, 32, "avx512vnni" in enabled)
    return Target(triple, cpu, features, 32, 16, "avxvnni" in enabled)
