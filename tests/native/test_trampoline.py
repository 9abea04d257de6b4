from __future__ import annotations

import dataclasses
import gc
import types
import weakref
from typing import Any

import numpy as np
import pytest

from ostinato.codegen import objects
from ostinato.errors import RunError, StreamError
from ostinato.native.trampoline import MAX_ARGUMENTS, REFUSED, Callee, trampoline
from ostinato.native.workspace import BUSY, LONG_CALL, State, Workspace

pytestmark = pytest.mark.host

F32 = np.dtype(np.float32)


def _callee(artifact: Any, size: int = 1, flush: bool = False) -> Callee:
    code = objects.load(artifact.object_code, ("entry", "layout"))
    symbols = np.array([size], np.int64)
    arena = np.zeros(4 * size + 64, np.uint8)
    return Callee(code.address("entry"), symbols, artifact.constants, arena, code, flush)


@pytest.fixture
def add3(artifacts: types.SimpleNamespace) -> Any:
    spec = (F32, (3,))
    return trampoline(None).caller(_callee(artifacts.add(), 3), [spec, spec], [spec])


def _three() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.arange(3, dtype="f"), np.ones(3, "f"), np.zeros(3, "f")


def test_call_computes_and_returns_none(add3: Any) -> None:
    a, b, y = _three()
    assert add3(a, b, y) is None
    assert y.tolist() == [1.0, 2.0, 3.0]


def test_codes_of_the_compiled_function_come_back(add3: Any) -> None:
    a, b, y = _three()
    a[0] = -1
    assert add3(a, b, y) == 2
    assert y.tolist() == [0, 0, 0]


REFUSED_INPUTS = {
    "None": None,
    "list": [0.0, 1.0, 2.0],
    "str": "abc",
    "bytes": bytes(12),
    "type": np.ndarray,
    "object": object(),
    "memoryview": memoryview(np.zeros(3, "f")),
    "numpy scalar": np.float32(1),
    "float64": np.zeros(3),
    "int32": np.zeros(3, np.int32),
    "foreign byte order": np.zeros(3, ">f4"),
    "object array": np.zeros(3, object),
    "structured": np.zeros(3, [("x", "f")]),
    "datetime": np.zeros(3, "M8[s]"),
    "complex": np.zeros(3, "F"),
    "strings": np.zeros(3, "U1"),
    "too short": np.zeros(2, "f"),
    "too long": np.zeros(4, "f"),
    "rank 0": np.zeros((), "f"),
    "rank 2": np.zeros((3, 1), "f"),
    "strided": np.zeros(6, "f")[::2],
    "reversed": np.zeros(3, "f")[::-1],
    "misaligned": np.frombuffer(bytes(13), np.uint8)[1:].view("f"),
    "subclass": np.zeros(3, "f").view(np.recarray),
    "masked": np.ma.zeros(3, "f"),
}


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("name", REFUSED_INPUTS)
def test_anything_else_is_refused_without_running(add3: Any, name: str, position: int) -> None:
    arguments = list(_three())
    arguments[position] = REFUSED_INPUTS[name]  # type: ignore[call-overload]
    assert add3(*arguments) == REFUSED
    if position != 2:
        assert arguments[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("count", [0, 1, 2, 4, 50])
def test_another_number_of_arguments_is_refused(add3: Any, count: int) -> None:
    assert add3(*[np.zeros(3, "f") for _ in range(count)]) == REFUSED


def test_keywords_are_refused_by_python(add3: Any) -> None:
    with pytest.raises(TypeError):
        add3(a=1)


def test_read_only_inputs_are_fine_and_outputs_not(add3: Any) -> None:
    a, b, y = _three()
    a.flags.writeable = b.flags.writeable = False
    assert add3(a, b, y) is None
    y.flags.writeable = False
    assert add3(a, b, y) == REFUSED


def test_overlap_of_an_output_is_refused_to_the_byte(add3: Any) -> None:
    memory = np.zeros(32, "f")
    b = np.zeros(3, "f")
    assert add3(memory[0:3], b, memory[2:5]) == REFUSED
    assert add3(memory[2:5], b, memory[0:3]) == REFUSED
    assert add3(b, memory[4:7], memory[4:7]) == REFUSED
    assert add3(memory[0:3], b, memory[3:6]) is None
    assert add3(memory[3:6], b, memory[0:3]) is None
    # Two inputs may be one array.
    assert add3(memory[0:3], memory[0:3], memory[3:6]) is None


def test_overlap_of_two_outputs_is_refused(artifacts: types.SimpleNamespace) -> None:
    half, wide = np.dtype(np.float16), np.dtype(np.int64)
    specs = [(half, (1,)), (wide, ())]
    call = trampoline(None).caller(_callee(artifacts.pair()), specs, specs)
    a, b, memory = np.ones(1, half), np.array(7), np.zeros(16, np.uint8)
    d = memory[8:].view(wide).reshape(())
    assert call(a, b, memory[8:10].view(half), d) == REFUSED
    assert call(a, b, memory[6:8].view(half), d) is None
    assert d == 7


def test_empty_arrays_overlap_nothing(artifacts: types.SimpleNamespace) -> None:
    spec = (F32, (0,))
    call = trampoline(None).caller(_callee(artifacts.add(), 0), [spec, spec], [spec])
    memory = np.zeros(4, "f")
    assert call(memory[1:1], memory[2:2], memory[1:1]) is None


def test_arrays_of_any_shape_where_nothing_is_specified(artifacts: types.SimpleNamespace) -> None:
    callee = _callee(artifacts.add(), 3)
    call = trampoline(None).caller(callee, [None, (F32, (3,))], [None])
    a, b, y = _three()
    long, memory = np.arange(8, dtype="f").reshape(2, 4), np.zeros((3, 3), "f")
    assert call(long, b, memory) is None
    assert memory.reshape(-1).tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 0]
    assert call(a, b[:2], y) == call([0, 1, 2], b, y) == call(a, b, None) == REFUSED
    assert y.tolist() == [0, 0, 0]


def test_both_spellings_of_a_64_bit_integer_are_taken(artifacts: types.SimpleNamespace) -> None:
    half = (np.dtype(np.float16), (1,))
    specs = [half, (np.dtype(np.int64), ())]
    call = trampoline(None).caller(_callee(artifacts.pair()), specs, specs)
    for letter in "lq":
        d = np.zeros((), letter)
        assert call(np.ones(1, "e"), np.array(5, letter), np.zeros(1, "e"), d) is None
        assert d == 5
    unsigned = np.array(5, "L")
    assert call(np.ones(1, "e"), unsigned, np.zeros(1, "e"), np.zeros((), "l")) == REFUSED


def test_no_references_or_buffers_are_leaked(add3: Any) -> None:
    import sys

    a, b, y = _three()
    before = [sys.getrefcount(v) for v in (a, b, y, np.ndarray)]
    for _ in range(100):
        add3(a, b, y)
        add3(a, b, a)
        add3(a, b, None)
        add3(a[::2], b, y)
    assert [sys.getrefcount(v) for v in (a, b, y, np.ndarray)] == before
    # Resizing fails while a buffer is exported.
    storage = bytearray(12)
    array = np.frombuffer(storage, "f")
    add3(a, b, array)
    add3(a, array, array)
    del array
    storage.extend(b"x")


def test_no_exception_is_left_set(add3: Any) -> None:
    a, b, _ = _three()
    assert add3(a, b[::-1], None) == REFUSED
    assert add3(a, b, b"") == REFUSED
    # A left-over exception would surface as a SystemError or in the next call that checks.
    assert int("3") == 3
    assert [*map(len, ([],))] == [0]


def test_functions_own_all_they_use(artifacts: types.SimpleNamespace) -> None:
    spec = (F32, (1,))
    callee = _callee(artifacts.half(2.0))
    arrays = [np.array([4.0], "f"), np.zeros(1, "f")]
    call = trampoline(None).caller(callee, [spec], [spec])
    bound = trampoline(None).bound(callee, arrays)
    arena = weakref.ref(callee.arena)
    y = arrays[1]
    del callee, arrays
    gc.collect()
    assert bound() is None
    assert y[0] == 4.0
    assert call(np.array([6.0], "f"), y) is None
    assert y[0] == 5.0
    assert arena() is not None
    del call, bound
    gc.collect()
    assert arena() is None


def test_bound_call_returns_codes(artifacts: types.SimpleNamespace) -> None:
    a, b, y = _three()
    call = trampoline(None).bound(_callee(artifacts.add(), 3), [a, b, y])
    assert call() is None
    assert y.tolist() == [1.0, 2.0, 3.0]
    a[0] = -1
    assert call() == 2


def test_flush_denormals_holds_during_the_call_alone(artifacts: types.SimpleNamespace) -> None:
    tiny = np.array([1e-40], "f")
    spec = (F32, (1,))
    results = {}
    for flush in (False, True):
        callee, y = _callee(artifacts.half(), flush=flush), np.ones(1, "f")
        assert trampoline(None).caller(callee, [spec], [spec])(tiny, y) is None
        z = np.ones(1, "f")
        assert trampoline(None).bound(callee, [tiny, z])() is None
        assert y[0] == z[0]
        results[flush] = y[0]
        assert (tiny * np.float32(0.5))[0] > 0
    assert results[True] == 0
    assert results[False] > 0


def test_many_arguments_fit_and_more_are_refused(artifacts: types.SimpleNamespace) -> None:
    spec = (F32, (1,))
    callee = _callee(artifacts.half())
    call = trampoline(None).caller(callee, [spec] * (MAX_ARGUMENTS - 1), [spec])
    arrays = [np.zeros(1, "f") for _ in range(MAX_ARGUMENTS)]
    assert call(*arrays) is None
    assert call(*arrays[:-1], arrays[0]) == REFUSED
    with pytest.raises(RunError, match=str(MAX_ARGUMENTS)):
        trampoline(None).caller(callee, [spec] * MAX_ARGUMENTS, [spec])


def test_dtypes_without_a_buffer_format_are_refused(artifacts: types.SimpleNamespace) -> None:
    with pytest.raises(RunError, match="complex64"):
        trampoline(None).caller(_callee(artifacts.half()), [(np.dtype("F"), (1,))], [])


def _swapping(artifacts: types.SimpleNamespace, limit: int | None) -> tuple[Any, Workspace]:
    """sum = a + b, where sum and a are a state of three elements."""
    buffers = np.array([1, 2, 3], "f"), np.zeros(3, "f")
    workspace = Workspace([State(0, 2, buffers)], limit)
    callee = dataclasses.replace(_callee(artifacts.add(), 3), workspace=workspace)
    return callee, workspace


@pytest.mark.parametrize("limit", [None, 0, LONG_CALL])
def test_states_change_places(artifacts: types.SimpleNamespace, limit: int | None) -> None:
    callee, workspace = _swapping(artifacts, limit)
    b = np.ones(3, "f")
    call = trampoline(None).caller(callee, [(F32, (3,))], [])
    bound = trampoline(None).bound(callee, [b])
    first, second = workspace.states[0].buffers
    for step, run in enumerate([lambda: call(b), bound, bound, lambda: call(b)], 1):
        assert run() is None
        assert workspace.current(0) is (second if step % 2 else first)
        assert workspace.current(0).tolist() == [1 + step, 2 + step, 3 + step]
    workspace.swap()
    assert workspace.current(0) is second


def test_a_call_that_fails_or_is_refused_keeps_the_state(artifacts: types.SimpleNamespace) -> None:
    callee, workspace = _swapping(artifacts, 0)
    call = trampoline(None).caller(callee, [(F32, (3,))], [])
    assert call(np.ones(2, "f")) == REFUSED
    assert call() == REFUSED
    workspace.current(0)[0] = -1
    assert call(np.ones(3, "f")) == 2
    assert workspace.current(0) is workspace.states[0].buffers[0]
    workspace.current(0)[0] = 1
    assert call(np.ones(3, "f")) is None


def test_a_workspace_is_used_by_one_at_a_time(artifacts: types.SimpleNamespace) -> None:
    callee, workspace = _swapping(artifacts, None)
    bound = trampoline(None).bound(callee, [np.ones(3, "f")])
    with workspace.taken():
        assert bound() == BUSY
        with pytest.raises(StreamError, match="another thread"), workspace.taken():
            pass
        with pytest.raises(StreamError, match="another thread"):
            workspace.close()
    assert bound() is None
    workspace.close()
    assert bound() == BUSY
    with pytest.raises(StreamError):
        workspace.taken().__enter__()
    assert workspace.current(0).tolist() == [2, 3, 4]


def test_calls_note_how_long_they_took(artifacts: types.SimpleNamespace) -> None:
    """Whether the next one gives up the GIL at once is decided by the ticks of the last."""
    took = []
    for size in (3, 1_000_000):
        workspace = Workspace()
        callee = dataclasses.replace(_callee(artifacts.add(), size), workspace=workspace)
        bound = trampoline(None).bound(callee, [np.ones(size, "f") for _ in range(3)])
        least = LONG_CALL << 10
        for _ in range(5):
            assert bound() is None
            least = min(least, int(workspace.record[1]))
        took.append(least)
    assert 0 <= took[0] < LONG_CALL < took[1] < LONG_CALL << 10
