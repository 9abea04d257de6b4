"""Build a compiled model from a model in any form, through the cache."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping, MutableSequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ostinato.errors import ModelError
from ostinato.files import contents, open_file
from ostinato.garbage import uncollected
from ostinato.guards import Guards
from ostinato.native.cache import Cache, Entry, machine_key
from ostinato.options import Options
from ostinato.protobuf.structure import Parts, split
from ostinato.stages import checkpoints
from ostinato.stages.packed import pack, unpack
from ostinato.stages.report import Report, not_native, report_of
from ostinato.stages.stage import CompiledModel, FallbackStage, Keeping, NativeStage

_LOGGER = logging.getLogger("ostinato")
# A tensor that lies in a file says so under this key.
_LOCATION = b"location"
_KEY = len(_LOCATION) - 1
# Bytes of a file that are in memory at once.
_PIECE = 1 << 20


def build(
    model: Any,
    options: Options,
    guarded: Guards = Guards.NONE,
    kept: Keeping | None = None,
) -> tuple[CompiledModel, bool]:
    """The compiled model, and whether it came from the cache.

    Its report has the "fingerprint" of the given model, which options and machine do not change.

    model: path, bytes, onnx.ModelProto or onnx_ir.Model. guarded, kept: as in `compile_model`.
    Raises what the compiler raises.
    """
    if isinstance(model, (bytearray, memoryview)):
        model = bytes(model)
    identity = _identity(model)
    if identity is None:
        return _compile(model, options, guarded, kept), False
    digest, folder = identity
    if options.cache_dir is None:
        compiled = _compile(model, options, guarded, kept)
        return _identified(compiled, digest, _external_data(model, folder)), False
    cache = Cache(options.cache_dir, options.cache_bytes)
    facts = _relevant(options) | {
        "guarded": int(guarded),
        "kept": None if kept is None else dataclasses.asdict(kept),
    }
    key = machine_key(digest.digest(), json.dumps(facts, sort_keys=True))
    entry = cache.load(key)
    if entry is not None and _external_data_unchanged(entry, folder):
        return unpack(entry.header["model"], entry.blobs), True
    structure, weights, files = _split(model, folder)
    by_structure = machine_key("checkpoint", structure, json.dumps(facts, sort_keys=True))
    found = checkpoints.find(cache, by_structure, weights) if weights else None
    if found is not None:
        # Making its constants anew takes less time than writing them, and no room.
        return _identified(found, digest, _digests(folder, files)), True
    checkpoint = checkpoints.Checkpoint(weights) if weights else None
    compiled = _compile(model, options, guarded, kept, checkpoint)
    external = _external_data(model, folder)
    if checkpoint is not None and files == external.keys():
        checkpoints.store(cache, by_structure, compiled, checkpoint)
    compiled = _identified(compiled, digest, external)
    model_header, blobs = pack(compiled)
    header = {"model": model_header, "external_data": external}
    # The name of the model for `ostinato cache list`.
    for kind, arguments in (("inputs", compiled.inputs), ("outputs", compiled.outputs)):
        header[kind] = [argument.name for argument in arguments]
    cache.store(key, header, blobs)
    return compiled, False


def _split(model: Any, folder: Path | None) -> Parts:
    """As `protobuf.structure.split`; no weights where the model is an object of another library."""
    nothing = Parts(b"", [], frozenset())
    if not isinstance(model, (str, os.PathLike, bytes)):
        return nothing
    try:
        if isinstance(model, bytes):
            return split(memoryview(model))
        with open_file(model) as file:
            data = contents(file)
        return split(data, folder)
    except (IndexError, OSError, RecursionError, ValueError):
        # The compiler says what is wrong with it.
        return nothing


def report(model: Any, options: Options) -> Report:
    """The report of a session of the model, also for code for another machine.

    Arenas whose size follows from run-time sizes count as 0. Raises what the compiler raises.
    """
    compiled, from_cache = build(model, options, guarded=Guards.LIKELY)
    stages = [*compiled.whole()]
    fallback = [not_native(stage) for stage in stages if isinstance(stage, FallbackStage)]
    fallback += compiled.report.get("other_sizes", ())
    artifacts = [stage.artifact for stage in stages if isinstance(stage, NativeStage)]
    arenas = [artifact.report["arena_bytes"] for artifact in artifacts]
    arena_bytes = sum(size for size in arenas if isinstance(size, int))
    return report_of(compiled, artifacts, fallback, arena_bytes, from_cache)


def fingerprint(model: Any) -> str | None:
    """Text that is another one for every model; None for what is none."""
    if isinstance(model, (bytearray, memoryview)):
        model = bytes(model)
    identity = _identity(model)
    if identity is None:
        return None
    digest, folder = identity
    return _fingerprint(digest, _external_data(model, folder))


def require_same(model: Any, compiled: CompiledModel) -> None:
    """Raise `ModelError` unless `compiled` was made of the model as it is now."""
    if fingerprint(model) != compiled.report.get("fingerprint"):
        raise ModelError("the model is not what it was when the session was made")


def without_defaults(model: Any, names: Collection[str]) -> tuple[Any, dict[str, Any]]:
    """The model whose initializers of these names are inputs only, and their values."""
    from ostinato.compiler import without_defaults

    changed: tuple[Any, dict[str, Any]] = without_defaults(model, names)
    return changed


def _fingerprint(digest: hashlib._Hash, external: Mapping[str, str | None]) -> str:
    digest = digest.copy()
    digest.update(json.dumps(external, sort_keys=True).encode())
    return digest.hexdigest()


def _identified(
    compiled: CompiledModel, digest: hashlib._Hash, external: Mapping[str, str | None]
) -> CompiledModel:
    report = {**compiled.report, "fingerprint": _fingerprint(digest, external)}
    return dataclasses.replace(compiled, report=report)


def _compile(
    model: Any,
    options: Options,
    guarded: Guards,
    kept: Keeping | None,
    checkpoint: checkpoints.Checkpoint | None = None,
) -> CompiledModel:
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "a model"
    _LOGGER.info("compiling %s", name)
    begun = perf_counter()
    with uncollected():
        from ostinato.compiler import compile_model

        compiled: CompiledModel = compile_model(
            model, options, guarded, kept, checkpoint=checkpoint
        )
    _LOGGER.info("compiled %s in %.1f s", name, perf_counter() - begun)
    return compiled


def _relevant(options: Options) -> dict[str, Any]:
    facts = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    del facts["cache_dir"], facts["cache_bytes"]
    return facts | {"specialize": dict(options.specialize)}


def _identity(model: Any) -> tuple[hashlib._Hash, Path | None] | None:
    """A digest that tells the model from others, and the folder of files with its tensors.

    None if it cannot be read, so that the compiler says why. A file is never in memory as a whole.
    """
    digest = hashlib.sha256()
    if not isinstance(model, (str, os.PathLike)):
        data = _serialised(model)
        if data is None:
            return None
        digest.update(data)
        return digest, None
    has_files, before = False, b""
    try:
        with open_file(model) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                # The key may lie across two pieces. From the end Python searches twice as fast.
                ends = before + piece[:_KEY]
                has_files = has_files or piece.rfind(_LOCATION) >= 0 or _LOCATION in ends
                before = piece[-_KEY:]
    except (OSError, ValueError):
        return None
    return digest, Path(os.fspath(model)).parent if has_files else None


def _serialised(model: Any) -> bytes | None:
    """The bytes of a model in memory; None if it has none."""
    if isinstance(model, bytes):
        return model
    try:
        if type(model).__module__.partition(".")[0] == "onnx_ir":
            import onnx_ir

            model = onnx_ir.to_proto(model)
        return bytes(model.SerializeToString(deterministic=True))
    except Exception:
        return None


def _digest(path: Path) -> str | None:
    try:
        with open_file(path, follow=False) as file:
            digest = hashlib.sha256()
            while chunk := file.read(1 << 20):
                digest.update(chunk)
            return digest.hexdigest()
    except (OSError, ValueError):
        return None


def _external_data_unchanged(entry: Entry, folder: Path | None) -> bool:
    files = entry.header["external_data"]
    if not files:
        return True
    return folder is not None and all(_digest(folder / f) == d for f, d in files.items())


def _external_data(model: Any, folder: Path | None) -> dict[str, str | None]:
    """Digests of the files in `folder` that hold the model's weights, by relative path.

    Only what compiling reads is looked at: training information is left out, and so is what a
    tensor with data of its own says of files.
    """
    if folder is None:
        return {}
    import onnx

    with open_file(model) as file:
        proto = onnx.ModelProto.FromString(file.read())
    locations: set[str] = set()
    for part in (proto.graph, *proto.functions):
        _collect_locations(part, locations)
    return _digests(folder, locations)


def _digests(folder: Path | None, names: Iterable[str]) -> dict[str, str | None]:
    """Digests of files in a folder, by name."""
    return {} if folder is None else {name: _digest(folder / name) for name in sorted(names)}


def _collect_locations(message: Any, locations: set[str]) -> None:
    """Visit every tensor in a proto, wherever it is nested."""
    for field, value in message.ListFields():
        if field.name == "external_data":
            if message.data_location == message.EXTERNAL:
                locations.update(entry.value for entry in value if entry.key == "location")
        elif field.message_type is not None:
            for item in value if isinstance(value, MutableSequence) else [value]:
                _collect_locations(item, locations)
