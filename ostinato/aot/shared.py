"""Shared libraries: linked by Zig, whose linkers of all systems come as one Python package."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from ostinato.aot.library import Library
from ostinato.aot.windows import probe_object, start_object
from ostinato.aot.zig import require_zig, zig
from ostinato.codegen.target import Target
from ostinato.errors import OptionError


@dataclass(frozen=True)
class _System:
    """The settings of a system for linking."""

    zig: str
    suffix: str
    options: tuple[str, ...]


_SYSTEMS = {
    "linux": _System("linux-gnu", ".so", ("-nostdlib", "-Wl,-soname,lib{name}.so")),
    "android": _System("linux-android", ".so", ("-nostdlib", "-Wl,-soname,lib{name}.so")),
    "macos": _System("macos", ".dylib", ("-nostdlib", "-Wl,-install_name,@rpath/lib{name}.dylib")),
    "windows": _System(
        "windows-gnu", ".dll", ("-nostdlib", "-lkernel32", "-Wl,--out-implib,{name}.lib")
    ),
}


def require_linker(target: Target) -> None:
    """Raise `OptionError` where no shared library can be linked: it says what to install."""
    if target.system not in _SYSTEMS:
        known = ", ".join(_SYSTEMS)
        raise OptionError(
            f"no shared library can be linked for {target.triple}, only for {known}; programs link "
            "the static library"
        )
    require_zig("a shared library")


def shared_library(library: Library) -> dict[str, bytes]:
    """The files of a shared library, by name.

    Raises `OptionError` without a linker, `OstinatoError` with what it says where it fails.
    """
    target = library.target
    require_linker(target)
    system = _SYSTEMS[target.system]
    file = f"{'' if system.suffix == '.dll' else 'lib'}{library.name}{system.suffix}"
    with tempfile.TemporaryDirectory(prefix="ostinato-") as folder:
        place = Path(folder)
        objects = {"code.o": library.object, "heap.o": library.heap}
        if target.system == "windows":
            objects |= {"start.o": start_object(target), "stack.o": probe_object()}
        for name, contents in objects.items():
            (place / name).write_bytes(contents)
        options = [option.format(name=library.name) for option in system.options]
        triple = f"{target.architecture}-{system.zig}"
        command = ["cc", "-target", triple, "-shared", "-s", *objects, *options, "-o", file]
        zig(command, place)
        return {
            found.name: found.read_bytes()
            for found in sorted(place.iterdir())
            if found.suffix in (".so", ".dylib", ".dll", ".lib")
        }
