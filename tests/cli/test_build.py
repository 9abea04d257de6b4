import json
from pathlib import Path

import numpy as np

from tests.cli.conftest import Invoke


def test_the_files_and_their_sizes_are_shown(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    result = invoke("build", gru, "-o", folder, "--no-shared", "--dim", "T=1")
    assert result.exit_code == 0, result.stderr
    for text in ("gru.h", "libgru.a", "code", "weights"):
        assert text in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["gru.h", "libgru.a"]


def test_json_has_the_sizes(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    options = ["--weights", "file", "--no-shared", "--json", "--name", "other"]
    result = invoke("build", gru, "-o", tmp_path / "lib", "--target", "raspberry-pi-4", *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["target"].startswith("aarch64")
    sizes = {Path(file["path"]).name: file["bytes"] for file in found["files"]}
    assert sizes.keys() == {"other.h", "other.weights", "libother.a"}
    assert sizes["other.weights"] == found["bytes"]["weights"] + 64
    assert sizes["other.h"] == found["bytes"]["header"]


def test_states_and_first_values(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.ones((1, 1, 4), np.float32))
    first = f"x={tmp_path / 'h.npy'}"
    arguments = ["--state", "x=h", "--initial", first, "--dim", "T=1", "--no-shared"]
    result = invoke("build", gru, "-o", tmp_path / "lib", *arguments)
    assert result.exit_code == 0, result.stderr
    header = (tmp_path / "lib" / "gru.h").read_text()
    assert "int gru_step(gru *object, float *y);" in header
    assert "float *gru_state_x(gru *object);" in header
    result = invoke("build", gru, "-o", tmp_path / "lib", "--state", "x=y")
    assert result.exit_code == 2
    assert "states: input 'x'" in result.stderr


def test_a_library_without_a_linker_is_static(invoke: Invoke, gru: Path, tmp_path: Path) -> None:
    target = ["--target", "arm64-apple-ios16.0:apple-a14:"]
    result = invoke("build", gru, "-o", tmp_path / "lib", *target)
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "lib" / "libgru.a").exists()
    assert "not linked: no shared library can be linked for arm64-apple-ios" in result.stderr
    result = invoke("build", gru, "-o", tmp_path / "lib", *target, "--shared")
    assert result.exit_code == 2
