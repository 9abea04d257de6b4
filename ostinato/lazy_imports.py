"""Import onnx_ir without what it never needs here, which saves half of the time of importing it.

onnx_ir needs SymPy for arithmetic on symbolic dimensions, which nothing here does; its `_core`
imports it, and its `_symbolic_shapes` looks into it at once. It compares versions of packages where
it reads files of safetensors. onnx imports the text and JSON forms of messages, and protobuf what
messages are in Python, where they are compiled. All of these become lazy modules
(`importlib.util.LazyLoader`), which load themselves when anybody uses them. Where onnx_ir or onnx
was imported before, where they do not import these any more, or where their files have other names,
this changes nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_LAZY = frozenset(
    (
        "sympy",
        "onnx_ir._symbolic_shapes",
        "onnx.compose",
        "onnx.gen_proto",
        "onnx.utils",
        "google.protobuf.internal.python_message",
        "google.protobuf.json_format",
        "google.protobuf.text_format",
        "packaging.version",
    )
)


class _LazyFinder:
    """Finds the modules of `_LAZY` as the finders behind it do, to be loaded when they are used."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _LAZY:
            return None
        others = (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        for finder in others:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = importlib.util.LazyLoader(spec.loader)
                return spec
        return None


def _import_onnx_ir() -> None:
    if "onnx_ir" in sys.modules:
        return
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module("onnx_ir")
    finally:
        sys.meta_path.remove(finder)


_import_onnx_ir()
