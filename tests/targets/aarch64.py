"""Compiled functions for AArch64, executed by an emulator (unicorn) on the memory of this process.

The emulated processor sees every byte of this process at the address where it is: pages are mapped
when they are first touched. So whatever runs compiled functions here runs these as well, sessions
with plans, guards and streams included; only the two functions of an object are replaced.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import unicorn
from unicorn import arm64_const as arm

from ostinato.codegen import objects
from ostinato.native import function
from ostinato.native.memory import aligned_empty
from ostinato.runtime import session
from tests.targets.elf import Object, is_for_aarch64

PAGE = 4096
STACK = 1 << 20
# Nothing of this process is there. Functions that are not emulated have an address of these each.
RETURN = 0x1000
OUTSIDE = 0x2000
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_libc = ctypes.CDLL(None)
_ARGUMENTS = (arm.UC_ARM64_REG_X0, arm.UC_ARM64_REG_X1, arm.UC_ARM64_REG_X2)
# What LLVM may call where it recognises a copy or a fill.
MEMORY_FUNCTIONS = {
    "memcpy": ctypes.memmove,
    "memmove": ctypes.memmove,
    "memset": ctypes.memset,
}


# What went wrong, and the status of a function in which it did.
FAILURES: list[AssertionError] = []
FAILED = 1 << 30


class EmulatedObject:
    """Takes the place of `ostinato.codegen.objects.LoadedObject`: addresses that can be called."""

    def __init__(self, code: bytes, names: Iterable[str]) -> None:
        parsed = Object(code)
        unknown = parsed.undefined - MEMORY_FUNCTIONS.keys()
        assert not unknown, f"the object calls {sorted(unknown)}"
        self._outside = {OUTSIDE + 4 * i: n for i, n in enumerate(MEMORY_FUNCTIONS)}
        self._image = aligned_empty(parsed.size + PAGE)
        base = -(-self._image.ctypes.data // PAGE) * PAGE
        imports = {name: address for address, name in self._outside.items()}
        placed = parsed.placed(base, imports)
        ctypes.memmove(base, placed.contents, parsed.size)
        self._code = range(base, base + parsed.size)
        self._stack = aligned_empty(STACK)
        self._machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._machine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        self._machine.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)
        size = -(-parsed.size // PAGE) * PAGE
        self._machine.mem_map_ptr(base, size, unicorn.UC_PROT_ALL, base)
        self._mapped = set(range(base, base + size, PAGE))
        unmapped = unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_WRITE_UNMAPPED
        self._machine.hook_add(unmapped, self._map)
        self._functions = {name: _FUNCTION(self._caller(placed.symbols[name])) for name in names}

    def address(self, name: str) -> int:
        found = ctypes.cast(self._functions[name], ctypes.c_void_p).value
        assert found is not None
        return found

    def _map(self, machine: Any, _kind: int, address: int, size: int, *_: Any) -> bool:
        """Map the pages of an access, if this process has them."""
        for page in range(address // PAGE * PAGE, address + size, PAGE):
            if page in self._mapped:
                continue
            there = (ctypes.c_ubyte * 1)()
            if _libc.mincore(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), there):
                return False
            rights = unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE
            machine.mem_map_ptr(page, PAGE, rights, page)
            self._mapped.add(page)
        return True

    def _caller(self, start: int) -> Any:
        def call(*arguments: int) -> int:
            machine = self._machine
            for register, value in zip(_ARGUMENTS, arguments, strict=False):
                machine.reg_write(register, value or 0)
            machine.reg_write(arm.UC_ARM64_REG_LR, RETURN)
            top = self._stack.ctypes.data + STACK
            machine.reg_write(arm.UC_ARM64_REG_SP, top // 16 * 16)
            try:
                self._run(start)
            except AssertionError as error:
                # Nothing can be raised through machine code.
                FAILURES.append(error)
                return FAILED
            result = machine.reg_read(arm.UC_ARM64_REG_X0)
            return int(result - (result >> 63 << 64))

        return call

    def _run(self, place: int) -> None:
        machine = self._machine
        while place != RETURN:
            try:
                machine.emu_start(place, RETURN)
                return
            except unicorn.UcError as error:
                place = machine.reg_read(arm.UC_ARM64_REG_PC)
                if place in self._code and self._mixed_products(place):
                    place += 4
                    continue
                if place in self._code or place == RETURN:
                    raise AssertionError(f"{error} at {place - self._code.start:#x}") from error
                self._call_outside(place)
                place = machine.reg_read(arm.UC_ARM64_REG_LR)

    def _mixed_products(self, place: int) -> bool:
        """Do what USDOT, SUDOT and USMMLA do, which the emulator lacks; whether it is one.

        Arm Architecture Reference Manual, C7.2: 0 Q 001110 10 0 Rm 100111 Rn Rd (USDOT, vector),
        0 1 001110 10 0 Rm 101011 Rn Rd, and 0 Q 001111 U0 L Rm 1111 H 0 Rn Rd, by element H:L of
        Rm, whose bytes are signed (USDOT) if U is 1, else unsigned (SUDOT).
        """
        (word,) = struct.unpack("<I", ctypes.string_at(place, 4))
        kind = word & 0xFFE0FC00
        by_element = word & 0xFFC0F400 in (0x4F00F000, 0x4F80F000)
        if kind not in (0x4E809C00, 0x4E80AC00) and not by_element:
            return False
        result, *operands = (arm.UC_ARM64_REG_V0 + (word >> at & 31) for at in (0, 5, 16))
        total = self._vector(result, np.int32)
        if by_element and not word >> 23 & 1:
            operands.reverse()
        unsigned, signed = (
            self._vector(register, dtype).astype(np.int32)
            for register, dtype in zip(operands, (np.uint8, np.int8), strict=True)
        )
        if kind == 0x4E80AC00:
            added = total + (unsigned.reshape(2, 8) @ signed.reshape(2, 8).T).reshape(4)
        else:
            left, right = unsigned.reshape(4, 4), signed.reshape(4, 4)
            if by_element:
                element = (word >> 11 & 1) * 2 + (word >> 21 & 1)
                left, right = (
                    (left, right[[element]]) if word >> 23 & 1 else (left[[element]], right)
                )
            added = total + (left * right).sum(axis=1, dtype=np.int32)
        self._machine.reg_write(result, int.from_bytes(added.tobytes(), "little"))
        return True

    def _vector(self, register: int, dtype: Any) -> Any:
        """The elements of a register of 16 bytes."""
        return np.frombuffer(self._machine.reg_read(register).to_bytes(16, "little"), dtype)

    def _call_outside(self, address: int) -> None:
        """A function of this process: one of memory, or the one that safepoints ask."""
        x0, x1, x2 = (self._machine.reg_read(register) for register in _ARGUMENTS)
        name = self._outside.get(address)
        result = 0
        if name is not None:
            MEMORY_FUNCTIONS[name](x0, x1, x2)
            result = x0
        self._machine.reg_write(arm.UC_ARM64_REG_X0, result)


@contextmanager
def emulated() -> Iterator[None]:
    """Sessions run objects for AArch64 while this is open, compiling those for this machine."""

    def load(code: bytes, names: Iterable[str], *others: Any) -> Any:
        if is_for_aarch64(code):
            return EmulatedObject(bytes(code), names)
        return objects.load(code, names, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, "objects", SimpleNamespace(load=load))
        patch.setattr(session, "require_runnable", lambda _: None)
        try:
            yield
        finally:
            if FAILURES:
                failure = FAILURES[0]
                FAILURES.clear()
                raise failure
