"""Functions of C's run-time library on Windows, for libraries that link none."""

from __future__ import annotations

import struct

from ostinato.codegen.llvm import emit_object
from ostinato.codegen.target import Target, data_layout

PROBE = "___chkstk_ms"
"""Called by functions with more than a page of memory on the stack, rax bytes of it.

The system gives a stack its pages one after the other, in the order in which they are touched. No
register may change.
"""

# x86-64: LLVM has no assembler on machines of another kind.
_PROBE_CODE = bytes.fromhex(
    "51"  # push rcx
    "50"  # push rax
    "488d4c2418"  # lea rcx, [rsp + 24]
    "483d00100000"  # again: cmp rax, 4096
    "7213"  # jb last
    "4881e900100000"  # sub rcx, 4096
    "48830900"  # or qword ptr [rcx], 0
    "482d00100000"  # sub rax, 4096
    "ebe5"  # jmp again
    "4829c1"  # last: sub rcx, rax
    "48830900"  # or qword ptr [rcx], 0
    "58"  # pop rax
    "59"  # pop rcx
    "c3"  # ret
)
_MACHINE, _CODE_SECTION, _FUNCTION, _EXTERNAL = 0x8664, 0x60500020, 0x20, 2
_START = "define i32 @DllMainCRTStartup(ptr, i32, ptr) nounwind { ret i32 1 }"


def probe_object() -> bytes:
    """The object of `PROBE`: a header, one section, a symbol, its name (PE format, COFF)."""
    code_at = 20 + 40
    symbols_at = code_at + len(_PROBE_CODE)
    name = PROBE.encode() + b"\0"
    header = struct.pack("<HHIIIHH", _MACHINE, 1, 0, symbols_at, 1, 0, 0)
    places = len(_PROBE_CODE), code_at, 0, 0, 0, 0, _CODE_SECTION
    section = struct.pack("<8sIIIIIIHHI", b".text", 0, 0, *places)
    symbol = struct.pack("<IIIhHBB", 0, 4, 0, 1, _FUNCTION, _EXTERNAL, 0)
    return header + section + _PROBE_CODE + symbol + struct.pack("<I", 4 + len(name)) + name


def start_object(target: Target) -> bytes:
    """The object of the entry point of a shared library, which has nothing to do."""
    head = f'target datalayout = "{data_layout(target)}"\ntarget triple = "{target.triple}"\n'
    return emit_object(head + _START, target)
