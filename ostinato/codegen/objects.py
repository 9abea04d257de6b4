"""Link relocatable objects into this process with LLVM's JIT linker.

Objects freshly compiled, from the cache and compiled ahead of time take one path: bytes in,
addresses out. `llvmlite` is imported on first use, and so is what tells perf of functions
(`OSTINATO_PERF`).
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ostinato.codegen.artifact import Artifact
from ostinato.errors import RunError
from ostinato.locks import new_lock
from ostinato.system import address_of, system

_LOCK = new_lock()
_LIBRARY_NUMBERS = itertools.count()


class LoadedObject:
    """Machine code in this process; its addresses are valid while this object lives."""

    def __init__(self, tracker: Any, names: Iterable[str]) -> None:
        self._tracker = tracker
        self._addresses = {name: int(tracker[name]) for name in names}

    def address(self, name: str) -> int:
        """The address of the exported symbol `name`."""
        return self._addresses[name]


@functools.cache
def host() -> tuple[str, str, str]:
    """Triple, CPU name and feature string of this machine, as LLVM spells them.

    On Windows the triple asks for ELF objects, with the calling convention of Windows: so there is
    one way to join and link objects, and nothing unwinds compiled code. Tile registers (AMX) are
    available once the system has been asked for them, which happens here: compiling, and looking
    for code in a cache, come later.
    """
    import llvmlite.binding as llvm

    triple, features = llvm.get_process_triple(), llvm.get_host_cpu_features().flatten()
    if "+amx-int8" in features and not system().allows_tiles():
        features = features.replace("+amx-int8", "-amx-int8")
    return f"{triple}-elf" if "-windows" in triple else triple, llvm.get_host_cpu_name(), features


@functools.cache
def versions() -> tuple[str, str]:
    """Versions of llvmlite and of the LLVM inside it."""
    import llvmlite
    import llvmlite.binding as llvm

    return llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info))


@functools.cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


def load(
    object_code: bytes,
    names: Iterable[str],
    imports: Mapping[str, int] | None = None,
    artifact: Artifact | None = None,
) -> LoadedObject:
    """Link `object_code` and return the addresses of its exported `names`.

    imports: addresses of the symbols the object does not define, besides those that LLVM calls
    without being told to.
    Raises `RunError` when the object is malformed, lacks a name or needs another symbol.
    """
    import llvmlite.binding as llvm

    names = tuple(names)
    here = system()
    addresses = {name: address_of(here.function(name)) for name in here.called_unasked}
    addresses |= dict(imports or {})
    with _LOCK:
        builder = llvm.JITLibraryBuilder().add_object_img(object_code)
        for name, address in addresses.items():
            builder.import_symbol(name, address)
        for name in names:
            builder.export_symbol(name)
        try:
            tracker = builder.link(_linker(), f"ostinato{next(_LIBRARY_NUMBERS)}")
        except RuntimeError as error:
            raise RunError(f"compiled code cannot be linked: {error}") from error
    loaded = LoadedObject(tracker, names)
    if kind := os.environ.get("OSTINATO_PERF"):
        from ostinato.codegen import perf

        titles = {} if artifact is None else artifact.titles
        addresses = {name: loaded.address(name) for name in names}
        perf.announce(kind, object_code, addresses, titles)
    return loaded
