"""Random modules of PyTorch: results and gradients are those of eager PyTorch in float64.

.extras/main/bin/python -m tools.fuzz modules --seconds 60
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import linecache
import logging
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import OstinatoError
from tools.fuzz.graphs import Outcome, in_child
from tools.fuzz.random_modules import BATCH, STEPS, WIDTH, random_module
from tools.fuzz.seeds import try_seeds

CHILD_SECONDS = 120.0
# Of the largest element, or of the error of eager PyTorch in float32.
TOLERANCE, SPREAD = 2e-5, 30.0


def module_of(source: str, seed: int) -> Any:
    """The module of a source text and a seed, whose lines errors can show."""
    import torch

    name = f"<module {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType(f"module{seed}")
    sys.modules[module.__name__] = module
    exec(compile(source, name, "exec"), vars(module))
    torch.manual_seed(seed)
    return module.Module()


def _trained(call: Any, module: Any, x: Any) -> list[Any]:
    """Results, and gradients of the argument and the parameters; None where there is none."""
    import torch

    leaf = x.clone().requires_grad_()
    results = call(leaf)
    total = sum(
        (r * torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).view(r.shape)).sum()
        for r in results
    )
    total.backward()
    gradients = [leaf.grad, *(p.grad for p in module.parameters())]
    return [r.detach() for r in results] + gradients


def check(seed: int) -> Outcome:
    """Compare the module of a seed."""
    import torch

    import ostinato.torch

    logging.disable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = module_of(random_module(seed), seed)
    x = torch.randn(STEPS, BATCH, WIDTH)
    try:
        double = copy.deepcopy(module).double()
        wanted = _trained(double, double, x.double())
        single = copy.deepcopy(module)
        eager = _trained(single, single, x)
    except Exception as error:
        return Outcome("not eager", f"{type(error).__name__}: {str(error)[:300]}")
    dynamic = True if seed % 5 == 4 else None
    try:
        compiled = ostinato.torch.compile(module, x, dynamic=dynamic)
        plain = [r.detach() for r in compiled(x)]
        got = _trained(compiled, module, x)
    except OstinatoError as error:
        return Outcome("refused", f"{type(error).__name__}: {str(error)[:600]}")
    except Exception as error:
        if type(error).__module__.startswith("torch"):
            return Outcome("torch refuses", f"{type(error).__name__}: {str(error)[:300]}")
        raise
    names = [f"result {i}" for i in range(len(plain))]
    for name, a, b in zip(names, plain, got, strict=False):
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            return Outcome("differ", f"{name}: without and with gradients")
    names += ["gradient of x", *(f"gradient of {n}" for n, _ in module.named_parameters())]
    for name, a, b, c in zip(names, got, wanted, eager, strict=True):
        if a is None or b is None:
            if (a is None) != (b is None):
                return Outcome("differ", f"{name}: None in one of both")
            continue
        error = float((a.double() - b).abs().max()) if a.numel() else 0.0
        own = float((c.double() - b).abs().max()) if a.numel() else 0.0
        scale = max(1.0, float(b.abs().max()))
        if not error <= max(TOLERANCE * scale, SPREAD * own) and np.isfinite(own):
            return Outcome("differ", f"{name}: by {error:.2g} of {scale:.2g}, eager by {own:.2g}")
    return Outcome("agree")


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each module in a process of its own; none where there is no PyTorch."""
    return try_modules(check, random_module, CHILD_SECONDS, seconds, seed, count, folder)


def try_modules(
    check: Callable[[int], Outcome],
    source: Callable[[int], str],
    child_seconds: float,
    seconds: float,
    seed: int,
    count: int | None,
    folder: Path,
) -> int:
    """As `try_seeds`, each check in a process of its own; none where there is no PyTorch."""
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed")
        return 0
    # Once, and not in each process.
    importlib.import_module("ostinato.torch")

    def apart(seed: int) -> Outcome:
        return in_child(lambda: (check(seed), []), child_seconds)[0]  # type: ignore[no-any-return]

    return try_seeds(apart, source, seconds, seed, count, folder)
