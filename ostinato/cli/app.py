"""The `ostinato` program: its commands in the order of `--help`."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from ostinato.cli.bench import bench
from ostinato.cli.build import build
from ostinato.cli.cache import app as cache
from ostinato.cli.compare import compare
from ostinato.cli.demo import demo
from ostinato.cli.inspect import inspect
from ostinato.cli.profile import profile
from ostinato.cli.quantize import quantize
from ostinato.cli.run import run
from ostinato.cli.serve import serve
from ostinato.cli.stream import stream
from ostinato.version import __version__

app = typer.Typer(
    help="Compile ONNX models that repeat into one native function; run, measure, inspect them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)
# Each with a call that shows its usual options, below its help.
for command, example in (
    (run, "MODEL --dim time=100 --input x=x.npy --output-dir out"),
    (bench, "MODEL --dim time=100 --vs onnxruntime"),
    (compare, "MODEL --dim time=100 --vs reference"),
    (inspect, "MODEL --why"),
    (profile, "MODEL --dim time=100 --html profile.html"),
    (stream, "MODEL --time time -o stream.onnx --verify"),
    (quantize, "MODEL -o int8.onnx --weights int8 --verify"),
    (build, "MODEL -o lib --state h_in=h_out --dim batch=1 --target x86-64-v3"),
    (serve, "MODEL --state h_in=h_out --frame-ms 10"),
    (demo, "--output demo-output"),
):
    app.command(epilog=f"Example: ostinato {command.__name__} {example}")(command)
app.add_typer(cache, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ostinato {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the program itself."""
    # The logger says it too, and names the model.
    warnings.filterwarnings("ignore", message=".* is not all native code")
