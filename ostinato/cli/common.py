"""Shared parts of the commands: common options, error reporting, sessions, inputs, output."""

from __future__ import annotations

import contextlib
import dataclasses
import json as jsonlib
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import ostinato
from ostinato.errors import OptionError, OstinatoError
from ostinato.files import require_model
from ostinato.machine.targets import HOST
from ostinato.options import Options, default_cache_dir
from ostinato.program.title import title

if TYPE_CHECKING:
    import rich.console
    import rich.progress
    import rich.table

    from ostinato.runtime.session import InferenceSession


def checked(context: typer.Context, path: Path | None) -> Path | None:
    """The path, once it leads to what may be a model: before anything heavy is imported."""
    with error_line(context.params.get("debug", False)):
        if path is not None:
            require_model(path)
    return path


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", callback=checked)]
Dim = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="Size of a named dimension (default 1)."),
]
InputFile = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="NAME=FILE.npy", help="An input; those not given are random, fixed seed."
    ),
]
Disable = Annotated[
    list[str] | None,
    typer.Option("--disable", metavar="PASS", help="Leave out a pass of `inspect --passes`."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A number or switch of `ostinato.Options`."),
]
Target = Annotated[
    str,
    typer.Option("--target", metavar="NAME", help="Machine to compile for (docs/targets.md)."),
]
NoFallback = Annotated[
    bool, typer.Option("--no-fallback", help="Refuse ops that have no native kernel.")
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Compile afresh and leave the cache alone.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, nothing else.")]
# Eager: errors of the arguments show it too.
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", is_eager=True)
]

# The largest size that ONNX can say.
_MOST = 2**63 - 1

# A terminal of fewer columns has no room for a table of kernels with the folders of nodes.
_NARROW = 110
# A column of fewer characters cuts words into letters; rich ends at one without any.
_LEAST = 5


def require_writable(*paths: Path | None) -> None:
    """Raise `OptionError` for files that cannot be written, before the work for them begins."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise OptionError(f"{path}: there is no folder {path.parent}")
        if path is not None and path.is_dir():
            raise OptionError(f"{path}: it is a folder, name a file in it")


def console() -> rich.console.Console:
    """The console for results: stdout, wide enough for every table where that is no terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Console(highlight=False, markup=False, width=width)


def error_console() -> rich.console.Console:
    """The console for progress and errors: stderr, so that stdout holds results alone."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)


@contextlib.contextmanager
def error_line(debug: bool) -> Iterator[None]:
    """Turn an error raised on purpose, or by the file system, into one line and exit code 2."""
    try:
        yield
    except (OstinatoError, OSError) as error:
        # Whoever read stdout, such as `head`, has had enough: no error to tell of.
        if debug or isinstance(error, BrokenPipeError):
            raise
        text = str(error)
        named = isinstance(error, OSError) and isinstance(error.filename, (str, bytes))
        if named and not isinstance(error, OstinatoError):
            text = f"{os.fsdecode(error.filename)}: {error.strerror}"
        # Not by rich, whose import takes a sixth of the time until an error is said.
        forced = True if os.environ.get("FORCE_COLOR") else None
        colored = False if os.environ.get("NO_COLOR") else forced
        typer.secho(f"error: {text}", fg=typer.colors.RED, err=True, color=colored)
        raise typer.Exit(2) from error


def fail(messages: Sequence[str]) -> NoReturn:
    """Print what an assertion found and exit with code 1."""
    for message in messages:
        error_console().print(f"failed: {message}", style="red", soft_wrap=True)
    raise typer.Exit(1)


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """A spinner on stderr while something takes its time; nothing where stderr is no terminal."""
    with error_console().status(text):
        yield


def progress() -> rich.progress.Progress:
    """A progress bar on stderr that disappears when done; nothing where stderr is no terminal."""
    from rich.progress import Progress

    console = error_console()
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def table(heading: str, *columns: str, left: int = 1) -> rich.table.Table:
    """An empty table: the first `left` columns are text, the others figures.

    `show` prints it.
    """
    from rich import box
    from rich.table import Table

    result = Table(
        title=heading,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        min_width=min(len(heading), 76),
    )
    for i, column in enumerate(columns):
        if i < left:
            result.add_column(column, overflow="fold")
        else:
            result.add_column(column, justify="right", overflow="fold")
    return result


def show(table: rich.table.Table) -> None:
    """Print a table on stdout.

    What a terminal has no room for is folded, the widest columns first, and nothing is cut. In a
    narrow one columns are closer together, and its lines go on in the next where columns would
    have no room for a word.
    """
    target = console()
    target.width = max(target.width, _LEAST * len(table.columns))
    is_narrow = target.width < _NARROW
    if is_narrow:
        table.show_edge = table.pad_edge = False
        table.collapse_padding = True
    target.print(table)
    if is_narrow:
        # In place of the edge that is left out.
        target.print()


def kernel_title(nodes: Sequence[str]) -> str:
    """The title of a kernel, in a narrow terminal without the folders of its last node."""
    narrow = console().width < _NARROW
    return title([node.rpartition("/")[2] for node in nodes] if narrow else nodes)


def print_json(value: Any) -> None:
    """Print `value` as JSON; NaN and infinities, which JSON lacks, become strings."""
    print(jsonlib.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def parse_pairs(
    option: str, texts: Sequence[str] | None, form: str = "NAME=VALUE"
) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dict.

    Raises `OptionError` that names the option, the text and its form, or a name with two values.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise OptionError(f"{option} {text!r}: expected {form}")
        if pairs.setdefault(name, value) != value:
            raise OptionError(f"{option}: {name!r} has two values, {pairs[name]} and {value}")
    return pairs


def parse_sizes(option: str, texts: Sequence[str] | None) -> dict[str, int]:
    """`["T=100"]` as `{"T": 100}`. Raises `OptionError` for anything but a size, of 64 bits."""
    sizes = {}
    for name, value in parse_pairs(option, texts, "NAME=SIZE").items():
        if not value.isdecimal():
            raise OptionError(f"{option} {name}={value}: expected a whole number of 0 or more")
        # Python reads no number of thousands of digits.
        digits = value.lstrip("0") or "0"
        if len(digits) > len(str(_MOST)) or int(digits) > _MOST:
            raise OptionError(f"{option} {name}={value[:24]}: expected at most {_MOST}")
        sizes[name] = int(digits)
    return sizes


def parse_fields(texts: Sequence[str] | None) -> dict[str, bool | int]:
    """`["seed=3", "integer_products=true"]` as fields of `Options`.

    Raises `OptionError` for other names than those of numbers and switches without an option of
    their own, and for other values than whole numbers, true and false.
    """
    kinds = {f.name: f.type for f in dataclasses.fields(Options) if f.type in ("bool", "int")}
    del kinds["fallback"]
    found: dict[str, bool | int] = {}
    for name, value in parse_pairs("--set", texts).items():
        if name not in kinds:
            raise OptionError(f"--set {name}={value}: expected one of {', '.join(kinds)}")
        try:
            found[name] = _SWITCH[value.lower()] if kinds[name] == "bool" else int(value)
        except (KeyError, ValueError):
            wanted = "true or false" if kinds[name] == "bool" else "a whole number"
            raise OptionError(f"--set {name}={value}: expected {wanted}") from None
    return found


_SWITCH = {"true": True, "false": False}


def make_options(
    disable: Sequence[str] | None,
    no_fallback: bool,
    no_cache: bool,
    target: str = HOST,
    fields: Sequence[str] | None = None,
) -> Options:
    """The `Options` of the common flags."""
    return Options(
        **parse_fields(fields),  # type: ignore[arg-type]
        disable=tuple(disable or ()),
        fallback=not no_fallback,
        cache_dir=None if no_cache else default_cache_dir(),
        target=target,
    )


def open_session(model: Path, options: Options) -> InferenceSession:
    """A session, with a spinner while the model is compiled or loaded."""
    with status(f"Compiling {model.name}"):
        session: InferenceSession = ostinato.InferenceSession(model, options)
    return session


def format_seconds(seconds: float) -> str:
    """A duration with three significant digits in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return (
                f"{seconds / scale:.3g} {unit}"
                if seconds / scale < 999.5
                else (f"{seconds / scale:.0f} {unit}")
            )
    return f"{seconds / 1e-9:.3g} ns"


def format_count(count: float) -> str:
    """A number with three significant digits and the prefix that suits it: 3.72 M."""
    for prefix in ("", " k", " M", " G"):
        if count < 999.5:
            return f"{count:.3g}{prefix}"
        count /= 1000
    return f"{count:.3g} T"


def format_bytes(count: float) -> str:
    """A number of bytes in B, KiB, MiB or GiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def format_shape(shape: Sequence[object]) -> str:
    """`[2, T, 64]`, brackets included."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
