"""Lets `import onnxruntime` get this package in the rest of the process."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from ostinato.onnxruntime import real

_OURS = "ostinato.onnxruntime"
# The modules of onnxruntime that are replaced. Others, such as its tools, are the real package's
# own.
NAMES = ("", ".capi", ".capi._pybind_state", ".capi.onnxruntime_inference_collection",
         ".capi.onnxruntime_pybind11_state")  # fmt: skip


class _Loader(importlib.abc.Loader):
    """Fills a module with the names of one of ours."""

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module(_OURS + module.__name__.removeprefix(real.NAME))
        names = {name: value for name, value in vars(ours).items() if not name.startswith("__")}
        # A package's modules are those that stand for ours, under their own names.
        kept = {name: v for name, v in names.items() if not isinstance(v, ModuleType)}
        vars(module).update(
            kept, __doc__=ours.__doc__, __file__=_file(module, ours), IS_OSTINATO=True
        )
        for name in ("__version__", "__getattr__"):
            if hasattr(ours, name):
                vars(module)[name] = getattr(ours, name)


def _file(module: ModuleType, ours: ModuleType) -> str | None:
    """The file in the real package, beside which programs look for others; ours without one."""
    for folder in getattr(module, "__path__", ()):
        path = os.path.join(folder, "__init__.py")
        if os.path.exists(path):
            return path
    return ours.__file__


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of `NAMES` before the real ones are looked for."""

    is_ostinato = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        inside = fullname.removeprefix(real.NAME)
        if not inside.startswith(".") and inside != "":
            return None
        if inside not in NAMES:
            _require_real(fullname)
            return None
        is_package = inside in ("", ".capi")
        spec = importlib.machinery.ModuleSpec(
            fullname, _Loader(), origin=_OURS + inside, is_package=is_package
        )
        if is_package:
            below = inside.replace(".", "/")
            spec.submodule_search_locations = [folder + below for folder in real.folders()]
        return spec


def _require_real(name: str) -> None:
    """Raise `ModuleNotFoundError` for a module of a package that is not installed."""
    if not real.folders():
        raise ModuleNotFoundError(
            f"No module named {name!r}: ostinato stands for onnxruntime's sessions and what belongs"
            " to them; install the real onnxruntime beside it for its other modules"
            + (", or use ostinato.quantize" if name.endswith(".quantization") else ""),
            name=name,
        )


def install() -> None:
    """Let `import onnxruntime` get this package from now on.

    Modules that have imported the real one before keep it.
    """
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    for name in [*sys.modules]:
        if name == real.NAME or name.startswith(real.NAME + "."):
            del sys.modules[name]
    sys.meta_path.insert(0, Finder())
    for inside in NAMES:
        importlib.import_module(real.NAME + inside)
