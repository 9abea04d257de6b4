"""`ostinato cache`: what the cache of compiled models holds, and emptying it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ostinato.cli import common
from ostinato.options import default_cache_dir

Folder = Annotated[
    Path | None, typer.Option("--cache-dir", help="Another folder than the user's own.")
]

app = typer.Typer(help="What compiled models are kept, and removing them.", no_args_is_help=True)


def _cache(folder: Path | None) -> tuple[Path, Any]:
    from ostinato.native.cache import Cache

    folder = folder or default_cache_dir()
    return folder, Cache(folder)


@app.command()
def info(folder: Folder = None, json: common.Json = False) -> None:
    """Say where compiled models are kept, how many, and how much space they take."""
    folder, cache = _cache(folder)
    sizes = [facts.st_size for _, facts in cache.entries()]
    if json:
        common.print_json({"folder": str(folder), "entries": len(sizes), "bytes": sum(sizes)})
        return
    common.console().print(f"{folder}: {len(sizes)} entries, {sum(sizes) / 2**20:.1f} MiB")


@app.command()
def clear(folder: Folder = None, json: common.Json = False) -> None:
    """Remove all compiled models; sessions that use them go on."""
    folder, cache = _cache(folder)
    removed = cache.trim(0)
    if json:
        common.print_json({"folder": str(folder), "removed": removed})
        return
    common.console().print(f"{folder}: {removed} files removed", soft_wrap=True)
