"""`ostinato run`: run a model once and show what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common
from ostinato.cli.feeds import is_float, open_fed
from ostinato.errors import OptionError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np


def run(
    model: common.ModelPath,
    input: common.InputFile = None,
    dim: common.Dim = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", metavar="DIR", help="Save every output here as NAME.npy."),
    ] = None,
    disable: common.Disable = None,
    set: common.Set = None,
    no_fallback: common.NoFallback = False,
    no_cache: common.NoCache = False,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Run a model once and show its outputs."""
    with common.error_line(debug):
        if output_dir:
            _make(output_dir)
        options = common.make_options(disable, no_fallback, no_cache, fields=set)
        session, feeds = open_fed(model, options, input, dim)
        with common.status(f"Running {model.name}"):
            values = session.run(None, feeds)
        outputs = dict(zip((o.name for o in session.get_outputs()), values, strict=True))
        others = {o.name: o.type for o in session.get_outputs() if not _is_array(outputs[o.name])}
        if others and output_dir:
            name, kind = next(iter(others.items()))
            reason = f"output {name!r} is {kind}, which no .npy file holds"
            raise UnsupportedError(model.name, "--output-dir", reason)
        saved = _save(outputs, output_dir) if output_dir else {}
        rows = [
            {**summary(name, value, others.get(name)), **saved.get(name, {})}
            for name, value in outputs.items()
        ]
        if json:
            common.print_json({"model": str(model), "outputs": rows})
            return
        table = common.table(model.name, "output", "type", "shape", "min", "mean", "max", left=3)
        for row in rows:
            figures = (row[key] for key in ("min", "mean", "max"))
            table.add_row(
                row["name"],
                row["type"],
                common.format_shape(row["shape"]),
                *("-" if figure is None else f"{figure:.6g}" for figure in figures),
            )
        common.show(table)
        if output_dir:
            common.console().print(f"saved to {output_dir}", soft_wrap=True)


def _is_array(value: object) -> bool:
    """Whether an output is a tensor; sequences, maps and optionals are not."""
    return hasattr(value, "dtype")


def summary(name: str, value: Any, kind: str | None = None) -> dict[str, Any]:
    """Name, type, shape, and min, mean and max, which are None where there are no numbers.

    kind: the type of what is no array; its shape is then its length.
    """
    import numpy as np

    if kind is not None:
        shape = [0 if value is None else len(value)]
        return {"name": name, "type": kind, "shape": shape, "min": None, "mean": None, "max": None}
    kind = "string" if value.dtype.kind in "OSU" else str(value.dtype)
    row = {"name": name, "type": kind, "shape": list(value.shape)}
    if is_float(value.dtype) and value.dtype.kind != "f":
        value = value.astype(np.float32)
    if not value.size or value.dtype.kind not in "biuf":
        return {**row, "min": None, "mean": None, "max": None}
    mean = float(np.mean(value, dtype=np.float64))
    return {**row, "min": float(value.min()), "mean": mean, "max": float(value.max())}


def _make(folder: Path) -> None:
    """Make a folder for the outputs, before anything runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise OptionError(
            f"{folder}: expected a folder for the outputs, there is a file"
        ) from error


def _save(outputs: dict[str, np.ndarray], folder: Path) -> dict[str, dict[str, str]]:
    """Write NAME.npy for each output; characters that make no file name become underscores."""
    import numpy as np

    saved: dict[str, dict[str, str]] = {}
    taken: set[str] = set()
    for index, (name, value) in enumerate(outputs.items()):
        stem = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "output"
        # Two names may differ in nothing but those characters, or in case alone.
        if stem.lower() in taken:
            stem = f"{stem}_{index}"
        taken.add(stem.lower())
        np.save(folder / f"{stem}.npy", value)
        saved[name] = {"file": str(folder / f"{stem}.npy")}
    return saved
