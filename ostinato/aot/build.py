"""`ostinato.build`: the files of a C library of a model."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ostinato.aot.identifiers import checked_identifier, model_identifier
from ostinato.aot.library import Library, compile_library
from ostinato.aot.shared import shared_library
from ostinato.aot.webassembly import web_files
from ostinato.arguments import is_one_of
from ostinato.caller import warn
from ostinato.errors import OptionError
from ostinato.native.arguments import as_mapping
from ostinato.options import Options
from ostinato.runtime.states import Declaration
from ostinato.streaming.result import Conversion

WEIGHTS = ("inside", "file")
# The target of engines that do not fuse multiply-adds.
BASELINE = "wasm-baseline"


def build(
    model: Any,
    folder: str | os.PathLike[str],
    target: str = "host",
    states: Declaration | None = None,
    name: str | None = None,
    *,
    initial: Mapping[str, Any] | None = None,
    weights: Literal["inside", "file"] = "inside",
    shared: bool | None = None,
    **options: Any,
) -> list[Path]:
    """Write a C library of a model, that needs neither Python nor any other library.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model; or a `streaming.Conversion`, whose states
        and first values are taken from it.
    folder: gets the files, and is made where there is none.
    target: the machine that runs it (docs/targets.md).
    states: the output of each state by its input, as `InferenceSession.stream` takes them, which
        `NAME_step` keeps.
    name: of the library and the prefix of its functions; by default that of the model's file.
    initial: values before the first step, by input; zeros where there is none. Of axes that have a
        named size they have one element.
    weights: in the library, or in a file NAME.weights of their own.
    shared: whether to link a shared library as well, which takes `pip install 'ostinato[build]'`.
        None links one if it can, and warns where it cannot; True raises, with the rest written.
    options: fields of `Options`, such as `specialize={"T": 1}`.

    Returns the files: NAME.h, libNAME.a and, linked, libNAME.so, libNAME.dylib, or NAME.dll and
    NAME.lib; for WebAssembly NAME.wasm, NAME.mjs and NAME.d.mts.

    Raises `OptionError` for options that do not exist, `InputError` for states that do not fit,
    `UnsupportedError` for a model that is not native code as a whole, and what compiling raises.
    """
    place = Path(folder) if isinstance(folder, (str, os.PathLike)) else None
    if place is None:
        raise OptionError(f"folder={folder!r}: expected a path")
    library = make_library(model, target, states, name, initial, weights, options)
    # Files that need no linker are written even if linking fails.
    written = write_files(place, static_files(library))
    try:
        if shared is not False:
            written += write_files(place, linked_files(library))
    except OptionError as error:
        if shared:
            raise
        warn(f"{library.name}: {error}")
    return written


def make_library(
    model: Any,
    target: str,
    states: Declaration | None,
    name: str | None,
    initial: Mapping[str, Any] | None,
    weights: str,
    options: Mapping[str, Any],
) -> Library:
    """Compile what `build` writes."""
    if not is_one_of(weights, WEIGHTS):
        raise OptionError(f"weights={weights!r}: expected one of {', '.join(WEIGHTS)}")
    valid = [field.name for field in dataclasses.fields(Options)]
    for option in options:
        if option not in valid:
            raise OptionError(f"unknown option {option!r}: the options are {', '.join(valid)}")
    title = Path(os.fspath(model)).name if isinstance(model, (str, os.PathLike)) else "a model"
    if name is None:
        is_file = isinstance(model, (str, os.PathLike))
        name = model_identifier(Path(os.fspath(model)).stem if is_file else "model")
    checked_identifier(name)
    if isinstance(model, Conversion):
        # A model that looks at one frame at a time has no state.
        states = (model.states or None) if states is None else states
        initial = {**model.initial, **as_mapping("initial", {} if initial is None else initial)}
        model = model.model
    is_apart = weights == "file"

    def make(target: str) -> Library:
        chosen = Options(**{**options, "target": target})
        return compile_library(model, chosen, name, title, states, initial, is_apart)

    library = make(target)
    if library.target.machine.fused_multiply_add == "relaxed":
        library = dataclasses.replace(library, baseline=make(BASELINE))
    return library


def static_files(library: Library) -> dict[str, bytes]:
    """The contents of the files that need no linker, by name."""
    files = {f"{library.name}.h": library.header().encode()}
    if library.weights is not None:
        files[f"{library.name}.weights"] = library.weights
    return files | {f"lib{library.name}.a": library.archive()}


def linked_files(library: Library) -> dict[str, bytes]:
    """The files that a linker makes, by name. Raises `OptionError` where there is none."""
    return web_files(library) if library.target.object_format == "wasm" else shared_library(library)


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files so that whoever reads one meanwhile sees all of the old or all of the new.

    Raises `OptionError` where the folder cannot be made, or written to.
    """
    try:
        return _written(folder, files)
    except (FileExistsError, NotADirectoryError) as error:
        raise OptionError(f"{folder}: expected a folder for the files, there is a file") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise OptionError(f"{folder}: no files can be written there ({reason})") from error


def _written(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, contents in files.items():
        place = folder / name
        handle, draft = tempfile.mkstemp(prefix=f".{name}-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(contents)
            os.chmod(draft, 0o755 if place.suffix in (".so", ".dylib", ".dll") else 0o644)
            os.replace(draft, place)
        except BaseException:
            os.unlink(draft)
            raise
        written.append(place)
    return written
