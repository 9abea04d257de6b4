"""Machine code made without LLVM's optimizations, in a quarter of the time.

They change no bit: `test_modes` compares both. So whoever tests what happens to ONNX graphs, and
not how code is generated, need not wait for them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm
import pytest

import ostinato.compiler
from ostinato.codegen.relocatable import NotRelocatable, join
from ostinato.codegen.target import Target
from ostinato.codegen.units import divide

# Characters of a function that is compiled apart: without optimizations LLVM takes 0.3 us for one,
# and about as long as for a few thousand for one module more.
SHORTEST = 2500


@cache
def _machine(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=0, reloc="pic", codemodel="small"
    )


def emit_object(text: str, target: Target, _: object = None) -> bytes:
    """What `ostinato.codegen.llvm.emit_object` gives, but slower code."""
    if target.object_format == "elf" and (units := divide(text, SHORTEST)).kernels:
        modules = (units.rest, *units.kernels)
        with suppress(NotRelocatable):
            return join([_emitted(module, target) for module in modules], dict(units.names))
    return _emitted(text, target)


# Modes of one case have whole modules, or kernels, in common.
@lru_cache(maxsize=1024)
def _emitted(text: str, target: Target) -> bytes:
    return bytes(_machine(target).emit_object(llvm.parse_assembly(text)))


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile without optimizations, in a cache of such models, until the patches are undone.

    monkeypatch: tests may patch the same names, which is undone before it is.
    """
    monkeypatch.setattr(ostinato.compiler, "emit_object", emit_object)
    folder = os.path.join(os.environ["XDG_CACHE_HOME"], "unoptimized")
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
