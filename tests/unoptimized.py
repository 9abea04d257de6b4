"""Machine code made without LLVM's optimizations, in a quarter of the time.

They change no bit: `test_modes` compares both. So whoever tests what happens to ONNX graphs, and
not how code is generated, need not wait for them.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm

from ostinato.codegen.relocatable import join
from ostinato.codegen.target import Target
from ostinato.codegen.units import divide


@cache
def _machine(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=0, reloc="pic", codemodel="small"
    )


def emit_object(text: str, target: Target, _: object = None) -> bytes:
    """What `ostinato.codegen.machine.emit_object` gives, but slower code."""
    units = divide(text)
    rest = bytes(_machine(target).emit_object(llvm.parse_assembly(units.rest)))
    return join([rest, *(_kernel(kernel, target) for kernel in units.kernels)])


@lru_cache(maxsize=500)
def _kernel(text: str, target: Target) -> bytes:
    return bytes(_machine(target).emit_object(llvm.parse_assembly(text)))
