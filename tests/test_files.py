from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.demo import MODEL
from ostinato.errors import MissingModelError, ModelError
from ostinato.files import require_model

HEAVY = ("numpy", "onnx", "llvmlite", "rich.console")
COMMANDS: dict[str, list[str]] = {
    "run": [],
    "bench": [],
    "compare": [],
    "inspect": [],
    "stream": ["--time", "time", "-o", "out.onnx"],
    "build": ["-o", "out"],
}


# A field of another version of the format that holds fields: number 99, begun and ended.
GROUP = b"\x9b\x06\x08\x01\x9c\x06"


def test_models_are_let_through(tmp_path: Path) -> None:
    require_model(MODEL)
    path = tmp_path / "model.onnx"
    path.write_bytes(GROUP + Path(MODEL).read_bytes())
    require_model(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"not a model", "a text file"),
        (b"hello, this is text\n", "a text file"),
        ("größer\n".encode() * 9, "a text file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "a web page"),
        (b"PK\x03\x04\x00\x00", "ZIP"),
        (b"\x28\x00\x00\x00ORTM\x00\x00", "onnxruntime's own format"),
        (b"\x1c\x00\x00\x00TFL3\x14\x00", "TensorFlow Lite"),
        (b"\x89HDF\r\n\x1a\n\x00", "HDF5"),
        (b"\x08\x08\x12\x04ab", "truncated"),
        (b"\x3a\xff\xff\xff\xff\x7f", "truncated"),
        (b"\xff" * 20, "truncated, or another format"),
        (GROUP[:-2], "truncated, or another format"),
        (GROUP[-2:] + b"\xff" * 20, "truncated, or another format"),
        (b"\x08\x08\x38\x05", "no graph"),
    ],
)
def test_what_cannot_be_a_model_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=said) as caught:
        require_model(path)
    assert str(path) in str(caught.value)


def test_a_model_cut_short_anywhere_is_refused_or_read_on(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", Path(MODEL).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="truncated"):
        require_model(path)
    with pytest.raises(ModelError, match="a folder"):
        require_model(tmp_path)
    with pytest.raises(MissingModelError):
        require_model(tmp_path / "none.onnx")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_a_mistaken_path_before_anything_heavy_is_imported(command: str) -> None:
    code = (
        "import sys\nfrom ostinato.cli import main\n"
        f"sys.argv = ['ostinato', {command!r}, 'none.onnx', *{COMMANDS[command]!r}]\n"
        f"try: main()\nexcept SystemExit as e: print(e.code, *({HEAVY!r} & sys.modules.keys()))"
    ).replace(repr(HEAVY), f"set({HEAVY!r})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["2"], done.stdout
    assert done.stderr.strip() == "error: none.onnx: no such file"


def test_what_may_be_meant_is_said(tmp_path: Path) -> None:
    (tmp_path / "denoiser.onnx").write_bytes(b"")
    with pytest.raises(MissingModelError, match=r"no such file; did you mean denoiser\.onnx\?"):
        require_model(tmp_path / "denoser.onnx")
    with pytest.raises(MissingModelError, match="addresses are not fetched: download"):
        require_model("https://example.com/model.onnx")
