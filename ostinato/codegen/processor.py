"""What kinds of processors do each in their own way: a clock, a pause, the floating point mode.

A record for each kind. Nothing else asks what the processor is called. The assembly of a record
defines

    `i64 clock()`             ticks of a counter that all cores share, 2 to 4 GHz or scaled to 2 GHz
    `void pause()`            this thread waits for memory to change
    `i64 get_mode()`          the thread's floating point mode
    `void set_mode(i64 mode)`
"""

from __future__ import annotations

from ostinato.errors import OptionError
from ostinato.records import dataclass


@dataclass(frozen=True)
class Processor:
    """A kind of processor.

    flush_bits: of the mode: subnormal operands and results count as zero while they are set.
    assembly: of the four functions.
    """

    name: str
    flush_bits: int
    assembly: str


# MXCSR: flush-to-zero (bit 15), denormals-are-zero (6).
X86_64 = Processor(
    "x86-64",
    1 << 15 | 1 << 6,
    """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare i64 @llvm.readcyclecounter()

define internal i64 @clock() nounwind {
  %now = call i64 @llvm.readcyclecounter()
  ret i64 %now
}

define internal void @pause() nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @get_mode() nounwind {
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %narrow = load i32, ptr %place
  %mode = zext i32 %narrow to i64
  ret i64 %mode
}

define internal void @set_mode(i64 %mode) nounwind {
  %place = alloca i32
  %narrow = trunc i64 %mode to i32
  store i32 %narrow, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void
}
""",
)

# FPCR: FZ (bit 24), and FZ16 (19) for half precision. The counter runs at 1 MHz to 1 GHz; LLVM has
# no operation for it (`llvm.readsteadycounter` is 0 there).
AARCH64 = Processor(
    "AArch64",
    1 << 24 | 1 << 19,
    """
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
declare i64 @llvm.read_register.i64(metadata)
declare i64 @llvm.read_volatile_register.i64(metadata)

define internal i64 @clock() nounwind {
  %count = call i64 @llvm.read_volatile_register.i64(metadata !{!"cntvct_el0"})
  %told = call i64 @llvm.read_register.i64(metadata !{!"cntfrq_el0"})
  %is.untold = icmp eq i64 %told, 0
  %frequency = select i1 %is.untold, i64 1, i64 %told
  %factor = udiv i64 2147483648, %frequency
  %now = mul i64 %count, %factor
  ret i64 %now
}

define internal void @pause() nounwind {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define internal i64 @get_mode() nounwind {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode
}

define internal void @set_mode(i64 %mode) nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}
""",
)

_PROCESSORS = {"x86_64": X86_64, "aarch64": AARCH64}


def processor(architecture: str) -> Processor:
    """The record of a `Target.architecture`. Raises `OptionError` for other kinds."""
    found = _PROCESSORS.get(architecture)
    if found is None:
        kinds = " and ".join(each.name for each in _PROCESSORS.values())
        raise OptionError(f"{architecture}: sessions and threads run on {kinds} processors")
    return found
