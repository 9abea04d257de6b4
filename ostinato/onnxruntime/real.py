"""The real onnxruntime, for what cannot be native: found, loaded beside ours, and called."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ostinato.onnxruntime.errors import translated
from ostinato.onnxruntime.logs import LOGGER
from ostinato.onnxruntime.options import SessionOptions
from ostinato.onnxruntime.values import unwrapped

NAME = "onnxruntime"
_LOCK = threading.RLock()
_module: Any = None


def folders() -> list[str]:
    """The folders of the real package; empty if it is not installed."""
    spec = importlib.machinery.PathFinder.find_spec(NAME)
    return [] if spec is None else list(spec.submodule_search_locations or ())


def module() -> Any:
    """The real onnxruntime's module; None where there is none, or where it does not load."""
    global _module
    with _LOCK:
        if not folders():
            return None
        if _module is None:
            try:
                with _without_ours():
                    _module = importlib.import_module(NAME)
            except Exception as error:
                LOGGER.warning("the real onnxruntime does not load: %s", error)
        return _module


@contextmanager
def _without_ours() -> Iterator[None]:
    """Let the name mean the real package, while another module may stand for it."""
    ours = {name: sys.modules[name] for name in [*sys.modules] if _is_inside(name)}
    stands_for = bool(ours) and getattr(ours.get(NAME), "IS_OSTINATO", False)
    finders = [finder for finder in sys.meta_path if getattr(finder, "is_ostinato", False)]
    if not stands_for:
        yield
        return
    for name in ours:
        del sys.modules[name]
    for finder in finders:
        sys.meta_path.remove(finder)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _is_inside(name)]:
            del sys.modules[name]
        sys.modules.update(ours)
        sys.meta_path[:0] = finders


def _is_inside(name: str) -> bool:
    return name == NAME or name.startswith(NAME + ".")


class RealSession:
    """A session of the real onnxruntime, whose errors are those of this package."""

    def __init__(self, model: Any, options: SessionOptions, providers: Sequence[Any]) -> None:
        theirs = module()
        available = set(theirs.get_available_providers())
        known = [p for p in providers if (p if isinstance(p, str) else p[0]) in available]
        # Its options point to the values of initializers, and nothing else keeps these alive.
        self._values: list[Any] = []
        try:
            given = _options(theirs, options, self._values)
            self.session = theirs.InferenceSession(model, given, providers=known or None)
        except Exception as error:
            raise translated(error) from error

    def run(self, output_names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        """As `ostinato.InferenceSession.run`."""
        plain = {name: unwrapped(value) for name, value in feed.items()}
        try:
            return list(self.session.run(output_names, plain))
        except Exception as error:
            raise translated(error) from error


def _options(theirs: Any, options: SessionOptions, values: list[Any]) -> Any:
    """The options as an object of the real onnxruntime; `values` gets what it points to."""
    result = theirs.SessionOptions()
    for name, value in options.changed().items():
        kind = getattr(theirs, type(value).__name__, None)
        setattr(result, name, value if kind is None else getattr(kind, value.name))
    for method, arguments in options._calls:
        if method == "add_initializer":
            name, value = arguments
            values.append(theirs.OrtValue.ortvalue_from_numpy(unwrapped(value)))
            arguments = (name, values[-1])
        if method == "add_external_initializers":
            names, values = arguments
            given = [theirs.OrtValue.ortvalue_from_numpy(unwrapped(value)) for value in values]
            values += given
            arguments = (names, given)
        if hasattr(result, method):  # or it is known to no release that is here
            getattr(result, method)(*arguments)
    return result
