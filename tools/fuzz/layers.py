"""Random modules of layers, of all types and shapes: calls, gradients and buffers of eager PyTorch.

.extras/main/bin/python -m tools.fuzz layers --seconds 60

Every fourth module has what breaks a graph, and goes through `torch.compile`; of the others every
second is called with sizes that change. Results have the types and shapes of eager PyTorch.
"""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path
from typing import Any

from ostinato import OstinatoError
from tools.fuzz.graphs import Outcome
from tools.fuzz.modules import module_of, try_modules
from tools.fuzz.random_layers import BATCH, OTHER_SIZES, STEPS, inputs, random_layers

CHILD_SECONDS = 200.0
# Of the largest element, or of the error of eager PyTorch in float32.
TOLERANCE, NARROW_TOLERANCE, SPREAD = 3e-5, 4e-2, 30.0
_NARROW = ("float16", "bfloat16", ".half()")
_RANDOM = ("Dropout", "dropout=")

Sizes = list[tuple[int, int]]
# Names with tensors, or None where there is no gradient.
Found = list[tuple[str, Any]]


def _called(call: Any, module: Any, seed: int, sizes: Sizes, kind: Any) -> Found:
    """Results, gradients and buffers of calls, one after the other, as names and tensors."""
    import torch
    from torch.utils import _pytree as pytree

    found = []
    for number, size in enumerate(sizes):
        given = {
            name: tensor.to(kind) if tensor.dtype == torch.float32 else tensor
            for name, tensor in inputs(seed, *size).items()
        }
        wants = number != 1
        leaves = {n: t.requires_grad_(wants) for n, t in given.items() if n in "xy"}
        torch.manual_seed(seed + number)
        results = [r for r in pytree.tree_leaves(call(**given)) if isinstance(r, torch.Tensor)]
        # A result may be a buffer, which the next call changes.
        kept = [r.detach().clone() for r in results]
        found += [(f"call {number}, result {i}", r) for i, r in enumerate(kept)]
        if wants:
            parts = [r if not r.is_complex() else torch.view_as_real(r) for r in results]
            parts = [p for p in parts if p.requires_grad]
            total = sum((p.double() * _weights(p)).sum() for p in parts)
            named = [*leaves.items(), *module.named_parameters()]
            if parts:
                gradients = torch.autograd.grad(total, [t for _, t in named], allow_unused=True)
                found += [
                    (f"call {number}, gradient of {n}", g)
                    for (n, _), g in zip(named, gradients, strict=True)
                ]
    found += [(f"buffer {n}", b.clone()) for n, b in module.named_buffers()]
    return found


def _weights(tensor: Any) -> Any:
    import torch

    return torch.linspace(0.5, 1.5, tensor.numel(), dtype=torch.float64).view(tensor.shape)


def check(seed: int) -> Outcome:
    """Compare the module of a seed."""
    import torch

    import ostinato.torch

    logging.disable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    source = random_layers(seed)
    module = module_of(source, seed)
    module.train(seed % 5 < 2)
    if seed % 7 == 6:
        module.requires_grad_(False)
    breaks, dynamic = seed % 4 == 3, seed % 2 == 0
    sizes = [(BATCH, STEPS)] * 2 + ([*OTHER_SIZES] if dynamic else [])
    single = copy.deepcopy(module)
    try:
        eager = _called(single, single, seed, sizes, torch.float32)
    except Exception as error:
        if dynamic and "call" not in str(error):
            sizes = sizes[:2]
        single = copy.deepcopy(module)
        try:
            eager = _called(single, single, seed, sizes, torch.float32)
        except Exception as again:
            return Outcome("not eager", f"{type(again).__name__}: {str(again)[:300]}")
    is_random = module.training and any(word in source for word in _RANDOM)
    try:
        double = copy.deepcopy(module).double()
        wanted = _called(double, double, seed, sizes, torch.float64)
    except Exception:
        wanted = eager
    if is_random or len(wanted) != len(eager):
        wanted = eager
    example = inputs(seed)
    try:
        if breaks:
            compiled = torch.compile(module, backend="ostinato")
        else:
            compiled = ostinato.torch.compile(
                module, example_kwargs=example, dynamic=True if len(sizes) > 2 else None
            )
        got = _called(compiled, module, seed, sizes, torch.float32)
    except OstinatoError as error:
        kind = "exception" if "this package is wrong" in str(error) else "refused"
        return Outcome(kind, f"{type(error).__name__}: {str(error)[:600]}")
    except Exception as error:
        if type(error).__module__.startswith("torch"):
            return Outcome("torch refuses", f"{type(error).__name__}: {str(error)[:300]}")
        raise
    return _compared(got, wanted, eager, source, breaks)


def _compared(got: Found, wanted: Found, eager: Found, source: str, breaks: bool) -> Outcome:
    """Whether all results agree; of graphs that break a gradient may be zeros in place of None."""
    if [name for name, _ in got] != [name for name, _ in eager]:
        return Outcome("differ", f"{[n for n, _ in got]}, not {[n for n, _ in eager]}")
    narrow = any(word in source for word in _NARROW)
    tolerance = NARROW_TOLERANCE if narrow else TOLERANCE
    for (name, a), (_, b), (_, c) in zip(got, wanted, eager, strict=True):
        if a is None or c is None or b is None:
            # PyTorch has zeros for what `fill_` has overwritten.
            is_zero = all(t is None or not t.any() for t in (a, c))
            if (a is None) != (c is None) and not (is_zero and (a is None or breaks)):
                return Outcome("differ", f"{name}: None in one of both")
            continue
        difference = _difference(a, b, c, tolerance)
        if difference is not None:
            return Outcome("differ", f"{name}: {difference}")
    return Outcome("agree")


def _difference(got: Any, wanted: Any, eager: Any, tolerance: float) -> str | None:
    """How a result differs, by more than eager PyTorch does from what is wanted."""
    import torch

    if (got.dtype, got.shape) != (eager.dtype, eager.shape):
        return f"{got.dtype}{list(got.shape)}, not {eager.dtype}{list(eager.shape)}"
    if not (eager.is_floating_point() or eager.is_complex()):
        count = int((got != eager).sum())
        is_sure = wanted.shape == eager.shape and torch.equal(wanted.to(eager.dtype), eager)
        return f"{count} of {eager.numel()} of {eager.dtype}" if count and is_sure else None
    wide = torch.complex128 if eager.is_complex() else torch.float64
    a, b, c = got.to(wide), wanted.to(wide), eager.to(wide)
    if not torch.equal(a.isnan(), c.isnan()):
        return "NaN elsewhere"
    if not torch.equal(a.isfinite(), c.isfinite()):
        return "not finite elsewhere"
    fine = c.isfinite() & b.isfinite()
    if not bool(fine.any()):
        return None
    error, own = (float((x - b)[fine].abs().max()) for x in (a, c))
    scale = max(1.0, float(b[fine].abs().max()))
    is_fine = error <= max(tolerance * scale, SPREAD * own)
    return None if is_fine else f"by {error:.2g} of {scale:.2g}, eager by {own:.2g}"


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each module in a process of its own; none where there is no PyTorch."""
    return try_modules(check, random_layers, CHILD_SECONDS, seconds, seed, count, folder)
