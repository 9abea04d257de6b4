from __future__ import annotations

import ctypes
import gc

import pytest

from ostinato.codegen import objects
from ostinato.errors import RunError
from ostinato.system import address_of

pytestmark = pytest.mark.host


def _emit(assembly: str) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(objects.host()[0])
    machine = target.create_target_machine(reloc="pic", codemodel="small")
    return bytes(machine.emit_object(llvm.parse_assembly(assembly)))


ANSWER = "define i64 @answer() { ret i64 42 }"
IMPORTING = "declare i64 @other()\ndefine i64 @answer() {\n %r = call i64 @other()\n ret i64 %r\n}"
COPYING = """
declare ptr @memcpy(ptr, ptr, i64)
define ptr @copy(ptr %to, ptr %from) {
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 8)
  ret ptr %r
}
"""
_ANSWER = ctypes.CFUNCTYPE(ctypes.c_int64)


def test_linked_code_runs() -> None:
    loaded = objects.load(_emit(ANSWER), ["answer"])
    assert _ANSWER(loaded.address("answer"))() == 42


def test_one_object_can_be_linked_many_times_and_dropped() -> None:
    code = _emit(ANSWER)
    loaded = [objects.load(code, ["answer"]) for _ in range(20)]
    assert len({item.address("answer") for item in loaded}) == 20
    del loaded[::2]
    gc.collect()
    assert all(_ANSWER(item.address("answer"))() == 42 for item in loaded)


def test_memory_functions_are_provided() -> None:
    loaded = objects.load(_emit(COPYING), ["copy"])
    copy = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    source, target = (ctypes.c_int64 * 1)(7), (ctypes.c_int64 * 1)(0)
    copy(loaded.address("copy"))(ctypes.addressof(target), ctypes.addressof(source))
    assert target[0] == 7


def test_imports_are_resolved_by_name() -> None:
    callback = _ANSWER(lambda: 5)
    imports = {"other": address_of(callback)}
    loaded = objects.load(_emit(IMPORTING), ["answer"], imports)
    assert _ANSWER(loaded.address("answer"))() == 5


@pytest.mark.parametrize("cut", [0, 3, 64, 100, -1])
def test_damaged_objects_are_refused(cut: int) -> None:
    with pytest.raises(RunError, match="cannot be linked"):
        objects.load(_emit(ANSWER)[:cut], ["answer"])


def test_missing_symbols_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match="question"):
        objects.load(_emit(ANSWER), ["question"])
    with pytest.raises(RunError, match="cannot be linked"):
        objects.load(_emit(IMPORTING), ["answer"])
    assert capfd.readouterr().err == ""
