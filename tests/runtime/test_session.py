from __future__ import annotations

import sys
import threading
import tracemalloc
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.codegen.artifact import Argument
from ostinato.errors import InputError, OptionError, RunError, ShapeError
from ostinato.stages.stage import CompiledModel, NativeStage
from tests.golden import parse

Make = Callable[..., ostinato.InferenceSession]


@pytest.fixture
def add(session: Make, artifacts: types.SimpleNamespace) -> ostinato.InferenceSession:
    return session(artifacts.add())


@pytest.fixture
def half(session: Make, artifacts: types.SimpleNamespace) -> ostinato.InferenceSession:
    return session(artifacts.half(1.0))


def _feeds(size: int = 3) -> dict[str, np.ndarray]:
    return {"a": np.arange(size, dtype="f"), "b": np.ones(size, "f")}


# ---- declarations


def test_inputs_and_outputs_are_described_as_in_onnxruntime(add: Any) -> None:
    assert [(i.name, i.type, i.shape) for i in add.get_inputs()] == [
        ("a", "tensor(float)", ["T"]),
        ("b", "tensor(float)", ["T"]),
    ]
    assert [(o.name, o.type, o.shape) for o in add.get_outputs()] == [
        ("sum", "tensor(float)", ["T"])
    ]


def test_unknown_options_are_refused_with_the_valid_ones(compiler: Any) -> None:
    with pytest.raises(OptionError, match=r"'thread'.*threads, precision, disable"):
        ostinato.InferenceSession(b"", thread=1)
    with pytest.raises(OptionError, match="disable=5: expected a tuple of pass names"):
        ostinato.InferenceSession(b"", disable=5)
    with pytest.raises(OptionError, match="threads=0"):
        ostinato.InferenceSession(b"", threads=0)
    with pytest.raises(OptionError, match="expected an Options, got dict"):
        ostinato.InferenceSession(b"", {"threads": 1})  # type: ignore[arg-type]


def test_code_for_another_machine_is_not_run_by_a_session(compiler: Any) -> None:
    with pytest.raises(OptionError, match=r"target='wasm': .* cannot be run here .*ostinato build"):
        ostinato.InferenceSession(b"", target="wasm")


def test_overrides_replace_fields_of_options(
    compiler: Any, artifacts: types.SimpleNamespace
) -> None:
    compiler.model = artifacts.single(artifacts.half())
    options = ostinato.Options(disable=("fuse",), cache_dir=None)
    ostinato.InferenceSession(b"", options, specialize={"T": 4})
    assert compiler.calls[0][1] == ostinato.Options(
        disable=("fuse",), cache_dir=None, specialize={"T": 4}
    )


# ---- run


def test_run_returns_fresh_arrays_of_the_caller(add: Any) -> None:
    feeds = _feeds()
    (first,) = add.run(None, feeds)
    (second,) = add.run(None, feeds)
    assert first.tolist() == second.tolist() == [1, 2, 3]
    assert not np.shares_memory(first, second)
    assert first.flags.owndata and first.flags.c_contiguous and first.flags.writeable
    first[:] = 0
    assert add.run(None, feeds)[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("names", [None, [], ["sum"], ("sum",)])
def test_run_selects_outputs(add: Any, names: Any) -> None:
    assert [v.tolist() for v in add.run(names, _feeds())] == [[1, 2, 3]]


def test_run_selects_in_the_order_asked_for(
    session: Make, artifacts: types.SimpleNamespace
) -> None:
    pair = session(artifacts.pair())
    feeds = {"b": np.array(7), "a": np.array([2.5], "e")}
    assert [v.item() for v in pair.run(None, feeds)] == [2.5, 7]
    assert [v.item() for v in pair.run(["d", "c", "d"], feeds)] == [7, 2.5, 7]
    assert [v.shape for v in pair.run(None, feeds)] == [(1,), ()]


@pytest.mark.parametrize("sizes", [[1, 2, 1000, 3, 2], [0, 5, 0], [4096, 1, 0]])
def test_every_length_runs_and_zero_too(add: Any, sizes: list[int]) -> None:
    for size in sizes:
        (y,) = add.run(None, _feeds(size))
        assert y.tolist() == (np.arange(size) + 1).tolist()


def test_strided_inputs_are_copied_and_nothing_else_is_checked_again(
    add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = {name: np.repeat(array, 2)[::2] for name, array in _feeds(5).items()}
    assert not any(array.flags.c_contiguous for array in feeds.values())
    add.run(None, _feeds(5))
    with monkeypatch.context() as patched:
        patched.setattr(add, "_run_checked", None)
        assert add.run(None, feeds)[0].tolist() == (np.arange(5) + 1).tolist()
        (target,) = add.run(None, feeds, {"sum": np.zeros(5, "f")})
        assert target.tolist() == (np.arange(5) + 1).tolist()
    for wrong in ("a", "b"):
        with pytest.raises(ostinato.InputError, match="expected float32"):
            add.run(None, {**feeds, wrong: feeds[wrong].astype("d")[::1]})


def test_sizes_that_came_twice_are_not_checked_again(
    add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (5, 1, 0, 1, 0):
        add.run(None, _feeds(size))
    with monkeypatch.context() as patched:
        patched.setattr(add, "_run_checked", None)
        for size in (5, 0, 1, 5):
            target = np.zeros(size, "f")
            assert add.run(None, _feeds(size), {"sum": target})[0] is target
            assert target.tolist() == add.run(["sum"], _feeds(size))[0].tolist()
            assert target.tolist() == (np.arange(size) + 1).tolist()
    add.run(None, _feeds(1))
    with pytest.raises(ostinato.InputError, match="expected float32"):
        add.run(None, {name: array.astype("d") for name, array in _feeds(5).items()})
    with pytest.raises(ostinato.InputError, match="expected"):
        add.run(None, _feeds(5), {"sum": np.zeros(1, "f")})
    assert add.run(None, _feeds(7))[0].shape == (7,)


def test_more_lengths_than_plans_are_kept(add: Any) -> None:
    from ostinato.native.function import MAX_PLANS

    for size in [*range(14, 14 + 3 * MAX_PLANS), *range(14, 20)]:
        assert add.run(None, _feeds(size))[0].shape == (size,)
    assert len(add._native._plans) <= MAX_PLANS


def test_strided_read_only_and_subclass_inputs_are_fine(add: Any) -> None:
    wide = np.arange(6, dtype="f")
    for a in (wide[::2], wide[4::-2][::-1], wide[::2].copy().view(np.recarray)):
        a.flags.writeable = False
        assert add.run(None, {"a": a, "b": np.ones(3, "f")})[0].tolist() == [1, 3, 5]


def test_masked_elements_are_refused_in_every_call(add: Any) -> None:
    masked = np.ma.masked_array(np.arange(3, dtype="f"), mask=[0, 1, 0])
    ones = np.ones(3, "f")
    for _ in range(2):
        assert add.run(None, {"a": np.ma.masked_array(ones), "b": ones})[0].tolist() == [2, 2, 2]
        with pytest.raises(InputError, match=r"'a': .* 1 elements are masked: pass .filled"):
            add.run(None, {"a": masked, "b": ones})
    with pytest.raises(InputError, match=r"'b': .* masked"):
        add.bind({"a": ones, "b": masked})


def test_masked_records_are_refused_for_their_type(add: Any) -> None:
    records = np.ma.masked_array(np.zeros(3, "?,?"), mask=True)
    feed = {"a": np.ones(3, "f"), "b": records}
    for call in (lambda: add.run(None, feed), lambda: add.bind(feed)):
        with pytest.raises(InputError, match="float32"):
            call()


def test_misaligned_inputs_are_fine(add: Any) -> None:
    a = np.frombuffer(b"\0" + np.arange(3, dtype="f").tobytes(), np.uint8)[1:].view("f")
    assert not a.flags.aligned
    assert add.run(None, {"a": a, "b": np.ones(3, "f")})[0].tolist() == [1, 2, 3]


def test_one_array_may_feed_two_inputs(add: Any) -> None:
    a = np.arange(3, dtype="f")
    assert add.run(None, {"a": a, "b": a})[0].tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    "value", [[0, 1, 2], (0.0, 1.0, 2.0), [0, 1.0, 2], [np.float64(0), np.int8(1), 2.0]]
)
def test_python_numbers_become_the_declared_dtype(add: Any, value: Any) -> None:
    assert add.run(None, {"a": value, "b": np.ones(3, "f")})[0].tolist() == [1, 2, 3]


def test_objects_that_export_arrays_are_fine(add: Any) -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.arange(3, dtype="f")

    for a in (Tensor(), memoryview(np.arange(3, dtype="f"))):
        assert add.run(None, {"a": a, "b": np.ones(3, "f")})[0].tolist() == [1, 2, 3]


def test_64_bit_integers_of_either_spelling_run(
    session: Make, artifacts: types.SimpleNamespace
) -> None:
    pair = session(artifacts.pair())
    for value in (np.array(7, "q"), np.array(7, "l"), np.int64(7), np.longlong(7), 7):
        assert pair.run(None, {"a": np.ones(1, "e"), "b": value})[1] == 7


class Hostile:
    """Raises from every way NumPy has of looking at it."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise ValueError("no")


def _self_containing() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


F32_3 = r"float32\[T\]"
WRONG = {
    "float64": (np.zeros(3), rf"input 'a': expected {F32_3}, got float64\[3\]"),
    "int": (np.zeros(3, int), rf"input 'a': expected {F32_3}, got int64\[3\]"),
    "bool": (np.zeros(3, bool), rf"input 'a': expected {F32_3}, got bool\[3\]"),
    "big-endian": (np.zeros(3, ">f4"), r"got float32\[3\] \(foreign byte order\)"),
    "rank 0": (np.zeros((), "f"), r"got float32\[\]"),
    "rank 2": (np.zeros((3, 1), "f"), r"got float32\[3, 1\]"),
    "a scalar": (np.float32(1), r"got float32\[\]"),
    "a typed scalar": (np.float64(1), r"got float64\[\]"),
    "a number": (1.5, r"got float32\[\]"),
    "None": (None, "got NoneType"),
    "str": ("abc", "got str"),
    "bytes": (b"abc", r"got bytes24\[\]"),
    "dict": ({}, "got dict"),
    "set": ({1}, "got set"),
    "object": (object(), "got object"),
    "object array": (np.array([None, 1, 2]), r"got object\[3\]"),
    "hostile": (Hostile(), r"got Hostile \(no\)"),
    "a ragged list": ([[1], [1, 2], 3], "got list"),
    "a list of str": (["a", "b", "c"], "got list of str"),
    "a list of bool": ([True, False, True], "got list of bool"),
    "a list of complex": ([1j, 2j, 3j], "got list of complex128"),
    "a list of None": ([None, None, None], "got list of object"),
    "a list in itself": (_self_containing(), "got list"),
    "huge int": ([10**400] * 3, "got list"),
    "class": (np.ndarray, "got type"),
    "generator": ((x for x in [1.0]), "got generator"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_ill_typed_input_is_named_with_expected_and_got(add: Any, name: str) -> None:
    value, message = WRONG[name]
    add.run(None, _feeds())
    with pytest.raises(InputError, match=message):
        add.run(None, {"a": value, "b": np.ones(3, "f")})


def test_lists_never_lose_a_value(session: Make, artifacts: types.SimpleNamespace) -> None:
    pair = session(artifacts.pair())
    for value in (1.5, [2**63], 2**64, True, [np.array([2**63], np.uint64)]):
        with pytest.raises(InputError, match="input 'b'"):
            pair.run(None, {"a": [1.0], "b": value})


def test_dimensions_that_share_a_name_must_agree(add: Any) -> None:
    with pytest.raises(InputError, match=r"'b'.*got float32\[4\], but T is 3 in input 'a'"):
        add.run(None, {"a": np.zeros(3, "f"), "b": np.zeros(4, "f")})


def test_fixed_dimensions_must_agree(session: Make, artifacts: types.SimpleNamespace) -> None:
    rows = session(artifacts.half_dynamic(3))
    with pytest.raises(
        InputError, match=r"input 'x': expected float32\[T, 3\], got float32\[2, 4\]"
    ):
        rows.run(None, {"x": np.zeros((2, 4), "f")})
    assert rows.run(None, {"x": np.zeros((2, 3), "f")})[0].shape == (2,)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "missing input 'a', 'b'"),
        ({"a": [0.0]}, "missing input 'b'"),
        ({"a": [0.0], "b": [0.0], "c": [0.0]}, "unknown input 'c': the model has a, b"),
        ({"a": [0.0], "c": [0.0]}, "unknown input 'c'"),
        ({"a": [0.0], 1: [0.0]}, "unknown input 1"),
        (None, "expected a dict of name to array, got NoneType"),
        ([[0.0], [0.0]], "got list"),
        (np.zeros(3), "got ndarray"),
        ("ab", "got str"),
    ],
)
def test_feeds_that_are_no_complete_dict_are_refused(add: Any, feeds: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        add.run(None, feeds)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nope"], "unknown output 'nope': the model has sum"),
        ("sum", "expected a list of names or None, got str"),
        (5, "got int"),
        ([None], "unknown output None"),
        ([np.zeros(3)], "unknown output"),
        (np.zeros(3), "got ndarray"),
        ({"sum"}, "got set"),
    ],
)
def test_output_names_are_checked(add: Any, names: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        add.run(names, _feeds())


def test_failed_checks_of_the_code_are_run_errors_by_their_message(add: Any) -> None:
    feeds = _feeds()
    feeds["a"][0] = -1
    for _ in range(2):
        with pytest.raises(RunError, match=r"node 'sum' \(Add\): a\[0\] is negative"):
            add.run(None, feeds)
    assert add.run(None, _feeds())[0].tolist() == [1, 2, 3]


def test_failed_checks_of_the_layout_are_shape_errors(add: Any) -> None:
    for _ in range(2):
        with pytest.raises(ShapeError, match="T must not be 13"):
            add.run(None, _feeds(13))
    assert add.run(None, _feeds())[0].tolist() == [1, 2, 3]


def test_sizes_beyond_memory_are_refused_before_allocating(
    add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = np.broadcast_to(np.float32(1), (1 << 50,))
    with pytest.raises(RunError, match=r"need .* GiB .* available"):
        add.run(None, {"a": huge, "b": huge})


def test_small_floats_run_though_python_cannot_describe_their_buffers(
    session: Make, artifacts: types.SimpleNamespace
) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    pair = session(artifacts.pair("bfloat16"))
    a = np.array([1.5], ml_dtypes.bfloat16)
    for _ in range(2):
        c, _d = pair.run(None, {"a": a, "b": 7})
        assert c.dtype == a.dtype and c[0] == 1.5
        with pytest.raises(InputError, match=r"expected bfloat16.*got uint16"):
            pair.run(None, {"a": a.view(np.uint16), "b": 7})
    call = pair.bind({"a": a, "b": np.array(3)})
    call()
    assert call.outputs["c"][0] == 1.5
    assert pair.get_inputs()[0].type == "tensor(bfloat16)"


# ---- run with out


def test_out_is_written_and_returned(add: Any) -> None:
    y = np.zeros(3, "f")
    for _ in range(3):
        y[:] = 0
        results = add.run(None, _feeds(), out={"sum": y})
        assert results[0] is y
        assert y.tolist() == [1, 2, 3]


def test_some_outputs_may_be_given(session: Make, artifacts: types.SimpleNamespace) -> None:
    pair = session(artifacts.pair())
    d = np.zeros((), np.int64)
    c, other = pair.run(None, {"a": [1.5], "b": 7}, out={"d": d})
    assert other is d and d == 7 and c.tolist() == [1.5]
    assert pair.run(["c"], {"a": [2.5], "b": 8}, out={"d": d})[0].tolist() == [2.5]
    assert d == 8


def test_an_input_that_aliases_out_is_read_first(add: Any) -> None:
    memory = np.arange(8, dtype="f")
    for start in (0, 1, 2):
        memory[:] = np.arange(8)
        add.run(None, {"a": memory[:4], "b": np.ones(4, "f")}, out={"sum": memory[start:][:4]})
        assert memory[start:][:4].tolist() == [1, 2, 3, 4]
    memory[:] = np.arange(8)
    add.run(None, {"a": memory[::2], "b": memory[:4]}, out={"sum": memory[2:6]})
    assert memory[2:6].tolist() == [0, 3, 6, 9]


OUT = {
    "dtype": (np.zeros(3), r"output 'sum': expected float32\[T\], got float64\[3\]"),
    "shape": (np.zeros(4, "f"), r"output 'sum': expected float32\[3\], got float32\[4\]"),
    "rank": (np.zeros((3, 1), "f"), r"expected float32\[3\], got float32\[3, 1\]"),
    "strided": (np.zeros(6, "f")[::2], "not C-contiguous"),
    "list": ([0, 0, 0], "got list"),
    "None": (None, "got NoneType"),
    "memoryview": (memoryview(np.zeros(3, "f")), "got memoryview"),
    "foreign": (np.zeros(3, ">f4"), "foreign byte order"),
    "read-only": (np.broadcast_to(np.float32(0), (3,)).copy(), "read-only"),
    "misaligned": (np.zeros(13, np.uint8)[1:].view("f"), "not aligned"),
}
OUT["read-only"][0].flags.writeable = False


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", OUT)
def test_out_must_be_exactly_right(add: Any, name: str, warm: bool) -> None:
    value, message = OUT[name]
    if warm:
        add.run(None, _feeds())
    with pytest.raises(InputError, match=message):
        add.run(None, _feeds(), out={"sum": value})


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"nope": np.zeros(3, "f")}, "unknown output 'nope'"),
        ([np.zeros(3, "f")], "out: expected a dict"),
        (np.zeros(3, "f"), "out: expected a dict"),
    ],
)
def test_out_must_be_a_dict_of_outputs(add: Any, out: Any, message: str) -> None:
    add.run(None, _feeds())
    with pytest.raises(InputError, match=message):
        add.run(None, _feeds(), out=out)


def test_outputs_must_not_overlap_each_other(
    session: Make, artifacts: types.SimpleNamespace
) -> None:
    pair = session(artifacts.pair())
    memory = np.zeros(8, np.uint8)
    out = {"c": memory[:2].view("e"), "d": memory.view("l").reshape(())}
    for _ in range(2):
        with pytest.raises(InputError, match="output 'd' overlaps another output"):
            pair.run(None, {"a": [1.5], "b": 7}, out=out)
        with pytest.raises(InputError, match="output 'd' overlaps another output"):
            pair.bind({"a": np.ones(1, "e"), "b": np.array(7)}, out)


# ---- bind


def test_bound_call_reads_and_writes_in_place(add: Any) -> None:
    feeds, y = _feeds(), np.zeros(3, "f")
    call = add.bind(feeds, {"sum": y})
    assert call.outputs["sum"] is y
    assert call() is None
    assert y.tolist() == [1, 2, 3]
    feeds["a"][:] = 10
    call()
    assert y.tolist() == [11, 11, 11]
    feeds["a"][0] = -1
    with pytest.raises(RunError, match="negative"):
        call()


def test_bind_allocates_missing_outputs(add: Any) -> None:
    call = add.bind(_feeds())
    call()
    assert call.outputs["sum"].tolist() == [1, 2, 3]


def test_bound_calls_survive_other_shapes_and_the_session(
    session: Make, artifacts: types.SimpleNamespace
) -> None:
    import gc

    add = session(artifacts.add())
    small = add.bind(_feeds(4))
    large = add.bind(_feeds(50_000))
    add.run(None, _feeds(100_000))
    del add
    gc.collect()
    small()
    large()
    assert small.outputs["sum"].tolist() == [1, 2, 3, 4]
    assert large.outputs["sum"][-1] == 50_000


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(6, "f")[::2], "input 'a': .* not C-contiguous"),
        (np.zeros(3), r"input 'a': expected float32\[T\], got float64\[3\]"),
        ([0, 1, 2], "input 'a': .*got list"),
        (None, "input 'a': .*got NoneType"),
        (np.float32(1), "input 'a': .*got float32; pass a NumPy array, whose memory is used"),
        (np.zeros(4, "f"), "input 'b': .*T is 4 in input 'a'"),
        (np.zeros((3, 1), "f"), "input 'a'"),
    ],
)
def test_bind_refuses_what_it_cannot_read_in_place(add: Any, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        add.bind({"a": value, "b": np.ones(3, "f")})


def test_bind_refuses_values_that_have_no_array() -> None:
    model = parse("g (seq(float[3]) x) => (int64 n) { n = SequenceLength (x) }")
    with pytest.raises(InputError, match=r"input 'x': .*got list; only arrays .*call `run`"):
        ostinato.InferenceSession(model, cache_dir=None).bind({"x": [np.ones(3, "f")]})


@pytest.mark.parametrize("name", OUT)
def test_bind_refuses_outputs_it_cannot_write_in_place(add: Any, name: str) -> None:
    with pytest.raises(InputError, match="output 'sum'"):
        add.bind(_feeds(), {"sum": OUT[name][0]})


def test_bind_refuses_overlap_of_an_output_with_an_input(add: Any) -> None:
    memory = np.zeros(8, "f")
    with pytest.raises(InputError, match="output 'sum' overlaps an input"):
        add.bind({"a": memory[:3], "b": np.ones(3, "f")}, {"sum": memory[2:5]})


@pytest.mark.parametrize("inputs", [None, [], {"a": np.zeros(3, "f")}, {"x": 1}])
def test_bind_refuses_incomplete_inputs(add: Any, inputs: Any) -> None:
    with pytest.raises(InputError):
        add.bind(inputs)


# ---- the rest of the contract


def test_options_flush_denormals(session: Make, artifacts: types.SimpleNamespace) -> None:
    tiny = {"x": np.array([1e-40], "f")}
    exact = session(artifacts.half())
    assert exact.run(None, tiny)[0][0] > 0
    flushing = session(artifacts.half(), flush_denormals=True)
    assert flushing.run(None, tiny)[0][0] == 0
    call = flushing.bind(tiny)
    call()
    assert call.outputs["y"][0] == 0


def test_report_merges_stages_and_is_the_callers(add: Any) -> None:
    add.run(None, _feeds(100))
    report = add.report()
    assert report["kernels"] == [{"name": "k"}]
    assert report["fallback"] == report["refusals"] == []
    assert report["arena_bytes"] == 400
    assert report["constant_bytes"] == 64
    assert report["from_cache"] is False
    report["kernels"].clear()
    assert add.report()["kernels"] == [{"name": "k"}]


def test_native_stages_pass_values_by_name(session: Make, artifacts: types.SimpleNamespace) -> None:
    first = artifacts.add()
    second = artifacts.half_dynamic(1)
    x = Argument("sum", "float32", ("T",))
    flat = type(second)(**{**second.__dict__, "inputs": (x,)})
    model = CompiledModel(first.inputs, (*flat.outputs, x), (NativeStage(first), NativeStage(flat)))
    chain = session(model)
    for size in (3, 5, 0):
        y, total = chain.run(None, _feeds(size))
        assert y.tolist() == ((np.arange(size) + 1) / 2).tolist()
        assert total.tolist() == (np.arange(size) + 1).tolist()
    given = np.zeros(3, "f")
    assert chain.run(["y"], _feeds(), out={"y": given})[0] is given
    assert given.tolist() == [0.5, 1, 1.5]
    call = chain.bind(_feeds())
    call()
    assert call.outputs["y"].tolist() == [0.5, 1, 1.5]


def test_a_model_of_no_stages_copies_inputs_and_constants(session: Make) -> None:
    x = Argument("x", "float32", ("T",))
    c = Argument("c", "int64", (2,))
    model = CompiledModel((x,), (x, c), (), {"c": np.array([1, 2])})
    empty = session(model)
    value = np.arange(3, dtype="f")
    y, constant = empty.run(None, {"x": value})
    assert y.tolist() == [0, 1, 2] and constant.tolist() == [1, 2]
    assert not np.shares_memory(y, value)
    constant[:] = 0
    assert empty.run(["c"], {"x": value})[0].tolist() == [1, 2]


def test_threads_share_a_session(add: Any) -> None:
    wrong: list[int] = []

    def work(size: int) -> None:
        for _ in range(300):
            if add.run(None, _feeds(size))[0].tolist() != (np.arange(size) + 1).tolist():
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 7, 300, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _allocated(call: Callable[[], object]) -> int:
    call()
    tracemalloc.start()
    call()
    before = tracemalloc.take_snapshot()
    for _ in range(100):
        call()
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    ours = [tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__)]
    difference = after.filter_traces(ours).compare_to(before.filter_traces(ours), "filename")
    return sum(d.size_diff for d in difference)


def test_calls_keep_no_memory(add: Any) -> None:
    feeds, y = _feeds(5000), np.zeros(5000, "f")
    assert _allocated(add.bind(feeds, {"sum": y})) == 0
    assert _allocated(lambda: add.run(None, feeds, out={"sum": y})) < 1000
    assert _allocated(lambda: add.run(None, feeds)) < 1000


def test_peak_memory_of_a_call_holds_no_output(add: Any) -> None:
    size = 50_000
    feeds, y = _feeds(size), np.zeros(size, "f")
    call = add.bind(feeds, {"sum": y})
    peaks = {}
    runs = {
        "bound": call,
        "out": lambda: add.run(None, feeds, out={"sum": y}),
        "run": lambda: add.run(None, feeds),
    }
    for name, run in runs.items():
        held = run()
        tracemalloc.start()
        run()
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        del held
    assert peaks["bound"] < 500
    assert peaks["out"] < 2000
    assert 4 * size <= peaks["run"] < 4 * size + 2000


def test_exceptions_release_the_arrays(add: Any) -> None:
    a = np.zeros(3)
    before = sys.getrefcount(a)
    for _ in range(10):
        with pytest.raises(InputError):
            add.run(None, {"a": a, "b": a})
    assert sys.getrefcount(a) == before


def test_a_check_that_fails_in_a_run_tells_the_sizes_of_the_call() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[N] x, int64[1] i, float[1] h) => (float[1] y, float[1] next) {
            y = Gather(x, i)
            next = Add(h, y)
        }""")
    session = ostinato.InferenceSession(model, cache_dir=None)
    i = np.array([2])
    feeds = {"x": np.zeros(6, np.float32), "i": i}
    state = {"h": np.zeros(1, np.float32)}
    bound = session.bind(feeds | state)
    session.run(None, feeds | state)
    i[0] = 6
    stream = session.stream({"h": "next"})
    for call in (
        lambda: session.run(None, feeds | state),
        lambda: session.run(None, {**feeds, "x": np.zeros(6, np.float32), **state}, {}),
        bound,
        lambda: stream.step(feeds),
    ):
        with pytest.raises(RunError, match=r"^node 'y' \(Gather\): an index .* \(with N = 6\)$"):
            call()


def test_a_bound_call_shows_its_arrays(add: Any) -> None:
    shown = "<BoundCall (a: float32[3], b: float32[3]) -> (sum: float32[3])>"
    assert repr(add.bind(_feeds())) == shown
