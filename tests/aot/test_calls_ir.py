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
from ostinato.sizes.dims import SPARE
from tests.aot import models
from tests.aot.caller import Caller, linked, needs_compiler, pointer, sizes_of, values_of

pytestmark = needs_compiler
F32 = np.float32


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def assert_same_bits(got: list[Any], expected: list[Any]) -> None:
    assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [
        (a.dtype, a.shape, a.tobytes()) for a in expected
    ]


RANGE = (
    "g (int64 n, float x) => (float[M] y) {"
    + """
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    i = Range (zero, n, one)
    f = Cast <to = 1> (i)
    y = Mul (f, x) }"""
)
POSITIONS = "g (bool[A, B] x) => (int64[R, M] y) { y = NonZero (x) }"
EXPRESSIONS = "g (float[T] x) => (float[U] y) { y = Concat <axis = 0> (x, x) }"
HALVES = "g (float16[N, 3] x, bfloat16[2] b, double[2] d, bool[2] m) => \
    (float16[N, 3] y, bfloat16[2] c, double[2] e, bool[2] n) \
    { y = Add (x, x) c = Identity (b) e = Exp (d) n = Not (m) }"
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "quantized": (models.quantized, {"x": np.arange(30, dtype=np.uint8).reshape(5, 6)}),
    "run-time sizes": (models.gru, {"x": random(7, 3, 5), "h_in": random(1, 3, 8)}),
    "no steps": (models.gru, {"x": random(0, 3, 5), "h_in": random(1, 3, 8)}),
    "generation": (
        models.greedy,
        {"prompt": np.array([[1, 2, 3], [4, 5, 6]]), "max_tokens": np.array(9)},
    ),
    "elements as sizes": (
        lambda: models.parsed(RANGE),
        {"n": np.array(6), "x": np.array(0.25, F32)},
    ),
    "sizes as expressions": (lambda: models.parsed(EXPRESSIONS), {"x": random(5)}),
    "types without a name in C": (
        lambda: models.parsed(HALVES),
        {
            "x": random(4, 3).astype(np.float16),
            "b": np.array([1, 2], onnx.helper.tensor_dtype_to_np_dtype(16)),
            "d": np.array([1.5, -2.5]),
            "m": np.array([True, False]),
        },
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_bits_of_the_session(name: str, tmp_path: Path) -> None:
    make, feeds = RUNS[name]
    library = compile_library(make(), Options(), "m", name)
    arrays = [np.array(feeds[t.name], order="C") for t in library.interface.inputs]
    known = sizes_of(library.interface.inputs, arrays) | values_of(library, arrays)
    caller = Caller(library, linked(library, tmp_path), known)
    assert_same_bits(caller.run(arrays), ostinato.InferenceSession(make()).run(None, feeds))
    caller.close()


def test_a_shape_that_only_the_run_tells_is_an_output(tmp_path: Path) -> None:
    library = compile_library(models.parsed(POSITIONS), Options(), "m", "positions")
    x = np.random.default_rng(1).integers(0, 2, (4, 5)).astype(bool)
    caller = Caller(library, linked(library, tmp_path), {"A": 4, "B": 5})
    y, shape = caller.run([x])
    (expected,) = ostinato.InferenceSession(models.parsed(POSITIONS)).run(None, {"x": x})
    assert y.shape == (2, 20) and shape.tolist() == list(expected.shape)
    np.testing.assert_array_equal(y.reshape(-1)[: expected.size], expected.reshape(-1))
    caller.close()


# Sizes from computed values that an input bounds, and that nothing bounds; lengths below 0.
COMPUTED = """g (float[N, 3] x, int64[N] lengths) => (float[M, 3] last, float[R] range) {
    most = ReduceMax <keepdims = 1> (lengths)
    start = Neg (most)
    end = Constant <value = int64[1] {9999}> ()
    axis = Constant <value = int64[1] {0}> ()
    last = Slice (x, start, end, axis)
    limit = Squeeze (most, axis)
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    counted = Range (zero, limit, one)
    range = Cast <to = 1> (counted) }"""


def test_sizes_follow_from_computed_values(tmp_path: Path) -> None:
    model = models.parsed(COMPUTED)
    library = compile_library(model, Options(), "m", "computed")
    caller = Caller(library, linked(library, tmp_path), {"N": 5, SPARE: 4096})
    session = ostinato.InferenceSession(model)
    for lengths in ([1, 3, 2, 0, 1], [9, 0, 0, 0, 0], [-1, -2, -1, -1, -1]):
        feeds = {"x": random(5, 3), "lengths": np.array(lengths)}
        last, range_, *shapes = caller.run([feeds["x"], feeds["lengths"]])
        for got, shape, expected in zip(
            (last, range_), shapes, session.run(None, feeds), strict=True
        ):
            assert shape.tolist() == list(expected.shape)
            assert got.reshape(-1)[: expected.size].tobytes() == expected.tobytes()
    x, far = random(5, 3), np.array([10_000] * 5)
    made = [np.zeros(10_000, F32) for _ in range(4)]
    places = map(pointer, (x, far, *made))
    code = caller.call("run", caller.object, ctypes.c_size_t(5), *places)
    assert code > 0 and "memory" in caller.text(code)
    caller.close()


def test_a_sequence_is_its_tensors(tmp_path: Path) -> None:
    model = models.parsed("""g (float[5, 2] x) => (float[5, 2] y, seq(float[A, 2]) pieces) {
        y = Neg (x)
        two = Constant <value = int64 {2}> ()
        pieces = SplitToSequence <axis = 0> (x, two) }""")
    library = compile_library(model, Options(), "m", "pieces")
    names = [tensor.name for tensor in library.interface.outputs]
    assert names == ["y", "pieces[0]", "pieces[1]", "pieces[2]"]
    caller = Caller(library, linked(library, tmp_path), {})
    y, pieces = ostinato.InferenceSession(model).run(None, {"x": random(5, 2)})
    assert_same_bits(caller.run([random(5, 2)]), [y, *pieces])
    caller.close()


@pytest.fixture(scope="module")
def gru(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    library = models.gru_library()
    caller = Caller(library, linked(library, tmp_path_factory.mktemp("gru")), {"T": 9, "N": 2})
    yield caller
    caller.close()


def test_steps_have_the_bits_of_a_stream(gru: Caller) -> None:
    stream = ostinato.InferenceSession(models.gru()).stream(models.GRU_STATES)
    gru.check(gru.call("reset", gru.object))
    for i, frames in enumerate((1, 3, 1, 9, 2)):
        x = random(frames, 2, 5, seed=i)
        assert_same_bits(gru.step([x]), stream.step({"x": x}))


def test_a_run_may_write_the_states_of_the_object(gru: Caller) -> None:
    x, h = random(3, 2, 5), random(1, 2, 8)
    y, last = gru.run([x, h])
    place = gru.state("h_in")
    given = [ctypes.c_size_t(3), ctypes.c_size_t(2), pointer(x), pointer(h), pointer(y), place]
    assert gru.call("run", gru.object, *given) == 0
    following = random(1, 2, 5)
    assert_same_bits(gru.step([following]), gru.run([following, last])[:1])


def test_a_run_leaves_the_states_of_the_object(gru: Caller) -> None:
    x, h = random(3, 2, 5), random(1, 2, 8)
    gru.check(gru.call("reset", gru.object))
    first = gru.step([x])
    gru.check(gru.call("reset", gru.object))
    gru.run([random(4, 1, 5), h[:, :1].copy()])
    assert_same_bits(gru.step([x]), first)


def test_tensors_without_elements_may_be_null(gru: Caller) -> None:
    """As `std::vector<float>().data()` is."""
    before = saved(gru)
    assert gru.call("step", gru.object, ctypes.c_size_t(0), None, None) == 0
    assert saved(gru) == before


# What a step is given in place of (object, T, x, y), and the error.
MISTAKES = {
    "no object": ({0: None}, "NULL"),
    "no input": ({2: None}, "NULL"),
    "no output": ({3: None}, "NULL"),
    "another object": ({0: "x"}, "OBJECT"),
    "an address between elements": ({2: "x+1"}, "ALIGNMENT"),
    "an output between elements": ({3: "y+2"}, "ALIGNMENT"),
    "more frames than there is memory for": ({1: 10_000}, "MEMORY"),
    "more frames than there are addresses for": ({1: 2**62}, "SIZE"),
    "a negative number of frames": ({1: 2**64 - 1}, "SIZE"),
    "an output over an input": ({3: "x"}, "OVERLAP"),
    "an output over the end of an input": ({3: "x+4"}, "OVERLAP"),
    "an output over the object": ({3: "object+-4"}, "OVERLAP"),
    "an output over memory of the object": ({3: "object+2048"}, "OVERLAP"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_codes_and_change_nothing(gru: Caller, name: str) -> None:
    places, kind = MISTAKES[name]
    x, y = random(300), np.full(400, 7, F32)
    addresses = {"x": x.ctypes.data, "y": y.ctypes.data, "object": gru.object.value or 0}
    arguments: list[Any] = [gru.object, 2, x.ctypes.data, y.ctypes.data]
    for place, value in places.items():
        if isinstance(value, str):
            base, _, more = value.partition("+")
            value = addresses[base] + int(more or 0)
        arguments[place] = value
    before = saved(gru)
    given = [ctypes.c_size_t(a) if i == 1 else ctypes.c_void_p(getattr(a, "value", a))
             for i, a in enumerate(arguments)]  # fmt: skip
    assert gru.call("step", *given) == error(kind)
    np.testing.assert_array_equal(x, random(300))
    assert (y == 7).all() and saved(gru) == before


def saved(caller: Caller) -> bytes:
    """The states of the object."""
    data = np.zeros(4096, np.uint8)
    caller.check(caller.call("save", caller.object, pointer(data), ctypes.c_size_t(data.nbytes)))
    return data.tobytes()


LAST = "g (float[N, T, 3] x) => (float[N, 3] y) { i = Constant <value_int = -1> () \
    y = Gather <axis = 1> (x, i) }"


def test_an_input_beyond_all_addresses_is_refused_though_no_output_is(tmp_path: Path) -> None:
    library = compile_library(models.parsed(LAST), Options(), "g", "g")
    caller = Caller(library, linked(library, tmp_path), {"N": 2, "T": 4})
    x = random(2, 4, 3)
    assert_same_bits(caller.run([x]), [x[:, -1]])
    y = np.full((2, 3), 7, F32)
    for frames in (2**61, 2**62, 2**63 - 1):
        sizes = ctypes.c_size_t(2), ctypes.c_size_t(frames)
        code = caller.call("run", caller.object, *sizes, pointer(x), pointer(y))
        assert code == error("SIZE")
    assert (y == 7).all()
    caller.close()


def test_a_check_of_the_model_is_a_code_with_its_text(tmp_path: Path) -> None:
    model = models.parsed(models.PICKER)
    library = compile_library(model, Options(), "picker", "picker", {"s": "t"})
    caller = Caller(library, linked(library, tmp_path), {})
    good, bad, y = np.array([1, 3]), np.array([1, 9]), np.zeros(2, np.int64)
    assert caller.call("step", caller.object, pointer(good), pointer(y)) == 0
    assert y.tolist() == [6, 8]
    before = saved(caller)
    code = caller.call("step", caller.object, pointer(bad), pointer(y))
    assert code > 0 and "Gather" in caller.text(code)
    assert saved(caller) == before
    session = ostinato.InferenceSession(model)
    with pytest.raises(ostinato.RunError) as raised:
        session.run(None, {"x": bad, "s": np.array(0)})
    assert caller.text(code) in str(raised.value)
    caller.close()


def test_every_code_has_a_text(gru: Caller) -> None:
    texts = [gru.text(code) for code in range(-9, 1)]
    assert len(set(texts)) == 10
    assert gru.text(-10) == gru.text(1) == gru.text(2**31 - 1) == "no code of this library"


def test_an_object_is_destroyed_once(tmp_path: Path) -> None:
    library = models.gru_library()
    code = linked(library, tmp_path)
    caller = Caller(library, code, {"T": 1, "N": 1})
    code.gru_destroy(None)
    memory = np.zeros(1 << 16, np.uint8)
    start = pointer(memory[-memory.ctypes.data % 64 :])
    made = ctypes.c_void_p()
    sizes = ctypes.c_size_t(1), ctypes.c_size_t(1)
    caller.check(code.gru_create_in(start, ctypes.c_size_t(60000), *sizes, ctypes.byref(made)))
    code.gru_destroy(made)
    x, y = random(1, 1, 5), np.zeros((1, 1, 1, 8), F32)
    assert code.gru_step(made, sizes[0], pointer(x), pointer(y)) == error("OBJECT")
    caller.close()
