from __future__ import annotations

import ctypes

import pytest

from ostinato.codegen import objects
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.relocatable import NotRelocatable, without_labels
from ostinato.codegen.target import find_target, host_target

TEXT = """
define double @polynomial(double %x) nounwind {
  %a = fmul double %x, 0x3FF3AE147AE147AE
  %b = fadd double %a, 0x40091EB851EB851F
  %c = fmul double %b, %x
  %d = fadd double %c, 0x4005BF0A8B145769
  %e = call double @more(double %d)
  ret double %e
}
define internal double @more(double %x) noinline nounwind {
  %y = fdiv double %x, 0x400599999999999A
  ret double %y
}
"""


@pytest.mark.skipif(host_target().object_format != "elf", reason="objects are no ELF here")
def test_code_without_labels_computes_the_same() -> None:
    code = emit_object(TEXT, host_target())
    trimmed = without_labels(code)
    assert len(trimmed) < len(code) and b".LCPI" in code and b".LCPI" not in trimmed
    values = []
    for each in (code, trimmed):
        loaded = objects.load(each, ["polynomial"])
        function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("polynomial"))
        values.append([function(x) for x in (-1.0, 0.0, 0.3)])
    assert values[0] == values[1] and len(set(values[0])) == 3


def test_other_formats_are_refused() -> None:
    with pytest.raises(NotRelocatable):
        without_labels(emit_object(TEXT, find_target("windows")))
    with pytest.raises(NotRelocatable):
        without_labels(b"\x7fELF")
