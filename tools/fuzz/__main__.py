"""Search for models, files and streams that break a promise, for as long as there is time.

python -m tools.fuzz files --seconds 60      damaged files: no crash, no hang, no bare exception
python -m tools.fuzz graphs --seconds 60     random valid graphs against other runtimes
python -m tools.fuzz loops --seconds 60      random loops whose states grow, likewise
python -m tools.fuzz streams --seconds 60    random networks: the steps are the whole, delayed
python -m tools.fuzz images --seconds 60     random networks for images of any size, likewise
python -m tools.fuzz states --seconds 60     random models with states: streams and pools are calls
python -m tools.fuzz libraries --seconds 60  the same models as C libraries
python -m tools.fuzz quantised --seconds 60  networks that quantisers have narrowed, likewise
python -m tools.fuzz decoders --seconds 60   the loop around steps of a decoder is its steps
python -m tools.fuzz modules --seconds 60    modules of PyTorch, where it is: results, gradients
python -m tools.fuzz gradients --seconds 60  of random graphs: they are central differences

Each subcommand is a module of this package whose `run` takes the options below and returns the
number of failures found; the exit code is 1 when there are any.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

SECONDS = typer.Option(60.0, help="Stop after this time.")
SEED = typer.Option(0, help="The same seed tries the same things in the same order.")
COUNT = typer.Option(0, help="Stop after so many tries; 0 for no limit but the time.")
FOLDER = typer.Option(Path("/tmp/ostinato-fuzz"), help="Where what fails is kept, made small.")


def _run(name: str, seconds: float, seed: int, count: int, folder: Path) -> None:
    module = importlib.import_module(f"tools.fuzz.{name}")
    failures = module.run(seconds, seed, count or None, folder=folder / name)
    raise typer.Exit(1 if failures else 0)


@app.command()
def files(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Damage the bytes and the structure of small models; load and run each in a guarded child."""
    _run("files", seconds, seed, count, folder)


@app.command()
def graphs(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Compare random valid graphs with other runtimes."""
    _run("graphs", seconds, seed, count, folder)


@app.command()
def images(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Compare random networks for images of any size with other runtimes."""
    _run("images", seconds, seed, count, folder)


@app.command()
def loops(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Compare random loops, whose states change their sizes, with other runtimes."""
    _run("loops", seconds, seed, count, folder)


@app.command()
def streams(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Convert random networks to streams and compare the steps with the whole."""
    _run("streams", seconds, seed, count, folder)


@app.command()
def states(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Operate on streams and pools of random models, and compare with calls that carry states."""
    _run("states", seconds, seed, count, folder)


@app.command()
def libraries(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Call C libraries of random models, and compare with the session."""
    _run("libraries", seconds, seed, count, folder)


@app.command()
def quantised(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Compare random networks that quantisers have narrowed with other runtimes."""
    _run("quantised", seconds, seed, count, folder)


@app.command()
def decoders(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Compare what loops around steps of random decoders generate with what the steps do."""
    _run("decoders", seconds, seed, count, folder)


@app.command()
def modules(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Compare results and gradients of random modules of PyTorch with those in float64."""
    _run("modules", seconds, seed, count, folder)


@app.command()
def gradients(
    seconds: float = SECONDS, seed: int = SEED, count: int = COUNT, folder: Path = FOLDER
) -> None:
    """Compare gradients of random valid graphs with central differences."""
    _run("gradients", seconds, seed, count, folder)


if __name__ == "__main__":
    app()
