"""Run LLVM: from the text of a module to a relocatable object, or to assembly to read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ostinato.codegen import webassembly
from ostinato.codegen.relocatable import NotRelocatable, join
from ostinato.codegen.target import Target, llvm_machine
from ostinato.codegen.units import apart, divide

Make: TypeAlias = Callable[[str, Target], bytes]
# Gives the object of a text for a target: a stored one, or the one that the function makes.
Keep: TypeAlias = Callable[[str, Target, Make], bytes]


def unkept(text: str, target: Target, make: Make) -> bytes:
    """Make the object of a text, without a store."""
    return make(text, target)


def _optimised(text: str, target: Target) -> tuple[Any, Any]:
    import llvmlite.binding as llvm

    machine = llvm_machine(target)
    module = llvm.parse_assembly(text)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_module_pass_manager()
    # The code is vectorised and unrolled already, and code generation has passes of its own for
    # addresses and duplicates: with GVN and loop strength reduction here too, all of it takes a
    # quarter longer, and the code is no faster.
    if "alwaysinline" in text:
        passes.add_always_inliner_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    if target.object_format == "wasm":
        # Offsets are written for addresses as these passes leave them.
        passes.add_new_gvn_pass()
        passes.add_loop_strength_reduce_pass()
        passes.add_instruction_combine_pass()
    passes.run(module, builder)
    if target.object_format == "wasm":
        module = llvm.parse_assembly(webassembly.with_offsets(str(module)))
    return module, machine


def emit_object(text: str, target: Target, keep: Keep | None = None) -> bytes:
    """Compile the module to machine code, as a relocatable object.

    keep: long kernels are compiled apart, and found again where they were compiled before, and
        plain functions without optimisations, if the target's objects are of the format that can be
        joined. None to compile all of it at once.
    """
    if keep is None or target.object_format != "elf":
        return make_object(text, target)
    units = divide(text)
    parts = apart(units.rest)
    if parts is None and not units.kernels:
        return make_object(text, target)
    rest = [make_object(units.rest if parts is None else parts[0], target)]
    rest += [] if parts is None else [make_plain_object(parts[1], target)]
    kernels = [keep(kernel, target, make_object) for kernel in units.kernels]
    try:
        return join([*rest, *kernels], dict(units.names))
    except NotRelocatable:
        return make_object(text, target)


def make_plain_object(text: str, target: Target) -> bytes:
    """Compile the module without optimisations."""
    import llvmlite.binding as llvm

    return bytes(llvm_machine(target, level=0).emit_object(llvm.parse_assembly(text)))


def make_object(text: str, target: Target) -> bytes:
    """Compile the module at once as a whole."""
    module, machine = _optimised(text, target)
    with _addresses_kept(target):
        return bytes(machine.emit_object(module))


def emit_assembly(text: str, target: Target) -> str:
    """The same code as assembly text."""
    module, machine = _optimised(text, target)
    with _addresses_kept(target):
        return str(machine.emit_assembly(module))


class _Keepers:
    """How many threads generate code without loop strength reduction, an option of the process."""

    count = 0
    changes = threading.Lock()


@contextlib.contextmanager
def _addresses_kept(target: Target) -> Iterator[None]:
    """Let code generation keep addresses as the text has them, where operands can express them.

    Loops of the text compute only what changes in them (`Writer.emit`), and an operand of x86-64
    has a base, an index and an offset. LLVM's loop strength reduction finds nothing to gain there,
    and takes a third of the time.
    """
    if target.architecture != "x86_64":
        yield
        return
    _keep(1)
    try:
        yield
    finally:
        _keep(-1)


def _keep(more: int) -> None:
    """Count threads; without any, the option has its usual value for others in this process."""
    import llvmlite.binding as llvm

    with _Keepers.changes:
        _Keepers.count += more
        llvm.set_option("ostinato", f"-disable-lsr={str(_Keepers.count > 0).lower()}")
