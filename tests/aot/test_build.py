from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.aot import zig
from ostinato.aot.build import make_library, write_files
from ostinato.aot.interface import error
from ostinato.errors import InputError, OptionError
from ostinato.native.memory import aligned
from ostinato.streaming import convert
from tests.aot import models
from tests.aot.caller import Caller, linked, needs_compiler, pointer

F32 = np.float32
needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None or sys.platform != "linux",
    reason="no ziglang here, or no shared libraries of Linux",
)


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_files_are_returned(tmp_path: Path) -> None:
    path = tmp_path / "my-gru.onnx"
    onnx.save(models.gru(), path)
    folder = tmp_path / "a" / "b"
    files = ostinato.build(path, folder, states=models.GRU_STATES, weights="file", shared=False)
    assert [file.name for file in files] == ["my_gru.h", "my_gru.weights", "libmy_gru.a"]
    assert files_of(folder) == sorted(file.name for file in files)
    assert "int my_gru_step(my_gru *object, size_t T," in files[0].read_text()


def test_a_library_that_cannot_be_linked_is_static(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zig.importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match=r"pip install 'ostinato\[build\]'"):
        files = ostinato.build(models.gru(), tmp_path, name="gru")
    assert [file.name for file in files] == ["gru.h", "libgru.a"]
    with pytest.raises(OptionError, match="pip install"):
        ostinato.build(models.gru(), tmp_path / "other", name="gru", shared=True)
    assert files_of(tmp_path / "other") == ["gru.h", "libgru.a"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(OptionError, match="expected a folder for the files, there is a file"):
            ostinato.build(models.gru(), folder, name="gru", shared=False)


@pytest.mark.parametrize(
    ("folder", "message"),
    [(5, "folder=5: expected a path"), ("a\0b", "no files can be written there")],
)
def test_a_folder_that_cannot_be_made_is_refused(folder: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ostinato.build(models.gru(), folder, name="gru", shared=False)


@needs_zig
def test_a_shared_library_works(tmp_path: Path) -> None:
    files = ostinato.build(models.gru(), tmp_path, states=models.GRU_STATES, name="gru")
    assert [file.name for file in files] == ["gru.h", "libgru.a", "libgru.so"]
    caller = Caller(models.gru_library(), ctypes.CDLL(str(files[-1])), {"T": 2, "N": 1})
    x = np.random.default_rng(0).standard_normal((2, 1, 5)).astype(F32)
    stream = ostinato.InferenceSession(models.gru()).stream(models.GRU_STATES)
    assert caller.step([x])[0].tobytes() == stream.step({"x": x})[0].tobytes()
    caller.close()


@needs_compiler
def test_weights_may_be_a_file_which_is_checked(tmp_path: Path) -> None:
    library = models.gru_library(weights_in_file=True, name="apart")
    code = linked(library, tmp_path)
    assert library.weights is not None
    good = Caller(library, code, {"T": 2, "N": 1})
    inside = models.gru_library()
    other = Caller(inside, linked(inside, tmp_path), {"T": 2, "N": 1})
    x = np.random.default_rng(1).standard_normal((2, 1, 5)).astype(F32)
    assert good.step([x])[0].tobytes() == other.step([x])[0].tobytes()

    def created(weights: np.ndarray, size: int, offset: int = 0) -> int:
        made = ctypes.c_void_p(99)
        place = ctypes.c_void_p(weights.ctypes.data + offset)
        sizes = ctypes.c_size_t(2), ctypes.c_size_t(1)
        found = good.call("create", place, ctypes.c_size_t(size), *sizes, ctypes.byref(made))
        assert found and made.value == 99
        return found

    weights = aligned(library.weights)
    for place in (0, 8, 16, 24, 63, 64, len(weights) - 1):
        damaged = aligned(weights.tobytes()).copy()
        damaged = aligned(damaged)
        damaged[place] ^= 1
        assert created(damaged, len(damaged)) == error("WEIGHTS")
    assert created(weights, len(weights) - 64) == error("WEIGHTS")
    assert created(weights, len(weights), 4) == error("ALIGNMENT")
    assert good.call("create", None, *[ctypes.c_size_t(0)] * 3, pointer(weights)) == error("NULL")
    good.close()
    other.close()


@needs_compiler
def test_a_converted_model_brings_its_states(tmp_path: Path) -> None:
    model = models.parsed("""g (float[N, 1, T] x) => (float[N, 1, T] y) {
        shifted = Pad <mode = "constant"> (x, pads, value)
        y = Conv <kernel_shape = [3]> (shifted, w) }""")
    constants = {
        "pads": np.array([0, 0, 2, 0, 0, 0]),
        "value": np.array(0.5, F32),
        "w": np.array([[[1, 2, 3]]], F32),
    }
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    conversion = convert(model, "T", None)
    library = make_library(conversion, "host", None, "conv", None, "inside", {})
    assert any(state.initial is not None for state in library.interface.states)
    caller = Caller(library, linked(library, tmp_path), {"T": 7, "N": 2})
    x = np.random.default_rng(2).standard_normal((2, 1, 12)).astype(F32)
    parts = [caller.step([np.array(part)])[0] for part in np.split(x, [1, 4, 5], axis=2)]
    (expected,) = ostinato.InferenceSession(model).run(None, {"x": x})
    assert np.concatenate(parts, 2).tobytes() == expected.tobytes()
    caller.close()


def test_a_converted_model_of_single_frames_has_no_states() -> None:
    model = models.parsed("g (float[N, 1, T] x) => (float[N, 1, T] y) { y = Tanh (x) }")
    library = make_library(convert(model, "T"), "host", None, "frames", None, "inside", {})
    assert not library.interface.states and "frames_run" in library.header()


def test_options_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown option 'speed'"):
        ostinato.build(models.gru(), tmp_path, speed=2)
    with pytest.raises(OptionError, match="weights='beside': expected one of inside, file"):
        ostinato.build(models.gru(), tmp_path, weights="beside")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="did you mean windows"):
        ostinato.build(models.gru(), tmp_path, target="windws")
    with pytest.raises(OptionError, match=r"specialize=5: expected .name: size."):
        ostinato.build(models.gru(), tmp_path, specialize=5)
    with pytest.raises(InputError, match="initial: expected a dict of name to array, got int"):
        ostinato.build(models.gru(), tmp_path, states=models.GRU_STATES, initial=5)  # type: ignore[arg-type]
    assert files_of(tmp_path) == []


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"a.h": b"old"})

    def fails(source: str, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OptionError, match=r"no files can be written there .disk full."):
        write_files(tmp_path, {"a.h": b"new"})
    assert files_of(tmp_path) == ["a.h"] and (tmp_path / "a.h").read_bytes() == b"old"
