"""Runs a C program that is WebAssembly, on the files of the folder it is called in.

python -m tools.wasi PROGRAM.wasm ARGUMENTS..
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run it; its exit code."""
    import wasmtime

    config = wasmtime.Config()
    config.wasm_simd = True
    config.wasm_relaxed_simd = True
    engine = wasmtime.Engine(config)
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
    linker.define_wasi()
    system = wasmtime.WasiConfig()
    system.argv = list(arguments)
    system.preopen_dir(".", ".")
    system.inherit_stderr()
    system.inherit_stdout()
    store.set_wasi(system)
    program = linker.instantiate(store, wasmtime.Module.from_file(engine, arguments[0]))
    try:
        program.exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        return int(end.code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
