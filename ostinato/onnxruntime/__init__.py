"""onnxruntime's Python interface, with compiled models behind it.

    python -m ostinato.onnxruntime PROGRAM ARGS     a program whose `import onnxruntime` gets this
    ostinato.onnxruntime.install()                  the same for the rest of this process
    import ostinato.onnxruntime as onnxruntime      by hand

What is honoured, what is ignored and why: docs/coming_from_onnxruntime.md.
"""

from ostinato.onnxruntime import capi, shared
from ostinato.onnxruntime.absent import found as __getattr__  # noqa: F401
from ostinato.onnxruntime.binding import IOBinding
from ostinato.onnxruntime.install import install
from ostinato.onnxruntime.process import (
    __version__,
    cuda_version,
    package_name,
    preload_dlls,
    print_debug_info,
    version,
)
from ostinato.onnxruntime.shared import *  # noqa: F403

__all__ = [
    "IOBinding",
    "__version__",
    "capi",
    "cuda_version",
    "install",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "version",
]
__all__ += shared.__all__
