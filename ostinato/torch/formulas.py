"""Functions of PyTorch that its exporter has no form for, or a wrong one, in terms of others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from onnxscript import opset18
from torch import Tensor
from torch.amp import autocast_mode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ostinato.errors import UnsupportedError
from ostinato.torch import (
    accurate,
    detached,
    drawing,
    dynamic_quantized,
    fake_quantize,
    layers,
    linear_algebra,
    losses,
    packed,
    recurrent,
    resampling,
    running,
    statistics,
)
from ostinato.torch.constants import INNER_GRADIENT

# The CPU's autocast: whether it is enabled, its type, whether it caches casts.
_Autocast: TypeAlias = tuple[bool, torch.dtype, bool]


class Formulas(TorchFunctionMode):
    """While this is entered, calls of the functions in `_FORMULAS` compute by their formula.

    Graphs of Dynamo enter autocast by functions that an exporter notes and does not call. Formulas
    ask whether it is active, so that it is set here as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self._outside: list[_Autocast] = []

    def __exit__(self, *exception: Any) -> None:
        """Leave what an error has left entered, too."""
        if self._outside:
            _set_autocast(*self._outside[0])
            self._outside.clear()
        super().__exit__(*exception)

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the formula, or `func` itself where that has a form of its own."""
        if func is autocast_mode._enter_autocast:
            self._outside.append(_autocast())
            found = func(*args)
            device, dtype, enabled, *_ = args
            if device == "cpu":
                # Without a cache, which would keep what is computed while tracing.
                _set_autocast(enabled, dtype or torch.get_autocast_dtype("cpu"), False)
            return found
        if func is autocast_mode._exit_autocast and self._outside:
            _set_autocast(*self._outside.pop())
        formula, given = _FORMULAS.get(func), (args, dict(kwargs or {}))
        found = NotImplemented
        if formula is not None and func in _UNCAST and torch.is_autocast_enabled("cpu"):
            given = pytree.tree_map_only(Tensor, _wide, given)
            with torch.autocast("cpu", enabled=False):
                found = formula(*given[0], **given[1])
        elif formula is not None:
            found = formula(*given[0], **given[1])
        return func(*args, **(kwargs or {})) if found is NotImplemented else found


def _autocast() -> _Autocast:
    dtype, has_cache = torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()
    return torch.is_autocast_enabled("cpu"), dtype, has_cache


def _set_autocast(enabled: bool, dtype: torch.dtype, has_cache: bool) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)
    torch.set_autocast_cache_enabled(has_cache)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _refuse_hook(*_: Any) -> Any:
    raise UnsupportedError("register_hook", "module", "no hook is called for a gradient within")


def _refuse_backward(*_: Any, **__: Any) -> Any:
    raise UnsupportedError("backward", "module", INNER_GRADIENT)


def translations() -> dict[Any, Any]:
    """Map the operators defined here to PyTorch's own for the exporter."""
    return (
        recurrent.translations()
        | resampling.translations()
        | accurate.translations()
        | drawing.TRANSLATIONS
        | {
            torch.ops.aten.amax.default: functools.partial(_extreme, opset18.ReduceMax),
            torch.ops.aten.amin.default: functools.partial(_extreme, opset18.ReduceMin),
            torch.ops.aten.bernoulli.p: _bernoulli,
            torch.ops.aten._neg_view.default: _negative,
            torch.ops.aten.rsub.Scalar: _subtracted,
            torch.ops.aten.split.Tensor: _split,
            torch.ops.aten._int_mm.default: lambda a, b: opset18.MatMulInteger(a, b),
        }
    )


def _extreme(reduce: Any, x: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    axes = [opset18.Constant(value_ints=[*dim])] if dim else []
    return reduce(x, *axes, keepdims=int(keepdim))


def _negative(x: Any) -> Any:
    return opset18.Neg(x)


def _subtracted(x: Any, other: float, alpha: float = 1) -> Any:
    scaled = x if alpha == 1 else opset18.Mul(x, opset18.CastLike(alpha, x))
    return opset18.Sub(opset18.CastLike(other, x), scaled)


def _split(x: Any, size: Any, dim: int = 0) -> Any:
    """Parts of an axis, as tensors where it is known how many there are."""
    total = x.shape[dim]
    if not isinstance(total, int) or not isinstance(size, int):
        return opset18.SplitToSequence(x, size, axis=dim)
    ends = range(size, total + size, size) if size else [total]
    bounds = [[opset18.Constant(value_ints=[n]) for n in (end - size, end, dim)] for end in ends]
    return [opset18.Slice(x, *bound) for bound in bounds]


def _bernoulli(x: Any, p: float) -> Any:
    """1 with this chance, drawn as PyTorch draws it."""
    chance = opset18.CastLike(opset18.Constant(value_float=p), x)
    return opset18.Bernoulli(opset18.Expand(chance, opset18.Shape(x)))


# Operators that autocast leaves in float32, with all that they are made of.
_UNCAST: dict[Any, Callable[..., Any]] = {
    **{one: linear_algebra.inverse for one in (torch.linalg.inv, torch.inverse, Tensor.inverse)},
    **{one: linear_algebra.det for one in (torch.linalg.det, torch.det, Tensor.det)},
    **{
        one: linear_algebra.slogdet for one in (torch.linalg.slogdet, torch.slogdet, Tensor.slogdet)
    },
    **{one: linear_algebra.logdet for one in (torch.logdet, Tensor.logdet)},
    **{
        one: linear_algebra.cholesky
        for one in (torch.linalg.cholesky, torch.cholesky, Tensor.cholesky)
    },
    **{
        one: linear_algebra.matrix_exp
        for one in (torch.linalg.matrix_exp, torch.matrix_exp, Tensor.matrix_exp)
    },
    **{
        one: linear_algebra.householder_product
        for one in (torch.linalg.householder_product, torch.orgqr, Tensor.orgqr)
    },
    torch.linalg.solve: linear_algebra.solve,
    torch.linalg.inv_ex: linear_algebra.inv_ex,
    torch.linalg.solve_triangular: linear_algebra.solve_triangular,
    **{
        getattr(place, name): getattr(linear_algebra, name)
        for place in (torch, Tensor)
        for name in ("cholesky_solve", "cholesky_inverse")
    },
    torch.cdist: layers.cdist,
    F.cross_entropy: losses.cross_entropy,
    torch._C._nn.cross_entropy_loss: losses.cross_entropy_loss,
    F.ctc_loss: losses.ctc_loss,
    torch.ctc_loss: losses.ctc_loss,
}
_FORMULAS: dict[Any, Callable[..., Any]] = {
    **_UNCAST,
    **dynamic_quantized.FORMULAS,
    **{getattr(torch, name): packed.recurrent(name) for name in recurrent.NAMES},
    # As modules call them, and as programs that are exported already have them.
    **{
        one: fake_quantize.per_tensor
        for one in (
            torch.fake_quantize_per_tensor_affine,
            torch.ops.aten.fake_quantize_per_tensor_affine.default,
            torch.ops.aten.fake_quantize_per_tensor_affine.tensor_qparams,
        )
    },
    **{
        one: fake_quantize.per_channel
        for one in (
            torch.fake_quantize_per_channel_affine,
            torch.ops.aten.fake_quantize_per_channel_affine.default,
        )
    },
    torch._pack_padded_sequence: packed.pack,
    torch._pad_packed_sequence: packed.pad,
    torch.zeros: packed.zeros,
    Tensor.__getitem__: packed.first_size,
    Tensor.data.__get__: Tensor.detach,
    Tensor.data.__set__: detached.assign,
    Tensor.register_hook: _refuse_hook,
    Tensor.backward: _refuse_backward,
    **{one: running.cummax for one in (torch.cummax, Tensor.cummax)},
    **{one: running.cummin for one in (torch.cummin, Tensor.cummin)},
    **{one: running.cumprod for one in (torch.cumprod, Tensor.cumprod)},
    torch.vander: statistics.vander,
    torch.linalg.vander: statistics.linalg_vander,
    **{one: statistics.cov for one in (torch.cov, Tensor.cov)},
    **{one: statistics.corrcoef for one in (torch.corrcoef, Tensor.corrcoef)},
    torch.combinations: statistics.combinations,
    **{one: running.logcumsumexp for one in (torch.logcumsumexp, Tensor.logcumsumexp)},
    F.batch_norm: layers.batch_norm,
    F.gaussian_nll_loss: losses.gaussian_nll_loss,
    F.embedding: layers.embedding,
    F.embedding_bag: layers.embedding_bag,
    F.instance_norm: layers.instance_norm,
    F.scaled_dot_product_attention: layers.scaled_dot_product_attention,
    torch._transformer_encoder_layer_fwd: layers.encoder_layer,
    torch._native_multi_head_attention: layers.attention,
}
