from __future__ import annotations

import numpy as np
import pytest

from ostinato.codegen import objects
from ostinato.codegen.llvm import emit_assembly, emit_object
from ostinato.codegen.module import module_text
from ostinato.codegen.target import host_target
from ostinato.machine.targets import TARGETS
from ostinato.program.laid import lay_out
from ostinato.schedule.pipeline import schedule
from tests.codegen.test_module import AARCH64, MEMORY_FUNCTIONS, undefined_symbols
from tests.program.programs import gru

LIBRARY = """
declare float @expf(float)
define float @f(float %x) {
  %y = call float @expf(float %x)
  ret float %y
}
"""


def text(target) -> str:
    recurrent = np.ones((3, 24, 24), np.float32)
    scheduled = schedule(gru(24, recurrent), target.machine)
    blob = lay_out(scheduled.program.constants)
    return module_text(scheduled.program, scheduled.arena, blob, target)


def test_objects_of_this_machine_export_entry_and_layout_and_need_nothing():
    code = emit_object(text(host_target()), host_target())
    loaded = objects.load(code, ("entry", "layout"))
    assert loaded.address("entry") and loaded.address("layout")
    assert undefined_symbols(code) <= MEMORY_FUNCTIONS


def test_what_an_object_needs_is_seen():
    assert undefined_symbols(emit_object(LIBRARY, host_target())) == {"expf"}


def test_objects_of_other_machines_need_nothing():
    code = emit_object(text(AARCH64), AARCH64)
    assert code[18:20] == (183).to_bytes(2, "little")  # EM_AARCH64
    assert undefined_symbols(code) <= MEMORY_FUNCTIONS


def test_assembly_of_other_machines_uses_their_vectors():
    assert "fmla\tv" in emit_assembly(text(AARCH64), AARCH64)


def test_vectors_are_as_long_as_the_target_says():
    host = host_target()
    if not host.triple.startswith("x86_64") or host.machine.vector_bytes < 64:
        pytest.skip("this machine has no 64-byte registers")
    short = TARGETS["x86-64-v3"]
    assert "zmm" in emit_assembly(text(host), host)
    assert "vfmadd" in emit_assembly(text(short), short)
    assert "zmm" not in emit_assembly(text(short), short)


def test_the_same_text_gives_the_same_object():
    target = host_target()
    assert emit_object(text(target), target) == emit_object(text(target), target)


def test_damaged_text_is_an_error():
    with pytest.raises(RuntimeError, match="parsing error"):
        emit_object("define nothing", host_target())
