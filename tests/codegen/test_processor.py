from __future__ import annotations

import ctypes
import time

import pytest

from ostinato.codegen import objects
from ostinato.codegen.llvm import emit_assembly, emit_object
from ostinato.codegen.processor import AARCH64, X86_64, processor
from ostinato.codegen.target import host_target
from ostinato.errors import OptionError
from ostinato.machine.targets import TARGETS, Target
from ostinato.native import trampoline_ir

# A function that another module can call for each that the assembly defines.
EXPORTS = """
define i64 @now() {
  %now = call i64 @clock()
  ret i64 %now
}
define i64 @mode() {
  call void @pause()
  %mode = call i64 @get_mode()
  ret i64 %mode
}
define void @change(i64 %mode) {
  call void @set_mode(i64 %mode)
  ret void
}
"""


@pytest.mark.host
def test_the_clock_of_this_machine_runs_at_2_to_4_ghz() -> None:
    target = host_target()
    text = processor(target.architecture).assembly + EXPORTS
    code = objects.load(emit_object(text, target), ["now"])
    now = ctypes.CFUNCTYPE(ctypes.c_uint64)(code.address("now"))
    first, start = now(), time.perf_counter()
    time.sleep(0.05)
    second, end = now(), time.perf_counter()
    assert 1 < (second - first) / (end - start) / 1e9 < 6


@pytest.mark.parametrize("target", [TARGETS["cortex-a53"], TARGETS["apple-m1"]])
def test_aarch64_reads_its_counter_and_how_fast_it_is(target: Target) -> None:
    lines = emit_assembly(AARCH64.assembly + EXPORTS, target)
    clock = lines[lines.index("clock:") : lines.index("pause:")]
    assert "CNTVCT_EL0" in clock and "CNTFRQ_EL0" in clock
    assert "FPCR" in lines and "yield" in lines


def test_aarch64_flushes_subnormal_numbers_while_its_bits_are_set() -> None:
    from tests.targets.aarch64 import EmulatedObject

    text = """
define i64 @half(i64 %bits, i64 %mode) {
  call void @set_mode(i64 %mode)
  %told = call i64 @get_mode()
  %narrow = trunc i64 %bits to i32
  %x = bitcast i32 %narrow to float
  %y = fmul float %x, 0.5
  call void @set_mode(i64 0)
  %result = bitcast float %y to i32
  %wide = zext i32 %result to i64
  %shifted = shl i64 %told, 32
  %both = or i64 %shifted, %wide
  ret i64 %both
}
"""
    code = EmulatedObject(emit_object(AARCH64.assembly + text, TARGETS["cortex-a53"]), ["half"])
    half = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code.address("half"))
    least, subnormal = 0x00800000, 0x00000100
    flushing = AARCH64.flush_bits
    assert half(least, 0) == 0x00400000 and half(subnormal, 0) == 0x80
    for bits in (least, subnormal):
        assert half(bits, flushing) == flushing << 32


def test_other_processors_are_refused_by_name() -> None:
    assert processor("aarch64") is AARCH64 and processor("x86_64") is X86_64
    with pytest.raises(OptionError, match=r"riscv64: .* x86-64 and AArch64"):
        processor("riscv64")


@pytest.mark.parametrize("name", ["cortex-a53", "apple-m1", "windows", "x86-64-v3"])
def test_the_trampoline_compiles_for_every_host(name: str) -> None:
    target = TARGETS[name]
    text = trampoline_ir.assembly(processor(target.architecture))
    assert ("x86" in text) == (target.architecture == "x86_64")
    assert emit_object(text, target)
