"""Operators of complex tensors that PyTorch's exporter has no form for, by parts that are real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ostinato.torch.constants import CONSTANT

aten = torch.ops.aten
# Linear operators with real coefficients, which real and imaginary part pass alone.
_LINEAR = (
    aten.alias,
    aten.unsqueeze,
    aten.squeeze,
    aten.expand,
    aten.select,
    aten.index,
    aten.index_select,
    aten.gather,
    aten.repeat,
    aten.constant_pad_nd,
    aten.pad,
    aten.cumsum,
    aten.tril,
    aten.triu,
    aten.diagonal,
    aten.split,
    aten.split_with_sizes,
    aten.unbind,
    aten.chunk,
    aten.where,
    aten.masked_fill,
    aten.narrow,
    aten.reshape,
    aten.flatten,
    aten.unflatten,
    aten.movedim,
    aten.swapaxes,
    aten.unfold,
    aten.repeat_interleave,
    aten.index_add,
    aten.diff,
    aten.index_put,
    aten.copy,
    aten.slice_scatter,
    aten.select_scatter,
)
# Products, linear in each of the two tensors.
_BILINEAR = (aten.mm, aten.bmm, aten.mv, aten.dot, aten.einsum, aten.outer)


def _is_complex(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_complex()


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    real, imaginary = torch.view_as_real(x).unbind(-1)
    return real, imaginary


def _part(found: Any, place: int) -> Any:
    """Arguments with one part of each complex number in its place."""

    def take(x: Any) -> Any:
        if isinstance(x, complex):
            return (x.real, x.imag)[place]
        if _is_complex(x):
            return _parts(x)[place]
        # A real number next to complex ones.
        is_number = isinstance(x, float) or (isinstance(x, Tensor) and x.is_floating_point())
        return x * 0 if is_number and place else x

    return pytree.tree_map(take, found)


def _joined(real: Any, imaginary: Any) -> Any:
    if isinstance(real, Tensor):
        return torch.complex(real, imaginary)
    return type(real)(torch.complex(a, b) for a, b in zip(real, imaginary, strict=True))


def _by_parts(operator: Any) -> Callable[..., Any]:
    numbers = [one.name for one in operator._schema.arguments if str(one.type) == "number"]
    places = {one.name: place for place, one in enumerate(operator._schema.arguments)}

    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(map(_is_complex, pytree.tree_leaves((args, kwargs)))):
            return NotImplemented
        # A factor counts for both parts, any other number is one beside complex ones.
        factor = {"alpha": kwargs.pop("alpha")} if "alpha" in kwargs else {}
        kwargs = {name: value for name, value in kwargs.items() if name != "dtype"}
        given = [*args]
        for name in numbers:
            place = places[name]
            if place < len(given) and isinstance(given[place], int):
                given[place] = float(given[place])
        return _joined(
            *(operator(*_part(given, i), **_part(kwargs, i), **factor) for i in range(2))
        )

    return call


def _product(operator: Any) -> Callable[..., Any]:
    """(a + ib)(c + id) = ac - bd + i(ad + bc)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten(args)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if not any(map(_is_complex, leaves)) or len(places) != 2:
            return NotImplemented

        def of(first: int, second: int) -> Tensor:
            own = [*leaves]
            for place, part in zip(places, (first, second), strict=True):
                own[place] = _part(own[place], part)
            found: Tensor = operator(*pytree.tree_unflatten(own, spec), **kwargs)
            return found

        return torch.complex(of(0, 0) - of(1, 1), of(0, 1) + of(1, 0))

    return call


def _function(formula: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return formula(x, *args, **kwargs) if _is_complex(x) else NotImplemented

    return call


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not any(map(_is_complex, (x, weight, bias))):
        return NotImplemented
    y = torch.matmul(x, weight.mT if weight.dim() > 1 else weight)
    return y if bias is None else y + bias


def _added(operator: Any) -> Callable[..., Any]:
    """A product to which something is added."""

    def call(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Any:
        if not any(map(_is_complex, (x, a, b))):
            return NotImplemented
        return x * beta + operator(a, b) * alpha

    return call


def _times(x: Tensor, factor: Any) -> Any:
    """A product with a complex number."""
    if not isinstance(factor, complex):
        return NotImplemented
    if not _is_complex(x):
        return torch.complex(x * factor.real, x * factor.imag)
    a, b = _parts(x)
    real = a * factor.real - b * factor.imag
    return torch.complex(real, a * factor.imag + b * factor.real)


def _subtracted(x: Any, other: Any, alpha: Any = 1) -> Any:
    if not _is_complex(x) and not _is_complex(other) and not isinstance(other, complex):
        return NotImplemented
    return x * -alpha + other


def _filled(value: Any = None) -> Callable[..., Any]:
    """A tensor of one complex number, given as an argument or the same in each call.

    The first argument is its sizes, or a tensor, which then may say them, and the type.
    """

    def call(like: Any, *args: Any, dtype: torch.dtype | None = None, **settings: Any) -> Any:
        number = args[-1] if value is None else value
        kind = like.dtype if dtype is None and isinstance(like, Tensor) else dtype
        if not isinstance(number, complex) and (kind is None or not kind.is_complex):
            return NotImplemented
        given = args[:-1] if value is None else args
        size = given[0] if given else like.shape if isinstance(like, Tensor) else like
        real = None if kind is None else kind.to_real()
        whole = complex(number)
        return torch.complex(*(torch.full(size, n, dtype=real) for n in (whole.real, whole.imag)))

    return call


def _with_product(z: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    if not any(map(_is_complex, (z, a, b))):
        return NotImplemented
    return z + a * b * value


def _exp(z: Tensor) -> Tensor:
    real, imaginary = _parts(z)
    size = real.exp()
    return torch.complex(size * imaginary.cos(), size * imaginary.sin())


def _log(z: Tensor) -> Tensor:
    return torch.complex(z.abs().log(), z.angle())


def _pow(z: Tensor, exponent: Any) -> Any:
    """Multiply for a small whole exponent: the product has a gradient at 0, too."""
    if isinstance(exponent, (int, float)) and exponent == int(exponent) and 0 < exponent <= 4:
        result = z
        for _ in range(int(exponent) - 1):
            result = result * z
        return result
    return _exp(_log(z) * exponent)


def _sqrt(z: Tensor) -> Tensor:
    size, angle = z.abs().sqrt(), z.angle() / 2
    return torch.complex(size * angle.cos(), size * angle.sin())


def _tanh(z: Tensor) -> Tensor:
    """(sinh 2a + i sin 2b) / (cosh 2a + cos 2b), over cosh 2a."""
    real, imaginary = (2 * part for part in _parts(z))
    inverse = 1 / real.cosh()
    below = 1 + imaginary.cos() * inverse
    return torch.complex(real.tanh() / below, imaginary.sin() * inverse / below)


def _sin(z: Tensor) -> Tensor:
    a, b = _parts(z)
    return torch.complex(a.sin() * b.cosh(), a.cos() * b.sinh())


def _cos(z: Tensor) -> Tensor:
    a, b = _parts(z)
    return torch.complex(a.cos() * b.cosh(), -a.sin() * b.sinh())


def _sinh(z: Tensor) -> Tensor:
    a, b = _parts(z)
    return torch.complex(a.sinh() * b.cos(), a.cosh() * b.sin())


def _cosh(z: Tensor) -> Tensor:
    a, b = _parts(z)
    return torch.complex(a.cosh() * b.cos(), a.sinh() * b.sin())


def _sign(z: Tensor) -> Tensor:
    size = z.abs()
    return z / torch.where(size == 0, 1.0, size)


def _norm(z: Tensor, *args: Any, **settings: Any) -> Any:
    return torch.linalg.vector_norm(z.abs(), *args)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    aten.exp: _exp,
    aten.log: _log,
    aten.pow: _pow,
    aten.sqrt: _sqrt,
    aten.tanh: _tanh,
    aten.sigmoid: lambda z: (_tanh(z / 2) + 1) / 2,
    aten.sin: _sin,
    aten.cos: _cos,
    aten.real: lambda z: _parts(z)[0],
    aten.imag: lambda z: _parts(z)[1],
    aten.square: lambda z: z * z,
    aten.sinh: _sinh,
    aten.cosh: _cosh,
    aten.sgn: _sign,
    aten.linalg_vector_norm: _norm,
}


def _overloads(packet: Any) -> list[Any]:
    found = [getattr(packet, name) for name in packet.overloads()]
    return [one for one in found if not one._schema.is_mutable]


# By operator; a function gives NotImplemented for arguments that it does not change.
COMPLEX: dict[Any, Callable[..., Any]] = {
    CONSTANT: _by_parts(CONSTANT),
    aten.linear.default: _linear,
    aten.mul.Scalar: _times,
    aten.mul.Tensor: _times,
    aten.rsub.Scalar: _subtracted,
    aten.rsub.Tensor: _subtracted,
    **{one: _filled() for one in (aten.full.default, aten.full_like.default)},
    aten.new_full.default: _filled(),
    **{one: _filled(0) for one in (aten.zeros.default, aten.new_zeros.default)},
    **{one: _filled(1) for one in (aten.ones.default, aten.new_ones.default)},
    aten.ones_like.default: _filled(1),
    aten.zeros_like.default: _filled(0),
    aten.addcmul.default: _with_product,
    aten.addmm.default: _added(aten.mm.default),
    aten.baddbmm.default: _added(aten.bmm.default),
    **{one: _by_parts(one) for packet in _LINEAR for one in _overloads(packet)},
    **{one: _product(one) for packet in _BILINEAR for one in _overloads(packet)},
    **{one: _function(f) for packet, f in _FUNCTIONS.items() for one in _overloads(packet)},
}
