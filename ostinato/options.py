"""The one record that steers compiling and running; environment variables never change results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ostinato.arguments import is_one_of, is_whole, names_of
from ostinato.errors import OptionError
from ostinato.machine.targets import HOST, check_target_name

MOST_THREADS = 256


def default_cache_dir() -> Path:
    """The per-user cache folder: `$XDG_CACHE_HOME/ostinato`, or `~/.cache/ostinato`.

    A relative `$XDG_CACHE_HOME` does not count, as its specification says. Users without a home,
    such as those of containers, have a folder among temporary files.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "ostinato"
    try:
        return Path.home() / ".cache" / "ostinato"
    except RuntimeError:
        import tempfile

        user = os.getuid() if hasattr(os, "getuid") else 0
        return Path(tempfile.gettempdir()) / f"ostinato-{user}"


@dataclass(frozen=True)
class Options:
    """Options for compiling and running a model.

    target: the machine to compile for: "host", an alias such as "raspberry-pi-4" (docs/targets.md
        lists them), or "triple:cpu:features" as LLVM spells them. Sessions run what this machine
        can execute; files for others come from `ostinato build`. Results have the same bits.
    threads: most threads that one `run` uses, 1 to 256; small models and calls use one. Results
        keep their bits.
    precision: number format of weights; only "f32" (as in the model) is available.
    disable: names of passes to leave out (`ostinato inspect --passes` lists them). Results keep
        their bits whatever is disabled.
    fallback: run ops without a native kernel on those of `onnx.reference`; False refuses all nodes
        that could be interpreted (`Report.fallback`), so that nothing ever is.
    specialize: named dimensions to bake in, for instance `{"T": 100}`.
    cache_dir: folder of compiled models; None compiles afresh and writes nothing.
    cache_bytes: bytes that compiled models may take; those not used for the longest time go then.
    flush_denormals: treat subnormal numbers as zero while running.
    integer_products: multiply the bytes in place of the floats that DequantizeLinear makes of them,
        in MatMul, Gemm and Conv; rows that meet weights dequantised in blocks become bytes. Faster,
        and rounded in another way than the operators' documents say (docs/quantization.md).
    winograd: compute convolutions of three taps or more with fewer multiplications along axes
        whose size the model gives, and along height and width of images of any size; False for the
        sums of the operator's document (docs/numerics.md).
    seed: of random numbers, an integer of 64 bits. All runs draw the same ones; another seed gives
        others.

    Raises `OptionError` naming the field whose value is not one of these.
    """

    target: str = HOST
    threads: int = 1
    precision: str = "f32"
    disable: tuple[str, ...] = ()
    fallback: bool = True
    specialize: Mapping[str, int] = field(default_factory=dict)
    cache_dir: str | os.PathLike[str] | None = field(default_factory=default_cache_dir)
    flush_denormals: bool = False
    seed: int = 0
    cache_bytes: int = 4 << 30
    integer_products: bool = False
    winograd: bool = True

    def __post_init__(self) -> None:
        check_target_name(self.target)
        if not is_whole(self.threads) or not 1 <= self.threads <= MOST_THREADS:
            raise OptionError(
                f"threads={self.threads!r}: expected 1 to {MOST_THREADS}, a whole number"
            )
        if not is_one_of(self.precision, ("f32",)):
            raise OptionError(f"precision={self.precision!r}: only 'f32' is available")
        disabled = names_of(self.disable)
        if disabled is None:
            raise OptionError(f"disable={self.disable!r}: expected a tuple of pass names")
        if not is_whole(self.seed) or not -(2**63) <= self.seed < 2**64:
            raise OptionError(f"seed={self.seed!r}: expected an integer of 64 bits")
        if not isinstance(self.specialize, Mapping):
            raise OptionError(f"specialize={self.specialize!r}: expected {{name: size}}")
        for name, size in self.specialize.items():
            if not is_whole(size) or size < 0:
                raise OptionError(f"specialize[{name!r}]={size!r}: expected a size of 0 or more")
        if not is_whole(self.cache_bytes) or self.cache_bytes < 0:
            raise OptionError(f"cache_bytes={self.cache_bytes!r}: expected a number of bytes")
        if self.cache_dir is not None:
            is_path = isinstance(self.cache_dir, (str, os.PathLike))
            path = os.fspath(self.cache_dir) if is_path else b""
            if not isinstance(path, str) or not path or "\0" in path:
                raise OptionError(f"cache_dir={self.cache_dir!r}: expected a path, or None")
        object.__setattr__(self, "disable", disabled)
        # NumPy's integers have no JSON.
        sizes = {name: int(size) for name, size in self.specialize.items()}
        object.__setattr__(self, "specialize", sizes)
        for name in ("threads", "seed", "cache_bytes"):
            object.__setattr__(self, name, int(getattr(self, name)))
