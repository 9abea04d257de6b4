"""Operators of PyTorch that draw random numbers, in terms of one that `draws` makes an input of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18
from torch import Tensor

from ostinato.errors import UnsupportedError

# What a node draws: the method of tensors and its arguments, as a line of text.
METHOD = "ostinato.torch.method"
# Arguments of methods are floats, which have all integers up to this one.
_LARGEST = 2**53
aten = torch.ops.aten


def fill(numbers: Tensor, method: str, arguments: Sequence[float]) -> None:
    """Draw into `numbers`, by a method of tensors or as `randperm`."""
    if method == "randperm":
        torch.randperm(numbers.shape[0], out=numbers)
    else:
        getattr(numbers, method)(*(map(int, arguments) if method == "random_" else arguments))


def _draw(like: Tensor, method: str, arguments: Sequence[float]) -> Tensor:
    numbers = torch.empty_like(like)
    fill(numbers, method, arguments)
    return numbers


def _node(like: Any, method: str, arguments: Sequence[float]) -> Any:
    result = opset18.RandomUniformLike(like)
    result.producer().metadata_props[METHOD] = " ".join([method, *map(repr, arguments)])
    return result


_LIBRARY = torch.library.Library("ostinato", "FRAGMENT")
_LIBRARY.define(
    "draw(Tensor like, str method, float[] arguments) -> Tensor",
    tags=torch.Tag.nondeterministic_seeded,
)
_LIBRARY.impl("draw", _draw, "CompositeExplicitAutograd")
torch.library.register_fake(
    f"{_LIBRARY.ns}::draw", lambda like, *_: torch.empty_like(like), lib=_LIBRARY
)
_DRAW = getattr(torch.ops, _LIBRARY.ns).draw.default
TRANSLATIONS = {_DRAW: _node}


def _filled(method: str, *defaults: float) -> Callable[..., Tensor]:
    """An operator that draws into a tensor."""

    def call(x: Tensor, *given: float, generator: Any = None) -> Tensor:
        return _DRAW(x, method, [*given, *defaults[len(given) :]])

    return call


def _integers(x: Tensor, *ends: Any) -> Any:
    if not all(isinstance(end, int) for end in ends):
        return NotImplemented
    if max(map(abs, ends)) > _LARGEST:
        raise UnsupportedError(
            "randint", "module", "draws integers beyond 2**53: draw them before, and pass them"
        )
    return _DRAW(x, "random_", [0, *ends][-2:])


def _randint(*given: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    *ends, size = given
    return _integers(torch.empty(size, dtype=dtype or torch.int64), *ends)


def _randint_like(x: Tensor, *ends: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return _integers(torch.empty_like(x, dtype=dtype or x.dtype), *ends)


def _randperm(count: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return _DRAW(torch.empty(count, dtype=dtype or torch.int64), "randperm", [])


def _normal(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Numbers around a mean with a deviation, one of which is a tensor; PyTorch's gradient is 0."""
    like = std * mean
    return (_DRAW(like, "normal_", [0.0, 1.0]) * std + mean).detach()


def _multinomial(
    p: Tensor, count: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Places that are drawn with the chances `p`, each once or with `replacement`, as PyTorch does.

    Each once, they are those of the largest quotients of chances and exponential numbers.
    """
    if count == 1 or not replacement:
        quotients = p / _DRAW(p, "exponential_", [1.0])
        return quotients.argmax(-1, keepdim=True) if count == 1 else quotients.topk(count).indices
    sums = p.cumsum(-1)
    sums = (sums / sums[..., -1:]).double()
    drawn = _DRAW(sums.new_empty((*p.shape[:-1], count)), "uniform_", [0.0, 1.0])
    return (sums.unsqueeze(-2) < drawn.unsqueeze(-1)).sum(-1)


def drawing() -> dict[Any, Callable[..., Any]]:
    """Formulas by operator."""
    normal = _filled("normal_", 0.0, 1.0)
    return {
        aten.exponential.default: _filled("exponential_", 1.0),
        aten.uniform.default: _filled("uniform_", 0.0, 1.0),
        aten.cauchy.default: _filled("cauchy_", 0.0, 1.0),
        aten.log_normal.default: _filled("log_normal_", 1.0, 2.0),
        aten.geometric.default: _filled("geometric_"),
        aten.normal_functional.default: normal,
        # Where it is decomposed into the one above.
        aten.normal_.default: normal,
        **{one: _randint for one in (aten.randint.default, aten.randint.low)},
        **{one: _randint_like for one in (aten.randint_like.default, aten.randint_like.low_dtype)},
        aten.randperm.default: _randperm,
        **{
            one: _normal
            for one in (
                aten.normal.Tensor_float,
                aten.normal.float_Tensor,
                aten.normal.Tensor_Tensor,
            )
        },
        aten.multinomial.default: _multinomial,
    }
