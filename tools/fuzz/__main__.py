"""Search for models, files and streams that break a promise, for as long as there is time.

    python -m tools.fuzz NAME --seconds 60

NAME is a module of this package whose `run` takes the options below and returns the number of
failures found; the exit code is 1 when there are any. Random models are compared with other
runtimes, and each in another mode that must have the same bits.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import typer

SEARCHES = {
    "files": (
        "Damage the bytes and the structure of small models; load and run each in a guarded child."
    ),
    "arguments": "Call public functions with wrong arguments.",
    "contributed": "Compare nodes of onnxruntime's own domains with onnxruntime.",
    "edited": "Rewrite models of the tests into equivalent ones; compare bits and time.",
    "graphs": "Compare random valid graphs with other runtimes.",
    "moves": "Compare graphs that move elements, with several readers of each value, with NumPy.",
    "nodes": "Compare single nodes of any operator and version, with rare values.",
    "images": "Compare random networks for images of any size with other runtimes.",
    "loops": "Compare random loops, whose states change their sizes, with other runtimes.",
    "streams": "Convert random networks to streams and compare the steps with the whole.",
    "frames": "Convert random nodes and graphs to streams along any axis; compare the bits.",
    "everywhere": (
        "Run random networks over sequences in every way: at once and in steps, by sessions, "
        "streams, pools, C libraries and programs for other machines."
    ),
    "states": (
        "Operate on streams and pools of random models, and compare with calls that carry states."
    ),
    "libraries": "Call C libraries of random models, and compare with the session.",
    "quantised": "Compare random networks that quantisers have narrowed with other runtimes.",
    "stored": "Compare nodes that read narrow constants with the same on what these stand for.",
    "decoders": (
        "Compare what loops around steps of random decoders generate with what the steps do."
    ),
    "modules": "Compare results and gradients of random modules of PyTorch with those in float64.",
    "layers": (
        "Compare layers of PyTorch of all types and shapes, at changing sizes, with eager PyTorch."
    ),
    "commands": "Call the command line on models and inputs, good and bad ones.",
    "gradients": "Compare gradients of random valid graphs with central differences.",
}

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

SECONDS = typer.Option(60.0, help="Stop after this time.")
SEED = typer.Option(0, help="The same seed tries the same things in the same order.")
COUNT = typer.Option(0, help="Stop after so many tries; 0 for no limit but the time.")
FOLDER = typer.Option(Path("/tmp/ostinato-fuzz"), help="Where what fails is kept, made small.")


def _command(name: str, sentence: str) -> None:
    """Add the subcommand of a module."""

    @app.command(name, help=sentence)
    def search(
        seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
    ) -> None:
        module = importlib.import_module(f"tools.fuzz.{name}")
        failures = module.run(seconds, seed, count or None, folder=folder / name)
        raise typer.Exit(1 if failures else 0)


for name, sentence in SEARCHES.items():
    _command(name, sentence)

if __name__ == "__main__":
    app()
