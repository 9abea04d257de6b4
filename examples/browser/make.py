"""Builds the denoiser for the browser and serves the page.

    pip install 'ostinato[build]'
    python examples/browser/make.py            builds, then serves http://localhost:8000
    python examples/browser/make.py --build    builds only

A microphone takes https or localhost.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
import wave
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from usage import explain

    explain(__doc__)

import numpy as np

import ostinato
from ostinato.demo import synthetic
from ostinato.demo.signal import SAMPLE_RATE

HERE = Path(__file__).resolve().parent
MODEL = Path(ostinato.__file__).parent / "demo" / "denoiser.onnx"
SECONDS = 8
# Of speech to noise.
DECIBELS = 3


def build(folder: Path) -> None:
    """Write the model for the web and the sample into a folder."""
    ostinato.build(MODEL, folder, "wasm", {"state": "state_out"}, shared=True)
    rng = np.random.default_rng(7)
    speech = synthetic.speech(SECONDS, rng)
    noisy = speech + 10 ** (-DECIBELS / 20) * synthetic.pink(SECONDS, rng)
    samples = np.round(0.5 * 32767 * noisy / np.abs(noisy).max()).astype("<i2")
    with wave.open(str(folder / "sample.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(samples.tobytes())


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, with the types that browsers insist on."""

    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }


def serve(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of this machine alone; port 0 takes one that is free."""
    handler = functools.partial(Handler, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", action="store_true", help="build only")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    print("Building the model, in some ten seconds ...", file=sys.stderr, flush=True)
    build(HERE / "built")
    if not options.build:
        with serve(HERE, options.port) as server:
            print(f"http://localhost:{server.server_port} (Ctrl-C ends it)")
            server.serve_forever()


if __name__ == "__main__":
    main()
