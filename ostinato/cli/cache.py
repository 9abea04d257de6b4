"""`ostinato cache`: what the cache of compiled models holds, its limit, and emptying it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common
from ostinato.errors import OptionError
from ostinato.options import default_cache_dir

if TYPE_CHECKING:
    from ostinato.native.cache import Cache

Folder = Annotated[
    Path | None, typer.Option("--cache-dir", help="Another folder than the user's own.")
]
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

app = typer.Typer(
    help="What compiled models are kept, how much they may take, and removing them.",
    no_args_is_help=True,
)


def _cache(folder: Path | None) -> tuple[Path, Cache]:
    from ostinato.native.cache import Cache

    folder = folder or default_cache_dir()
    return folder, Cache(folder)


@app.command(name="list")
def list_entries(folder: Folder = None, json: common.Json = False) -> None:
    """List compiled models, the one that was used last first; all else is one line together."""
    folder, cache = _cache(folder)
    models: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for path, facts in cache.entries():
        header = cache.header(path)
        row: dict[str, Any] = {"key": path.name, "bytes": facts.st_size, "used": facts.st_mtime}
        if header is not None and "inputs" in header:
            models.append({**row, "model": _signature(header)})
        else:
            kernels.append(row)
    total = sum(row["bytes"] for row in kernels)
    if json:
        of_kernels = {"entries": len(kernels), "bytes": total}
        common.print_json({"folder": str(folder), "models": models, "kernels": of_kernels})
        return
    table = common.table(str(folder), "inputs -> outputs", "size", "last used")
    for model in models:
        table.add_row(
            model["model"], common.format_bytes(model["bytes"]), _age(time.time() - model["used"])
        )
    if kernels:
        table.add_row(f"{len(kernels)} kernels and programs", common.format_bytes(total), "")
    common.show(table)


def _signature(header: Mapping[str, Any]) -> str:
    """`magnitude, state -> mask, state_out`, of the header of a compiled model."""
    return " -> ".join(", ".join(header[key]) for key in ("inputs", "outputs"))


def _age(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600)):
        if seconds >= length:
            count = int(seconds / length)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "within the hour"


@app.command()
def size(folder: Folder = None, json: common.Json = False) -> None:
    """Say where compiled models are kept, how many, and how much space they take."""
    folder, cache = _cache(folder)
    sizes = [facts.st_size for _, facts in cache.entries()]
    if json:
        common.print_json({"folder": str(folder), "entries": len(sizes), "bytes": sum(sizes)})
        return
    taken = common.format_bytes(sum(sizes))
    common.console().print(f"{folder}: {len(sizes)} entries, {taken}", soft_wrap=True)


@app.command()
def clear(folder: Folder = None, json: common.Json = False) -> None:
    """Remove all compiled models; sessions that use them go on."""
    folder, cache = _cache(folder)
    removed = cache.trim(0)
    if json:
        common.print_json({"folder": str(folder), "removed": removed})
        return
    common.console().print(f"{folder}: {removed} files removed", soft_wrap=True)


@app.command()
def limit(
    most: Annotated[
        str | None,
        typer.Argument(
            metavar="SIZE", help="Such as 500M or 2G; `none` for that of each session alone."
        ),
    ] = None,
    folder: Folder = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Let compiled models take at most so much; without a size, say what the limit is.

    Those not used for the longest time go, now and whenever a new one is written.
    """
    with common.error_line(debug):
        folder, cache = _cache(folder)
        removed = 0
        if most is not None:
            cache.set_limit(_bytes(most))
            own = cache.folder_limit()
            removed = 0 if own is None else cache.trim(own)
    own = cache.folder_limit()
    if json:
        common.print_json({"folder": str(folder), "limit": own, "removed": removed})
        return
    said = "no limit but that of each session" if own is None else common.format_bytes(own)
    gone = f", {removed} files removed" if most is not None else ""
    common.console().print(f"{folder}: {said}{gone}", soft_wrap=True)


def _bytes(text: str) -> int | None:
    """`500M` as a number of bytes, None for `none`; raises `OptionError` for anything else."""
    if text.lower() == "none":
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"limit {text!r}: expected a size such as 500M or 2G, or none")
    return int(float(found[1]) * (1 << _UNITS[found[2].upper()]))
