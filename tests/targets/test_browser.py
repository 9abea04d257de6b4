"""The page of examples/browser in Chromium without a screen."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

pytestmark = pytest.mark.targets

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "browser"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --remote-debugging-port=0"
).split()
PATIENCE = 120


def module() -> Any:
    """`make.py` of the example."""
    spec = importlib.util.spec_from_file_location("browser_make", SOURCE / "make.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """The address of a page, and what it reports."""
    reports: Queue[dict[str, Any]] = Queue()
    make = module()

    class Handler(make.Handler):  # type: ignore[name-defined,misc]
        def do_POST(self) -> None:
            reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    make.Handler = Handler
    with make.serve(folder, 0) as server:
        threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html?check", reports
        server.shutdown()


def test_the_page_denoises_in_an_audio_worklet(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    page = tmp_path / "page"
    shutil.copytree(SOURCE, page, ignore=shutil.ignore_patterns("built", "__pycache__"))
    module().build(page / "built")
    with served(page) as (address, reports):
        command = [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            report = reports.get(timeout=PATIENCE)
        except Empty:
            pytest.fail("the page reported nothing")
        finally:
            browser.terminate()
            browser.wait(30)
    assert "error" not in report, report
    assert report["file"] == "denoiser.wasm" and report["same"], report
    # 100 frames a second, and the transforms around the model.
    assert report["frame"] < 1000 and report["seconds"] < report["length"], report
