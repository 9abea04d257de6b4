"""Shared parts of the commands: common options, error reporting, sessions, inputs, output."""

from __future__ import annotations

import contextlib
import dataclasses
import json as jsonlib
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import ostinato
from ostinato.element_types import dtype_name
from ostinato.errors import InputError, OptionError, OstinatoError
from ostinato.files import require_model
from ostinato.machine.targets import HOST
from ostinato.options import Options, default_cache_dir

if TYPE_CHECKING:
    import numpy as np
    import rich.console
    import rich.progress
    import rich.table

    from ostinato.runtime.session import InferenceSession, NodeArg


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

SEED = 0
# The largest size that ONNX can say.
_MOST = 2**63 - 1


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
        if debug:
            raise
        text = str(error)
        named = isinstance(error, OSError) and isinstance(error.filename, (str, bytes))
        if named and not isinstance(error, OstinatoError):
            text = f"{os.fsdecode(error.filename)}: {error.strerror}"
        typer.secho(f"error: {text}", fg="red", err=True)
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


def table(title: str, *columns: str, left: int = 1) -> rich.table.Table:
    """An empty table: the first `left` columns are text, the others figures.

    A narrow terminal folds what it has no room for, the widest columns first, and cuts nothing.
    """
    from rich import box
    from rich.table import Table

    result = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        min_width=min(len(title), 76),
    )
    for i, column in enumerate(columns):
        if i < left:
            result.add_column(column, overflow="fold")
        else:
            result.add_column(column, justify="right", overflow="fold")
    return result


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


def parse_pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dict. Raises `OptionError` that names the option and the text."""
    pairs = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise OptionError(f"{option} {text!r}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def parse_sizes(option: str, texts: Sequence[str] | None) -> dict[str, int]:
    """`["T=100"]` as `{"T": 100}`. Raises `OptionError` for anything but a size, of 64 bits."""
    sizes = {}
    for name, value in parse_pairs(option, texts).items():
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


def open_fed(
    model: Path, options: Options, files: Mapping[str, str], dims: Mapping[str, int]
) -> tuple[InferenceSession, dict[str, np.ndarray]]:
    """A session, and an array for every input, as of `feeds_of`.

    Files that cannot be read, and names that the model does not have, are refused before it is
    compiled.
    """
    if (files or dims) and (inputs := declared(model)):
        sizes = {size for shape in inputs.values() for size in shape if size}
        _require_names(list(inputs), sizes, files, dims)
    for name, path in files.items():
        read_array(name, path)
    session = open_session(model, options)
    return session, feeds_of(session, files, dims)


def declared(model: Path) -> dict[str, list[str]]:
    """The names of the sizes of each input, as the file has them; empty for sizes without one.

    Of a file that is no model nothing: what compiles it says what is wrong with it.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        inputs = onnx.load(model, load_external_data=False).graph.input
    except DecodeError:
        return {}
    return {
        value.name: [size.dim_param for size in value.type.tensor_type.shape.dim]
        for value in inputs
    }


def _require_names(
    inputs: Sequence[str], sizes: AbstractSet[str], files: Iterable[str], dims: Iterable[str]
) -> None:
    for name in files:
        if name not in inputs:
            raise InputError(f"--input {name!r}: the model has no such input, it has {inputs}")
    for name in dims:
        if name not in sizes:
            raise InputError(
                f"--dim {name!r}: the model's inputs have no such dimension, "
                f"they have {sorted(sizes) or 'none with a name'}"
            )


def feedable(session: InferenceSession, files: Mapping[str, str]) -> list[NodeArg]:
    """The inputs, and those initializers that a file overrides."""
    defaults = session.get_overridable_initializers()
    return [*session.get_inputs(), *(value for value in defaults if value.name in files)]


def feeds_of(
    session: InferenceSession, files: Mapping[str, str], dims: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """An array for every input, as of `make_feeds`, of which the model makes finite numbers.

    Those that are made up are made positive where it does not, as a Log needs.

    Raises `InputError` for what `make_feeds` refuses, and where the model fails for such inputs.
    """
    import numpy as np

    feeds = make_feeds(feedable(session, files), files, dims)
    made_up = {name: array for name, array in feeds.items() if name not in files}
    if not made_up:
        return feeds
    try:
        results = session.run(None, feeds)
    except OstinatoError as error:
        told = ", ".join(f"{name}{format_shape(array.shape)}" for name, array in made_up.items())
        raise InputError(
            f"{error}; inputs were made up: {told}; where the model needs others, give "
            "--dim NAME=SIZE, if sizes have names, or --input NAME=FILE.npy"
        ) from error
    floats = {name: array for name, array in made_up.items() if is_float(array.dtype)}
    arrays = [array for array in results if isinstance(array, np.ndarray)]
    if all(np.isfinite(array).all() for array in arrays if is_float(array.dtype)):
        return feeds
    return {**feeds, **{name: np.asarray(np.abs(array)) for name, array in floats.items()}}


def make_feeds(
    arguments: Sequence[NodeArg], files: Mapping[str, str], dims: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """An array for every input: read from its file, or random with a fixed seed.

    A named dimension has the size that `dims` or a file gives it, else 1. Floats are normal with
    deviation 0.1; integers are 0 or 1, so that they are valid indices, and so are strings.

    Raises:
        InputError: a file names no input or is no .npy file, a dimension does not exist, or an
            input has a type that cannot be made up.
    """
    import numpy as np

    names = [argument.name for argument in arguments]
    named = {dim for arg in arguments for dim in arg.shape or () if isinstance(dim, str)}
    _require_names(names, named, files, dims)
    kinds = {argument.name: argument.type for argument in arguments}
    feeds = {name: read_array(name, path, kinds[name]) for name, path in files.items()}
    sizes: dict[str, int] = {}
    for argument in arguments:
        if argument.name in feeds:
            pairs = zip(argument.shape or (), feeds[argument.name].shape, strict=False)
            sizes.update((dim, size) for dim, size in pairs if isinstance(dim, str))
    sizes.update(dims)
    rng = np.random.default_rng(SEED)
    for argument in arguments:
        if argument.name not in feeds:
            feeds[argument.name] = _made_up(argument, sizes, rng)
    return {name: feeds[name] for name in names}


def _made_up(argument: NodeArg, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    import numpy as np

    if not argument.type.startswith("tensor(") or argument.shape is None:
        what = argument.type if argument.shape is not None else "unknown rank"
        raise InputError(
            f"input {argument.name!r}: values of {what} cannot be made up, "
            f"give --input {argument.name}=FILE.npy"
        )
    shape = [dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in argument.shape]
    dtype = numpy_type(argument.type)
    try:
        if dtype.kind == "O":
            return np.asarray(rng.integers(0, 2, shape).astype(str), dtype)
        values = 0.1 * rng.standard_normal(shape) if is_float(dtype) else rng.integers(0, 2, shape)
        return np.asarray(values, dtype)
    except (MemoryError, ValueError) as error:
        raise InputError(
            f"input {argument.name!r}: there is no memory for values of the shape {shape}; "
            "give smaller sizes, --dim NAME=SIZE, where they have names"
        ) from error


def numpy_type(kind: str) -> np.dtype[Any]:
    """The dtype of the elements of a type such as "tensor(bfloat16)"."""
    from ostinato.native.arguments import numpy_dtype

    return numpy_dtype(dtype_name(kind.removeprefix("tensor(").removesuffix(")")))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values are floats; to NumPy those of ml_dtypes are bytes without a meaning."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def read_array(name: str, path: str, kind: str = "") -> np.ndarray:
    """The array in a .npy file. Raises `InputError` that names the input.

    kind: the type of the input. NumPy stores what it does not know, as bfloat16, as bytes without
    a name, which are read as elements of that type.
    """
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"input {name!r}: cannot read {path}: {error.strerror}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"input {name!r}: {path} is not a .npy file of numbers") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"input {name!r}: {path} is an archive, expected one .npy array")
    if array.dtype.kind == "V" and kind.startswith("tensor("):
        wanted = numpy_type(kind)
        if wanted.kind == "V" and array.itemsize == wanted.itemsize:
            return array.view(wanted)
    return array


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
