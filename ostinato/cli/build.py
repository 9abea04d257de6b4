"""`ostinato build`: a C library of a model, for this machine or another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common
from ostinato.cli.feeds import read_array
from ostinato.errors import OptionError
from ostinato.garbage import uncollected
from ostinato.machine.targets import HOST

if TYPE_CHECKING:
    from ostinato.aot.library import Library


def build(
    model: common.ModelPath,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files.")
    ],
    target: common.Target = HOST,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="INPUT=OUTPUT", help="A state that NAME_step keeps."),
    ] = None,
    initial: Annotated[
        list[str] | None,
        typer.Option(
            "--initial", metavar="INPUT=FILE.npy", help="What a state begins with (default zeros)."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Prefix of functions and files (default: MODEL's)."
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="Build for this size of a dimension."),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            "--weights", metavar="inside|file", help="In the library, or in a file apart."
        ),
    ] = "inside",
    shared: Annotated[
        bool | None,
        typer.Option("--shared/--no-shared", help="Link a shared library (default: if possible)."),
    ] = None,
    disable: common.Disable = None,
    set: common.Set = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Write a C library of a model: a header, and a library that needs nothing else."""
    with common.error_line(debug):
        options: dict[str, Any] = {
            "specialize": common.parse_sizes("--dim", dim),
            "disable": tuple(disable or ()),
            **common.parse_fields(set),
        }
        states = common.parse_pairs("--state", state, "INPUT=OUTPUT") or None
        values = common.parse_pairs("--initial", initial, "INPUT=FILE.npy")
        first = {input_: read_array(input_, path) for input_, path in values.items()}
        with common.status(f"Compiling {model.name}"), uncollected():
            from ostinato.aot import build as aot

            library = aot.make_library(model, target, states, name, first, weights, options)
        _write(library, output, shared, json)


def _write(library: Library, output: Path, shared: bool | None, json: bool) -> None:
    """Write the files. Without a linker what needs one is left out, an error where it is asked."""
    from ostinato.aot import build as aot

    files, missing = aot.static_files(library), None
    if shared is not False:
        try:
            with common.status(f"Linking {library.name}"):
                files |= aot.linked_files(library)
        except OptionError as error:
            missing = error
    _print(library, aot.write_files(output, files), json)
    if missing is not None:
        if shared:
            raise missing
        common.error_console().print(f"not linked: {missing}", style="yellow", soft_wrap=True)


def _print(library: Library, written: list[Path], json: bool) -> None:
    parts = {
        "code": library.code_bytes,
        "weights": library.interface.constant_bytes,
        "header": len(library.header()),
    }
    rows = [(str(path), path.stat().st_size) for path in written]
    if json:
        files = [{"path": path, "bytes": size} for path, size in rows]
        common.print_json({"target": library.target.triple, "files": files, "bytes": parts})
        return
    console = common.console()
    table = common.table(f"{library.interface.title} for {library.target.triple}", "file", "bytes")
    for path, size in rows:
        table.add_row(path, f"{size:,}")
    common.show(table)
    said = ", ".join(f"{name} {size:,}" for name, size in parts.items())
    console.print(f"bytes: {said}")
