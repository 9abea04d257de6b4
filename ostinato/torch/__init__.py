"""Modules of PyTorch, run and trained by compiled code.

`ostinato.torch.compile(module, example_inputs)` makes a module with the same call, and
`torch.compile(module, backend="ostinato")` compiles what Dynamo finds. Needs the extra `torch`;
nothing else in the package imports it.
"""

from __future__ import annotations

from ostinato.errors import OstinatoError

try:
    import onnxscript  # noqa: F401 (torch.onnx needs it)
    import torch  # noqa: F401
except ImportError as error:
    raise OstinatoError(
        f"ostinato.torch needs {error.name!r}: pip install 'ostinato[torch]'"
    ) from error

from ostinato.torch.module import CompiledModule, compile

__all__ = ["CompiledModule", "compile"]
