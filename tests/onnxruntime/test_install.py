from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ostinato.onnxruntime import real
from ostinato.onnxruntime.__main__ import main
from ostinato.onnxruntime.install import NAMES
from tests.onnxruntime.models import RELU, TEXTS

PROGRAM = """
import sys
import numpy as np
import onnxruntime
import onnxruntime as ort
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
import onnxruntime.capi.onnxruntime_inference_collection as collection
session = InferenceSession(sys.argv[1], SessionOptions(), providers=C.get_available_providers())
assert isinstance(session, collection.InferenceSession)
feed = {"x": np.array(["a"], object) if "texts" in sys.argv[1] else np.ones((2, 4), np.float32)}
print(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument is InvalidArgument)
assert onnxruntime.__file__.endswith("__init__.py") and onnxruntime.LoraAdapter
try:
    session.run(None, {"x": np.ones((2, 4))})
except InvalidArgument as error:
    print("caught")
print(type(session).__module__, session.run(None, feed)[0].ravel()[0], sys.argv[1:], __name__)
"""


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "relu.onnx").write_bytes(RELU)
    (tmp_path / "texts.onnx").write_bytes(TEXTS)
    return tmp_path


@pytest.mark.parametrize("name", ["relu", "texts"])
def test_a_program_that_imports_onnxruntime_gets_ours(folder: Path, name: str) -> None:
    done = ran(
        "-m", "ostinato.onnxruntime", f"{folder}/program.py", f"{folder}/{name}.onnx", "--more"
    )
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    assert lines == ["True", "caught"]
    value = "a" if name == "texts" else "1.0"
    path = f"{folder}/{name}.onnx"
    assert last == f"ostinato.onnxruntime.session {value} ['{path}', '--more'] __main__"
    assert ("runs in onnxruntime" in done.stderr) == (name == "texts")


def test_a_module_and_a_missing_program() -> None:
    done = ran("-m", "ostinato.onnxruntime", "-m", "json.tool", "--help")
    assert done.returncode == 0 and "json" in done.stdout
    done = ran("-m", "ostinato.onnxruntime", "nothing.py")
    assert done.returncode == 2 and "nothing.py" in done.stderr
    assert ran("-m", "ostinato.onnxruntime").returncode == 2


@pytest.mark.parametrize(
    ("module", "reason"),
    [("nothing", "no such module"), ("nothing.at.all", "No module"), ("json", "without __main__")],
)
def test_a_module_that_is_no_program_is_named(
    module: str, reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.onnxruntime.__main__.install", lambda: None)
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", [*sys.path])
    assert main(["-m", module]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: -m {module}: ") and reason in error


@pytest.mark.parametrize("name", ["folder", "model.onnx", "archive.pt"])
def test_a_file_that_is_no_program_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.onnx").write_bytes(b"\x08\x0a\0\0")
    with zipfile.ZipFile(tmp_path / "archive.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    assert main([str(tmp_path / name)]) == 2
    assert f"{name} is no Python program" in capsys.readouterr().err


def test_installing_replaces_what_is_imported_from_then_on() -> None:
    code = (
        "import onnxruntime as real; import ostinato.onnxruntime as ours; ours.install();"
        "ours.install(); import onnxruntime as shim, importlib.util, onnxruntime.quantization;"
        "assert importlib.util.find_spec('onnxruntime') is not None;"
        "from ostinato.onnxruntime.real import module;"
        "assert shim.InferenceSession is ours.InferenceSession;"
        "assert onnxruntime.quantization.__name__ == 'onnxruntime.quantization';"
        "assert module().InferenceSession is not shim.InferenceSession;"
        "import onnxruntime; assert onnxruntime is shim and onnxruntime.__version__"
    )
    done = ran("-c", code)
    assert done.returncode == 0, done.stderr


def test_a_program_runs_where_onnxruntime_is_not_installed(folder: Path) -> None:
    code = (
        "import sys, importlib.machinery as m; find = m.PathFinder.find_spec;"
        "m.PathFinder.find_spec = lambda name, *a: None if name == 'onnxruntime' else"
        " find(name, *a);"
        f"sys.argv = ['x', {f'{folder}/relu.onnx'!r}];"
        "import ostinato.onnxruntime as o; o.install();"
        f"exec(open({f'{folder}/program.py'!r}).read())\n"
        "try: import onnxruntime.quantization\n"
        "except ModuleNotFoundError as error: print(error, error.name)"
    )
    done = ran("-c", code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["True", "caught"]
    assert "install the real onnxruntime" in lines[-1] and "ostinato.quantize" in lines[-1]
    assert lines[-1].endswith(" onnxruntime.quantization")


def test_every_name_stands_for_a_module_of_the_real_package() -> None:
    (folder,) = real.folders()
    for name in NAMES:
        parts = name.strip(".").replace(".", "/")
        found = [*Path(folder).glob(f"{parts}*")] if parts else [Path(folder)]
        assert found, name
