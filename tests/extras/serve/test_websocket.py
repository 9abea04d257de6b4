from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import numpy as np
import pytest

from tests.extras.serve.servers import BINS, alone, frames, serving

pytestmark = pytest.mark.extras

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--remote-debugging-port=0",
)


def test_raw_frames_in_and_out() -> None:
    from websockets.sync.client import connect

    x = frames(1, 7)
    with serving() as server:
        address = server.http.replace("http", "ws") + "/v2/models/m/stream"
        with connect(address) as socket:
            described = json.loads(socket.recv())
            assert [output["name"] for output in described["outputs"]] == ["mask"]
            parts = []
            for start, stop in ((0, 1), (1, 4), (4, 7)):
                socket.send(x[start:stop].tobytes())
                parts.append(np.frombuffer(socket.recv(), np.float32).reshape(-1, 1, BINS))
                socket.send(b"\0" * 5)
                assert "no whole frames" in json.loads(socket.recv())["error"]
                socket.send("text")
                assert "binary message" in json.loads(socket.recv())["error"]
            np.testing.assert_array_equal(np.concatenate(parts), alone(x))
            assert server.metric("ostinato_sequences ") == 1
        with connect(address + "?outputs=nothing") as socket:
            assert "'nothing'" in json.loads(socket.recv())["error"]
        with connect(address + "?output=mask") as socket:
            assert "'output' is not served: expected outputs" in json.loads(socket.recv())["error"]
        with connect(address.replace("/m/", "/other/")) as socket:
            assert "no model 'other'" in json.loads(socket.recv())["error"]
        assert server.metric("ostinato_sequences ") == 0


def test_a_connection_that_was_silent_for_too_long_begins_anew() -> None:
    from websockets.sync.client import connect

    x = frames(1, 2)
    with (
        serving("--idle", "0.5") as server,
        connect(server.http.replace("http", "ws") + "/v2/models/m/stream") as socket,
    ):
        socket.recv()
        socket.send(x[:1].tobytes())
        first = socket.recv()
        until = time.monotonic() + 30
        while server.metric("ostinato_sequences ") and time.monotonic() < until:
            time.sleep(0.1)
        socket.send(x[1:].tobytes())
        assert "silent" in json.loads(socket.recv())["error"]
        socket.send(x[:1].tobytes())
        assert socket.recv() == first


PAGE = """<!doctype html><script>
const frames = 4, bins = 161, socket = new WebSocket("ADDRESS/v2/models/m/stream");
socket.binaryType = "arraybuffer";
let sent = 0, received = 0, sum = 0;
const send = () => socket.send(new Float32Array(frames * bins).fill(0.25 * ++sent));
socket.onmessage = ({ data }) => {
  // The first message says what there is.
  if (data instanceof ArrayBuffer) {
    for (const value of new Float32Array(data)) sum += value;
    received++;
  }
  if (received < 3) send();
  else { fetch(`/report?${sum}`); socket.close(); }
};
</script>"""


class _Pages(BaseHTTPRequestHandler):
    """Serves one page, and keeps what it reports."""

    page = b""
    reports: Queue[str]

    def do_GET(self) -> None:
        if self.path.startswith("/report?"):
            self.reports.put(self.path.partition("?")[2])
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page if self.path == "/" else b"")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_a_page_in_chromium(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    x = np.concatenate([np.full((4, 1, BINS), 0.25 * k, np.float32) for k in (1, 2, 3)])
    with serving() as server, ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as pages:
        _Pages.page = PAGE.replace("ADDRESS", server.http.replace("http", "ws")).encode()
        _Pages.reports = Queue()
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{pages.server_port}/"
        command = [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            reported = float(_Pages.reports.get(timeout=60))
        finally:
            browser.terminate()
            browser.wait(30)
            pages.shutdown()
    assert reported == pytest.approx(float(alone(x).astype(np.float64).sum()), rel=1e-6)
