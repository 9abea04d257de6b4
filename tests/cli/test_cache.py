from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from ostinato.cli.app import app
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
    before = _json("info", *folder)
    size = sum(path.stat().st_size for path in tmp_path.iterdir() if len(path.name) == 64)
    assert (before["entries"], before["bytes"]) == (2, size)
    assert _json("clear", *folder)["removed"] == 2
    assert _json("info", *folder) == {"folder": str(tmp_path), "entries": 0, "bytes": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert _json("info", "--cache-dir", str(tmp_path / "none"))["entries"] == 0
    result = CliRunner().invoke(app, ["cache", "clear", "--cache-dir", str(tmp_path / "none")])
    assert "0 files removed" in result.stdout
