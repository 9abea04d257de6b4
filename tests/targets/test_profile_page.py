"""The page of `ostinato profile` in Chromium without a screen, offline."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ostinato.cli.app import app
from tests.targets.test_browser import FLAGS, PATIENCE

pytestmark = pytest.mark.targets
MODEL = Path(__file__).parents[1] / "models" / "conformer_streaming.dynamo.onnx"


def test_every_part_of_the_page_is_drawn(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    page = tmp_path / "page.html"
    command = ["profile", str(MODEL), "--seconds", "0.1", "--html", str(page)]
    assert CliRunner().invoke(app, command).exit_code == 0
    flags = [*FLAGS[:-1], f"--user-data-dir={tmp_path / 'user'}", "--dump-dom"]
    done = subprocess.run(
        [chromium, *flags, page.as_uri()], capture_output=True, text=True, timeout=PATIENCE
    )
    drawn = done.stdout.partition("<script>")[0]
    parts = dict(re.findall(r'id="(\w+)"[^>]*>(.*?)(?=id="|$)', drawn, re.S))
    assert parts["bar"].count("<rect") > 60
    assert parts["kernels"].count("<tr") > 60
    assert parts["roof"].count("<circle") > 20
    assert "<path" in parts["memory"] and parts["graph"].count("<rect") > 60
    assert parts["refusals"].count("<tr") > 10
