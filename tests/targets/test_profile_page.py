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


# Sorts by runs, and chooses the second row.
KEYS = """<script>
const press = key => document.activeElement.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true }));
document.querySelectorAll("#kernels th")[3].focus();
press("Enter");
document.querySelector("#kernels tbody [tabindex='0']").focus();
press("ArrowDown");
press(" ");
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("profile") / "page.html"
    command = ["profile", str(MODEL), "--seconds", "0.1", "--html", str(written)]
    assert CliRunner().invoke(app, command).exit_code == 0
    return written


def drawn(page: Path, folder: Path) -> dict[str, str]:
    """What Chromium makes of the elements of a page that have a name."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    flags = [*FLAGS[:-1], f"--user-data-dir={folder / 'user'}", "--dump-dom"]
    done = subprocess.run(
        [chromium, *flags, page.as_uri()], capture_output=True, text=True, timeout=PATIENCE
    )
    elements = done.stdout.partition("<script>")[0]
    return dict(re.findall(r'id="(\w+)"[^>]*>(.*?)(?=id="|$)', elements, re.S))


def test_every_part_of_the_page_is_drawn(page: Path, tmp_path: Path) -> None:
    parts = drawn(page, tmp_path)
    assert parts["bar"].count("<rect") > 60
    assert parts["kernels"].count("<tr") > 60
    assert parts["roof"].count("<circle") > 20
    assert "<path" in parts["memory"] and parts["graph"].count("<rect") > 60
    assert parts["refusals"].count("<tr") > 10


def test_the_table_is_read_by_keys(page: Path, tmp_path: Path) -> None:
    pressed = tmp_path / "pressed.html"
    pressed.write_text(page.read_text("utf-8").replace("</body>", KEYS + "</body>"), "utf-8")
    parts = drawn(pressed, tmp_path)
    head, rows = parts["kernels"].split("<tbody>")
    assert re.findall('aria-sort="descending">([^<]*)', head) == ["runs ↓"]
    first, second = re.findall("<tr[^>]*>", rows)[:2]
    assert 'class="on"' in second and 'class="on"' not in first
    assert "runs a call" in parts["detail"]
