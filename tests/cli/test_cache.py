from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import ostinato
from ostinato.cli.app import app
from ostinato.demo import MODEL
from ostinato.native.cache import Cache


def _json(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["cache", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    record: dict[str, object] = json.loads(result.stdout)
    return record


def test_says_what_is_there_and_removes_it(tmp_path: Path) -> None:
    for letter in "ab":
        Cache(tmp_path).store(letter * 64, {}, [bytes(1000)])
    (tmp_path / "other").write_text("kept")
    folder = ("--cache-dir", str(tmp_path))
    before = _json("size", *folder)
    size = sum(path.stat().st_size for path in tmp_path.iterdir() if len(path.name) == 64)
    assert (before["entries"], before["bytes"]) == (2, size)
    assert _json("clear", *folder)["removed"] == 2
    assert _json("size", *folder) == {"folder": str(tmp_path), "entries": 0, "bytes": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert _json("size", "--cache-dir", str(tmp_path / "none"))["entries"] == 0
    result = CliRunner().invoke(app, ["cache", "clear", "--cache-dir", str(tmp_path / "none")])
    assert "0 files removed" in result.stdout


def test_lists_models_and_kernels(tmp_path: Path) -> None:
    ostinato.InferenceSession(MODEL, cache_dir=tmp_path)
    listed: Any = _json("list", "--cache-dir", str(tmp_path))
    (model,) = listed["models"]
    assert model["model"] == "magnitude, state -> mask, state_out"
    assert listed["kernels"]["entries"] >= 0 and model["bytes"] > 1000
    result = CliRunner().invoke(app, ["cache", "list", "--cache-dir", str(tmp_path)])
    assert "magnitude, state -> mask, state_out" in result.stdout
    assert "within the hour" in result.stdout
    (tmp_path / ("f" * 64)).write_bytes(b"damaged")
    assert _json("list", "--cache-dir", str(tmp_path))["models"] == listed["models"]


def test_a_limit_keeps_what_was_used_last(tmp_path: Path) -> None:
    folder = ("--cache-dir", str(tmp_path))
    assert _json("limit", *folder)["limit"] is None
    for age, letter in enumerate("abc"):
        Cache(tmp_path).store(letter * 64, {}, [bytes(1000)])
        os.utime(tmp_path / (letter * 64), times=(0, 10_000 - age))
    assert _json("limit", "2.8K", *folder) == {
        "folder": str(tmp_path), "limit": 2867, "removed": 1,
    }  # fmt: skip
    assert not (tmp_path / ("c" * 64)).exists()
    # Whoever writes the next entry keeps to it.
    Cache(tmp_path, 1 << 30).store("d" * 64, {}, [bytes(1000)])
    left = [path.name[0] for path in tmp_path.iterdir() if len(path.name) == 64]
    assert sorted(left) == ["a", "d"]
    assert _json("limit", "none", *folder)["limit"] is None
    result = CliRunner().invoke(app, ["cache", "limit", "much", *folder])
    assert result.exit_code == 2 and "500M" in result.stderr
