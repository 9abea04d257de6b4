from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.aot.interface import error
from ostinato.aot.library import compile_library
from ostinato.options import Options
from tests.aot import models
from tests.aot.caller import Caller, linked, needs_compiler, pointer

pytestmark = needs_compiler
F32 = np.float32


@pytest.fixture(scope="module")
def gru(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    library = models.gru_library()
    caller = Caller(library, linked(library, tmp_path_factory.mktemp("gru")), {"T": 4, "N": 3})
    yield caller
    caller.close()


def frames(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4, 3, 5)).astype(F32)


def save(caller: Caller) -> np.ndarray:
    size = caller.call("save_bytes", caller.object)
    data = np.zeros(size // 8, np.int64)
    caller.check(caller.call("save", caller.object, pointer(data), ctypes.c_size_t(size)))
    return data


def load(caller: Caller, data: np.ndarray) -> int:
    return caller.call("load", caller.object, pointer(data), ctypes.c_size_t(data.nbytes))


def test_a_saved_state_goes_on_where_it_was(gru: Caller) -> None:
    gru.step([frames(0)])
    data = save(gru)
    expected = gru.step([frames(1)])[0].tobytes()
    assert gru.step([frames(1)])[0].tobytes() != expected
    gru.check(load(gru, data))
    assert gru.step([frames(1)])[0].tobytes() == expected


def test_another_build_of_the_model_reads_it(gru: Caller, tmp_path: Path) -> None:
    library = models.gru_library(name="other", target="x86-64-v3")
    other = Caller(library, linked(library, tmp_path), {"T": 9, "N": 3})
    gru.step([frames(2)])
    other.check(load(other, save(gru)))
    assert other.step([frames(3)])[0].tobytes() == gru.step([frames(3)])[0].tobytes()
    other.close()


def test_any_damage_is_an_error_and_changes_nothing(gru: Caller) -> None:
    gru.step([frames(4)])
    data = save(gru)
    for word in range(len(data)):
        for bit in (0, 31, 63):
            damaged = data.view(np.uint64).copy()
            damaged[word] ^= np.uint64(1 << bit)
            assert load(gru, damaged) == error("SAVED")
    assert load(gru, data[:-1]) == error("SAVED")
    assert save(gru).tobytes() == data.tobytes()


def test_states_of_others_are_refused(gru: Caller, tmp_path: Path) -> None:
    library = models.gru_library()
    narrow = Caller(library, linked(library, tmp_path), {"T": 4, "N": 2})
    assert load(gru, save(narrow)) == error("SAVED")
    assert load(narrow, save(gru)) == error("SAVED")
    narrow.close()


def test_memory_that_does_not_suffice_is_left_alone(gru: Caller) -> None:
    size = gru.call("save_bytes", gru.object)
    data = np.full(size, 9, np.uint8)
    assert gru.call("save", gru.object, pointer(data), ctypes.c_size_t(size - 1)) == error("MEMORY")
    place = ctypes.c_void_p(data.ctypes.data + 4)
    assert gru.call("save", gru.object, place, ctypes.c_size_t(size)) == error("ALIGNMENT")
    assert gru.call("save", gru.object, None, ctypes.c_size_t(size)) == error("NULL")
    assert (data == 9).all()


def state(caller: Caller, name: str) -> Any:
    function = caller._linked[f"{caller.library.name}_state_{name}"]
    function.restype = ctypes.c_void_p
    return function(caller.object)


def test_states_may_be_read_and_set(gru: Caller) -> None:
    session = ostinato.InferenceSession(models.gru())
    h = np.random.default_rng(5).standard_normal((1, 3, 8)).astype(F32)
    ctypes.memmove(state(gru, "h_in"), h.ctypes.data, h.nbytes)
    y, following = session.run(None, {"x": frames(6), "h_in": h})
    assert gru.step([frames(6)])[0].tobytes() == y.tobytes()
    assert ctypes.string_at(state(gru, "h_in"), h.nbytes) == following.tobytes()


CACHE = """cache (float[N, 6, 3] cache, float[N, 1, 3] x, int64[1] p, float[N, 3] h)
    => (float[N, 6] y, float[N, 6, 3] next, float[N, 3] g) {
    zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()
    q = Unsqueeze(p, one)  c = Transpose<perm = [1, 0, 2]>(cache)
    r = Transpose<perm = [1, 0, 2]>(x)  d = ScatterND(c, q, r)
    next = Transpose<perm = [1, 0, 2]>(d)  k = Unsqueeze(h, one)  a = Mul(next, k)
    two = Constant<value_ints = [2]>()  y = ReduceSum<keepdims = 0>(a, two)
    f = Squeeze(x, one)  g = Add(h, f) }"""


def test_a_state_of_which_rows_are_replaced_has_one_buffer(tmp_path: Path) -> None:
    model, states = models.parsed(CACHE), {"cache": "next", "h": "g"}
    library = compile_library(model, Options(), "cache", "cache", states)
    assert [state.buffers for state in library.interface.states] == [1, 2]
    caller = Caller(library, linked(library, tmp_path), {"N": 2})
    stream = ostinato.InferenceSession(model).stream(states, sizes={"N": 2})

    def both(number: int) -> None:
        x = np.random.default_rng(number).standard_normal((2, 1, 3)).astype(F32)
        feeds = {"x": x, "p": np.array([number])}
        assert caller.step([*feeds.values()])[0].tobytes() == stream.step(feeds)[0].tobytes()

    both(0)
    saved, kept = save(caller), {name: stream.state[name] for name in states}
    both(1)
    with pytest.raises(AssertionError, match="out of range"):
        caller.step([np.ones((2, 1, 3), F32), np.array([6])])
    both(2)
    caller.check(load(caller, saved))
    stream.state.update(kept)
    both(5)
    caller.close()


def test_states_begin_with_the_given_value_on_every_row(tmp_path: Path) -> None:
    model = models.parsed("g (float[N, 3] x, float[N, 3] s) => (float[N, 3] y, float[N, 3] t) "
                          "{ y = Add (x, s)  t = Add (s, x) }")  # fmt: skip
    initial = {"s": np.array([[1, 2, 3]], F32)}
    library = compile_library(model, Options(), "counter", "counter", {"s": "t"}, initial)
    caller = Caller(library, linked(library, tmp_path), {"N": 2})
    ones = np.ones((2, 3), F32)
    steps = [caller.step([ones])[0] for _ in range(3)]
    np.testing.assert_array_equal(steps[2], [[4, 5, 6]] * 2)
    caller.check(caller.call("reset", caller.object))
    np.testing.assert_array_equal(caller.step([ones])[0], [[2, 3, 4]] * 2)
    caller.close()


def test_states_that_have_a_value_in_the_model_begin_with_it(tmp_path: Path) -> None:
    model = models.parsed("g (float[2] x, float[2] s) => (float[2] y, float[2] t) "
                          "{ y = Add (x, s)  t = Add (s, x) }")  # fmt: skip
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([5, 6], F32), "s"))
    library = compile_library(model, Options(), "counter", "counter", {"s": "t"})
    caller = Caller(library, linked(library, tmp_path), {})
    assert caller.step([np.ones(2, F32)])[0].tolist() == [6, 7]
    caller.close()


@pytest.fixture
def decoder(tmp_path: Path) -> Iterator[Caller]:
    library = models.decoder_library()
    sizes = {"N": 2, "T": 3, "capacity of P": 6}
    caller = Caller(library, linked(library, tmp_path), sizes)
    yield caller
    caller.close()


def tokens(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 20, (2, count))


def rows(caller: Caller) -> Any:
    return ctypes.c_int64.from_address(state(caller, "length_of_P"))


def test_rows_are_added_until_there_is_no_room(decoder: Caller) -> None:
    stream = ostinato.InferenceSession(models.DECODER).stream(models.DECODER_STATES)
    for count in (1, 3, 1):
        (expected,) = stream.step({"token": tokens(count)})
        assert decoder.step([tokens(count)])[0].tobytes() == expected.tobytes()
    before, logits = save(decoder), np.full((2, 2, 20), 7, F32)
    given = decoder.object, ctypes.c_size_t(2), pointer(tokens(2)), pointer(logits)
    code = decoder.call("step", *given)
    assert {"DECODER_FULL_P": code} == decoder.interface.full
    assert "rows of axis 'P' exceed" in decoder.text(code)
    assert (logits == 7).all() and save(decoder).tobytes() == before.tobytes()
    (expected,) = stream.step({"token": tokens(1)})
    assert decoder.step([tokens(1)])[0].tobytes() == expected.tobytes()


def test_rows_are_taken_back_and_saved(decoder: Caller) -> None:
    expected = [decoder.step([tokens(count)])[0].tobytes() for count in (1, 2)]
    assert rows(decoder).value == 3
    rows(decoder).value = 1
    assert decoder.step([tokens(2)])[0].tobytes() == expected[1]
    data = save(decoder)
    following = decoder.step([tokens(3)])[0].tobytes()
    decoder.check(decoder.call("reset", decoder.object))
    assert rows(decoder).value == 0
    assert decoder.step([tokens(1)])[0].tobytes() == expected[0]
    decoder.check(load(decoder, data))
    assert decoder.step([tokens(3)])[0].tobytes() == following


def test_rows_are_read_and_written(decoder: Caller) -> None:
    """A state that another stream has grown, and that begins with rows."""
    stream = ostinato.InferenceSession(models.DECODER).stream(models.DECODER_STATES)
    stream.step({"token": tokens(3)})
    for name, following in models.DECODER_STATES.items():
        past = stream.state[name]
        function = decoder._linked[f"decoder_rows_{following}"]
        function.restype = ctypes.c_void_p
        (tensor,) = (t for t in decoder.interface.outputs if t.name == following)
        shape = [{"N": 2, "capacity of P": 6}.get(n, n) for n in tensor.shape]
        address = ctypes.cast(function(decoder.object), ctypes.POINTER(ctypes.c_float))
        memory = np.ctypeslib.as_array(address, shape)
        memory[tuple(slice(n) for n in past.shape)] = past
    rows(decoder).value = 3
    (expected,) = stream.step({"token": tokens(2)})
    assert decoder.step([tokens(2)])[0].tobytes() == expected.tobytes()
    assert (
        stream.state[name].tobytes()
        == memory[tuple(map(slice, stream.state[name].shape))].tobytes()
    )


def test_a_number_of_rows_out_of_range_reads_and_writes_what_is_there(decoder: Caller) -> None:
    for value in (-1, 7, 2**62, -(2**63)):
        rows(decoder).value = value
        given = decoder.object, ctypes.c_size_t(1), pointer(tokens(1))
        code = decoder.call("step", *given, pointer(np.empty((2, 1, 20), F32)))
        assert code == (0 if value < 0 else decoder.interface.full["DECODER_FULL_P"])


def test_a_capacity_that_no_memory_has_is_refused(decoder: Caller) -> None:
    for capacity in (2**62, 2**64 - 1, 2**40):
        sizes = [ctypes.c_size_t(n) for n in (2, 3, capacity)]
        made = ctypes.c_void_p()
        assert decoder.call("create", *sizes, ctypes.byref(made)) != 0 and not made


FRONT = """front (float[1, T, 4] x, float[1, N, 4] past, float[1, 1, M] mask)
    => (float[1, T, 4] y, float[1, M, 4] present) {
    present = Concat <axis = 1> (x, past)
    keys = Transpose <perm = [0, 2, 1]> (present)
    scores = MatMul (x, keys)
    masked = Add (scores, mask)
    y = MatMul (masked, present) }"""


def test_rows_in_front_and_a_mask_as_long_as_they_are(tmp_path: Path) -> None:
    model, states = models.parsed(FRONT), {"past": "present"}
    empty = {"past": np.zeros((1, 0, 4), F32)}
    library = compile_library(model, Options(), "front", "front", states, empty)
    sizes = {"T": 3, "capacity of N": 8, "room of mask": 8}
    caller = Caller(library, linked(library, tmp_path), sizes)
    stream, total = ostinato.InferenceSession(model).stream(states), 0
    rng = np.random.default_rng(8)
    for count in (1, 3, 2):
        total += count
        x, mask = (rng.standard_normal((1, n, m)).astype(F32) for n, m in ((count, 4), (1, 8)))
        (y,) = caller.step([x, mask, np.array(total)])
        (expected,) = stream.step({"x": x, "mask": np.array(mask[..., :total])})
        assert y.tobytes() == expected.tobytes()
    caller.close()
