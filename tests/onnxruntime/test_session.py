"""The same call of both: equal results, or an error of the same name."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as theirs
import pytest

import ostinato.onnxruntime as ours
from ostinato.errors import InputError
from ostinato.onnxruntime import real
from tests.onnxruntime.models import GATHER, RELU, SUM, TEXTS, model, of_any_rank

X = np.ones((2, 4), np.float32)
FEED = {"x": X, "w": X}

theirs.set_default_logger_severity(4)


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """The arrays of a call, or its error: class and, where onnxruntime wrote it, text."""
    try:
        results = call()
    except Exception as error:
        return type(error).__name__, str(error) if "[ONNXRuntimeError]" in str(error) else ""
    return "", results


def assert_alike(make: Callable[[Any], Callable[[], Any]]) -> None:
    """The call that `make` gives for either module ends alike."""
    (error, expected), (got_error, got) = (outcome(make(module)) for module in (theirs, ours))
    assert got_error == error, got
    if error:
        assert got == expected
        return
    for a, b in zip(got, expected, strict=True):
        assert type(a) is type(b) and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


FEEDS: dict[str, tuple[bytes, Any, Any]] = {
    "as declared": (SUM, None, FEED),
    "no names": (SUM, [], FEED),
    "a tuple of names": (SUM, ("s",), FEED),
    "the same output twice": (SUM, ["y", "y"], FEED),
    "another dtype": (SUM, None, {"x": X.astype(float), "w": X}),
    "another rank": (SUM, None, {"x": X[0], "w": X}),
    "another size": (SUM, None, {"x": X, "w": np.ones((3, 5), np.float32)}),
    "sizes that do not meet": (SUM, None, {"x": np.ones((3, 4), np.float32), "w": X}),
    "a missing input": (SUM, None, {"x": X}),
    "an unknown input": (SUM, None, {**FEED, "z": X}),
    "an unknown output": (SUM, ["q"], FEED),
    "one name that is no list": (SUM, "y", FEED),
    "lists": (SUM, None, {"x": X.tolist(), "w": X}),
    "None for an input": (SUM, None, {"x": None, "w": X}),
    "None for an unknown input": (SUM, None, {**FEED, "z": None}),
    "a number for an input": (SUM, None, {"x": 1.0, "w": X}),
    "strides": (SUM, None, {"x": np.asfortranarray(X), "w": X[::-1]}),
    "empty": (RELU, None, {"x": np.ones((0, 4), np.float32)}),
    "texts of NumPy": (TEXTS, None, {"x": np.array(["ab", "c"])}),
    "texts as objects": (TEXTS, None, {"x": np.array(["ab", "c"], object)}),
    "an index out of range": (GATHER, None, {"i": np.array([9]), "x": X[0]}),
}


@pytest.mark.parametrize("case", FEEDS)
def test_a_run_ends_as_in_onnxruntime(case: str) -> None:
    data, names, feed = FEEDS[case]
    assert_alike(lambda m: lambda: m.InferenceSession(data).run(names, feed))


ANY_RANK = of_any_rank(model("g (float x, float[N] w) => (float y) { y = Add(x, w) }"))
ROWS = model("g (seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence<axis = 0>(x) }")


@pytest.mark.parametrize(
    ("data", "feed"),
    [
        # Where an input has any rank, the error is that of the other one.
        (ANY_RANK, {"x": X, "w": X}),
        (ANY_RANK, {"x": X.astype(float), "w": X[0]}),
        (ANY_RANK, {"x": X.tolist(), "w": X[0]}),
        (ROWS, {"x": X}),
        (ROWS, {"x": [X[0], X[1]]}),
    ],
    ids=["another rank", "another dtype", "lists", "no sequence", "a sequence"],
)
def test_runs_of_inputs_without_a_shape_end_as_in_onnxruntime(data: bytes, feed: Any) -> None:
    assert_alike(lambda m: lambda: m.InferenceSession(data).run(None, feed))


def test_bytes_in_another_order_of_any_rank() -> None:
    feed = {"x": X.astype(">f4"), "w": X[0]}
    (y,) = ours.InferenceSession(ANY_RANK).run(None, feed)
    np.testing.assert_array_equal(y, X + X[0])


def test_bytes_in_another_order_are_numbers_all_the_same() -> None:
    # onnxruntime reads them as if they were in this machine's order.
    (y,) = ours.InferenceSession(RELU).run(None, {"x": X.astype(">f4")})
    np.testing.assert_array_equal(y, X)


def test_masked_elements_are_elements(caplog: pytest.LogCaptureFixture) -> None:
    feed = {"x": np.ma.masked_array(X, mask=X > 0)}
    assert_alike(lambda m: lambda: m.InferenceSession(RELU).run(None, feed))
    (y,) = ours.InferenceSession(RELU).run(None, feed)
    np.testing.assert_array_equal(y, X)
    assert not caplog.records


MODELS: dict[str, Any] = {
    "a file that is not there": "nothing.onnx",
    "a folder": ".",
    "no protobuf": b"garbage",
    "no bytes": b"",
    "a number": 3,
    "a bytearray": bytearray(RELU),
    "an operator that does not exist": model("g (float[N] x) => (float[N] y) { y = Foo(x) }"),
    "an operator of somebody": model("g (float[N] x) => (float[N] y) { y = my.Foo(x) }"),
    "a value that nobody computes": model("g (float[N] x) => (float[N] y) { y = Relu(q) }"),
    "an attribute that does not exist": model(
        "g (float[N] x) => (float[N] y) { y = Relu<foo = 1>(x) }"
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_is_refused_as_by_onnxruntime(case: str) -> None:
    assert_alike(lambda m: lambda: m.InferenceSession(MODELS[case]))


@pytest.mark.parametrize("case", MODELS)
def test_a_model_is_refused_where_onnxruntime_is_not_installed(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "folders", list)
    monkeypatch.setattr("ostinato.onnxruntime.session.folders", list)
    error, _ = outcome(lambda: ours.InferenceSession(MODELS[case]))
    expected, _ = outcome(lambda: theirs.InferenceSession(MODELS[case]))
    # What is wrong with a graph has several names in onnxruntime.
    invalid = {"InvalidGraph", "NotImplemented", "Fail", "InvalidArgument"}
    assert error == expected or {error, expected} <= invalid


def test_errors_have_the_classes_that_programs_catch() -> None:
    from ostinato.onnxruntime.capi import onnxruntime_pybind11_state as state

    session = ours.InferenceSession(RELU)
    with pytest.raises(state.InvalidArgument, match="Unexpected input data type"):
        session.run(None, {"x": X.astype(float)})
    with pytest.raises(state.NoSuchFile):
        ours.InferenceSession("nothing.onnx")


def test_inputs_outputs_and_metadata_are_told_as_in_onnxruntime() -> None:
    proto = onnx.load_model_from_string(
        model(
            "g (float[?, 4] x, float16[a, ?] h, seq(float[?]) z, bool[3] b)"
            " => (float[?, ?] y, float s, float[M] c)"
            " { y = Relu(x) s = ReduceSum<keepdims=0>(y) f = Flatten<axis=0>(x)"
            "   q = Squeeze(f) c = Relu(q) }"
        )
    )
    proto.producer_name, proto.doc_string, proto.model_version = "me", "text", 7
    proto.metadata_props.add(key="a", value="b")
    sessions = [m.InferenceSession(proto.SerializeToString()) for m in (ours, theirs)]
    mine, other = (
        [(a.name, a.type, a.shape) for a in (*s.get_inputs(), *s.get_outputs())] for s in sessions
    )
    assert mine == other
    for field in "producer_name graph_name domain description version".split():
        assert getattr(sessions[0].get_modelmeta(), field) == getattr(
            sessions[1].get_modelmeta(), field
        )
    assert sessions[0].get_modelmeta().custom_metadata_map == {"a": "b"}
    assert sessions[0].get_providers() == ["CPUExecutionProvider"]
    assert "CPUExecutionProvider" in sessions[0].get_provider_options()


def test_what_cannot_be_native_runs_in_onnxruntime_and_is_said_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "texts.onnx"
    path.write_bytes(TEXTS)
    session = ours.InferenceSession(path)
    for _ in range(2):
        (y,) = session.run(None, {"x": np.array(["a", "b"], object)})
        assert y.tolist() == ["a", "b"]
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "texts.onnx runs in onnxruntime" in line and "Identity" in line
    assert session.get_inputs()[0].shape == ["N"]


@pytest.mark.filterwarnings("ignore:.*not all native")
def test_what_cannot_be_native_is_interpreted_where_onnxruntime_is_not_installed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "folders", list)
    monkeypatch.setattr("ostinato.onnxruntime.session.folders", list)
    (y,) = ours.InferenceSession(TEXTS).run(None, {"x": np.array(["a", "b"], object)})
    assert y.tolist() == ["a", "b"]
    assert "reference kernel" in caplog.text


def test_a_run_that_ours_refuses_is_repeated_in_onnxruntime(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> list[Any]:
        raise InputError("not like this")

    session = ours.InferenceSession(RELU)
    monkeypatch.setattr(session._compiled, "run", refuse)
    monkeypatch.setattr(session, "_run", refuse)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": -X})[0], np.zeros_like(X))
    assert caplog.text.count("runs in onnxruntime, not compiled: not like this") == 1


def test_providers_are_checked_as_in_onnxruntime() -> None:
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available"):
        session = ours.InferenceSession(
            RELU, providers=["CUDAExecutionProvider", ("CPUExecutionProvider", {"a": 1})]
        )
    with pytest.raises(ValueError, match="the same length"):
        session.set_providers(["CPUExecutionProvider"], [{}, {}])
    for each in (session, theirs.InferenceSession(RELU, providers=["CPUExecutionProvider"])):
        with (
            pytest.warns(UserWarning, match="not in available"),
            pytest.raises(RuntimeError, match="Unknown Provider Type: None"),
        ):
            each.set_providers(["None"])
    # Other releases have others.
    if theirs.__version__ == ours.__version__:
        assert ours.get_all_providers() == theirs.get_all_providers()
    with pytest.warns(UserWarning, match="strings or"):
        ours.InferenceSession(RELU, providers=[3])  # type: ignore[list-item]
    ours.InferenceSession(path_or_bytes=RELU, providers="CPUExecutionProvider", unknown=1)


def test_run_async_and_run_options() -> None:
    session, done, said = ours.InferenceSession(RELU), threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        said.append((results, user_data, error))
        done.set()

    session.run_async(None, {"x": X}, callback, 7, ours.RunOptions())
    assert done.wait(60)
    assert said[0][1:] == (7, "") and np.array_equal(said[0][0][0], X)
    with pytest.raises(ValueError, match=r"Required inputs \(\['x'\]\)"):
        session.run_async(None, {}, callback, 7)
    with pytest.raises(TypeError, match="sequence of names"):
        session.run_async("y", {"x": X}, callback, 7)
    done.clear()
    session.run_async(["z"], {"x": X}, callback, 8)
    assert done.wait(60)
    assert said[1] == ([], 8, "Invalid output name:z")
    options = ours.RunOptions()
    options.terminate = True
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.Fail, match="terminate"):
        session.run(None, {"x": X}, options)
    with pytest.raises(TypeError, match="RunOptions"):
        session.run(None, {"x": X}, run_options=3)  # type: ignore[arg-type]


def test_profiling_writes_a_trace_with_each_run(tmp_path: Path) -> None:
    options = ours.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = ours.InferenceSession(RELU, options)
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    assert [event["name"] for event in events] == ["session_initialization", "model_run"]
    assert session.end_profiling() == "" == ours.InferenceSession(RELU).end_profiling()


def test_the_optimized_model_is_written_and_computes_the_same(tmp_path: Path) -> None:
    options = ours.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "out.onnx")
    expected = ours.InferenceSession(SUM, options).run(None, FEED)
    got = theirs.InferenceSession(tmp_path / "out.onnx").run(None, FEED)
    np.testing.assert_array_equal(got[0], expected[0])


def test_the_optimized_model_is_written_in_onnxruntimes_format_on_demand(tmp_path: Path) -> None:
    options = ours.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "out.ort")
    expected = ours.InferenceSession(SUM, options).run(None, FEED)
    assert (tmp_path / "out.ort").read_bytes()[4:8] == b"ORTM"
    got = ours.InferenceSession(tmp_path / "out.ort").run(None, FEED)
    np.testing.assert_array_equal(got[0], expected[0])
    options.optimized_model_filepath = str(tmp_path / "nowhere" / "out.onnx")
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument, match="nowhere"):
        ours.InferenceSession(SUM, options)


def test_what_programs_reach_for_behind_the_interface_is_there() -> None:
    for module in (ours, theirs):
        session = module.InferenceSession(RELU)
        assert [argument.name for argument in session._sess.inputs_meta] == ["x"]
        assert session._model_meta.graph_name == "g"
        assert "CPUExecutionProvider" in session._provider_options
        native = module.capi._pybind_state
        device = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        assert device.device_type() == 0
        value = native.OrtValue.ortvalue_from_numpy(X, device)
        assert list(value.shape()) == [2, 4]
        assert module.OrtValue.ortvalue_from_numpy(X)._ortvalue.to_dlpack() is not None
        assert len(session.io_binding()._iobinding.get_outputs()) == 0


def test_ort_values_are_taken_and_given() -> None:
    session = ours.InferenceSession(SUM)
    values = {name: ours.OrtValue.ortvalue_from_numpy(a) for name, a in FEED.items()}
    (y,) = session.run_with_ort_values(["y"], values)
    np.testing.assert_array_equal(y.numpy(), X + X)
    np.testing.assert_array_equal(session.run(["y"], values)[0], X + X)


# As programs call voice detectors, with the sampling rate in a list.
RATE = model("""g (float[N] x, int64 rate) => (float y, int64 z) {
    z = Neg(rate)
    r = Cast<to=1>(rate)
    s = Div(x, r)
    y = ReduceSum<keepdims=0>(s) }""")


def test_arrays_of_any_shape_are_taken_for_scalars(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ostinato.onnxruntime"):
        session = ours.InferenceSession(RATE)
        expected = theirs.InferenceSession(RATE)
        for rate in (np.array([4]), np.array([[8]]), np.array([2]), np.array(4), np.arange(1, 5)):
            feed = {"x": X[0], "rate": rate}
            for got, wanted in zip(session.run(None, feed), expected.run(None, feed), strict=True):
                assert got.shape == wanted.shape
                np.testing.assert_allclose(got, wanted)
    assert session.get_inputs()[1].shape == []
    assert not any("runs in onnxruntime" in record.message for record in caplog.records)
    assert_alike(lambda m: lambda: m.InferenceSession(RATE).run(None, {"rate": np.array([4])}))


# As decoders with a cache are exported: a branch that does not read the cache, which is empty then.
MERGED = model("""g (float[N, 3] encoded, float[N, 3] cached, bool cache) => (float[N, 3] y) {
    y = If(cache) <then_branch = t () => (float[M, 3] a) { a = Neg(cached) },
        else_branch = e () => (float[M, 3] b) { b = Exp(encoded) }> }""")


def test_inputs_may_differ_in_a_size_that_they_share_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feeds = []
    for rows, is_cached in ((0, False), (4, True), (2, True), (0, False)):
        given = {"encoded": np.ones((4, 3), np.float32), "cached": np.ones((rows, 3), np.float32)}
        feeds.append(given | {"cache": np.array(is_cached)})
    with caplog.at_level(logging.INFO, "ostinato.onnxruntime"):
        session = ours.InferenceSession(MERGED)
        expected = theirs.InferenceSession(MERGED)
        for feed in feeds:
            np.testing.assert_allclose(
                session.run(None, feed)[0], expected.run(None, feed)[0], rtol=1e-6
            )
    assert session.get_inputs()[1].shape == ["N", 3]
    said = [record.message for record in caplog.records if "compiled anew" in record.message]
    assert said == ["the model: compiled anew, as inputs have different sizes of N"]
    assert not any("runs in onnxruntime" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: ours.InferenceSession(SUM, theirs.SessionOptions()), "sess_options: .*Session"),
        (lambda s: s.run(None, FEED, theirs.RunOptions()), "run_options: expected RunOptions of"),
        (lambda s: s.run_with_ort_values(None, {"x": X}), "'x': expected OrtValue, got ndarray"),
        (lambda s: s.io_binding().bind_ortvalue_input("x", X), "'x': expected OrtValue, got"),
        (lambda s: s.io_binding().bind_ortvalue_output("y", X), "'y': expected OrtValue, got"),
    ],
)
def test_options_of_onnxruntime_itself_are_refused(call: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call(ours.InferenceSession(SUM))


def test_values_of_onnxruntime_itself_are_taken() -> None:
    session = ours.InferenceSession(SUM)
    x, w = (theirs.OrtValue.ortvalue_from_numpy(array) for array in (X, 2 * X))
    y = theirs.OrtValue.ortvalue_from_numpy(np.zeros_like(X))
    (made, _) = session.run_with_ort_values(None, {"x": x, "w": w})
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("w", w)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(made.numpy(), 3 * X)
    np.testing.assert_array_equal(y.numpy(), 3 * X)
