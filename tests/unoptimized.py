"""Machine code made without LLVM's optimizations, in a quarter of the time.

They change no bit, and the size of registers does not either: `test_modes` compares all. So whoever
tests what happens to ONNX graphs, and not how code is generated, need not wait for them.
"""

from __future__ import annotations

import dataclasses
import os
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm
import pytest

import ostinato.compiler
from ostinato.codegen.llvm import emit_object as optimised_object
from ostinato.codegen.relocatable import NotRelocatable, join
from ostinato.codegen.target import Target, find_target, host_target
from ostinato.codegen.units import divide
from ostinato.machine.record import NEON
from ostinato.machine.targets import HOST
from tests.kept_objects import kept

# Characters of a function that is compiled apart: without optimizations LLVM takes 0.3 us for one,
# and about as long as for a few thousand for one module more.
SHORTEST = 2500
# Bytes and number of registers, and copies of the innermost loop of a sum. Loops have fewer tails,
# and fewer copies: functions of tests take three quarters of the time that they take to compile for
# 32 registers of 64 bytes.
SHORT = (16, 4, 1)


@cache
def _machine(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=0, reloc="pic", codemodel="small"
    )


def emit_object(text: str, target: Target, _: object = None) -> bytes:
    """What `ostinato.codegen.llvm.emit_object` gives, but slower code."""
    if target.object_format == "wasm":
        # Places of memory become offsets of instructions behind LLVM's optimizations only.
        return optimised_object(text, target)
    if target.object_format == "elf" and (units := divide(text, SHORTEST)).kernels:
        modules = (units.rest, *units.kernels)
        with suppress(NotRelocatable):
            return join([_emitted(module, target) for module in modules], dict(units.names))
    return _emitted(text, target)


# Modes of one case have whole modules, or kernels, in common.
@lru_cache(maxsize=1024)
@kept
def _emitted(text: str, target: Target) -> bytes:
    return bytes(_machine(target).emit_object(llvm.parse_assembly(text)))


def with_registers(vector_bytes: int, vector_registers: int, unroll: int | None = None) -> Target:
    """This machine with shorter and fewer registers: what other machines have.

    unroll: as in `Machine`; None for what this one has.
    """
    host = host_target()
    machine = dataclasses.replace(
        host.machine,
        vector_bytes=vector_bytes,
        vector_registers=vector_registers,
        lane_operands=vector_bytes == NEON.vector_bytes,
        unroll=host.machine.unroll if unroll is None else unroll,
    )
    return dataclasses.replace(host, machine=machine)


def patch(monkeypatch: pytest.MonkeyPatch, is_short: bool = False) -> None:
    """Compile without optimizations, in a cache of such models, until the patches are undone.

    monkeypatch: tests may patch the same names, which is undone before it is.
    is_short: whether for this machine with the registers of `SHORT`, unless tests name another one.
    """
    if is_short:
        short = with_registers(*SHORT)
        monkeypatch.setattr(
            ostinato.compiler, "find_target", lambda n: short if n == HOST else find_target(n)
        )
    monkeypatch.setattr(ostinato.compiler, "emit_object", emit_object)
    folder = os.path.join(os.environ["XDG_CACHE_HOME"], "unoptimized")
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
