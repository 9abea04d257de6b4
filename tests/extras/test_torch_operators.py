"""Operators of PyTorch for which `ostinato.torch` has formulas, beside PyTorch itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import torch.nn.functional as F  # noqa: E402

import ostinato.torch  # noqa: E402
from ostinato.errors import UnsupportedError  # noqa: E402
from ostinato.torch import dynamo  # noqa: E402

pytestmark = pytest.mark.extras
LABELS = torch.tensor([[1, 2, 2], [3, 1, 0]])
SPREAD = functools.partial(F.cross_entropy, label_smoothing=0.1)


def complex_pair(x: Any) -> tuple[Any, Any]:
    z = torch.complex(x[:, :3], x[:, 3:])
    return z, z.flip(0)


# Each is a function of a matrix of 4 x 6 numbers.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "smoothed labels": lambda x: [
        SPREAD(x, LABELS[0, [0, 1, 2, 0]], ignore_index=2, reduction=how)
        for how in ("mean", "sum", "none")
    ],
    "smoothed labels of weights": lambda x: SPREAD(x, LABELS.flatten()[:4], torch.arange(6.0)),
    "probabilities": lambda x: (F.cross_entropy(x, x.softmax(1)), SPREAD(x, x.softmax(1))),
    "Gaussian": lambda x: F.gaussian_nll_loss(x, x.flip(0), x.exp(), full=True),
    "CTC": lambda x: F.ctc_loss(
        x.view(6, 2, 2).repeat(1, 1, 2).log_softmax(-1), LABELS, (6, 5), (3, 2), reduction="none"
    ),
    "CTC without a way": lambda x: F.ctc_loss(
        x.view(6, 2, 2).repeat(1, 1, 2).log_softmax(-1), LABELS, (2, 6), (3, 0), zero_infinity=True
    ),
    "pools of a divisor": lambda x: (
        F.avg_pool2d(x[None], 3, 2, 1, divisor_override=5),
        F.avg_pool2d(x[None], (2, 3), (2, 4), (1, 0), True, False, divisor_override=-2),
        F.avg_pool3d(x.view(1, 2, 3, 2, 2), 2, 1, divisor_override=3),
    ),
    "uneven pools": lambda x: (
        *F.adaptive_max_pool2d(x[None], (3, 4), return_indices=True),
        F.adaptive_max_pool1d(x, 5),
        *F.adaptive_max_pool3d(x.view(1, 2, 3, 2, 2), (1, 2, 1), return_indices=True),
        F.adaptive_avg_pool3d(x.view(1, 2, 3, 2, 2), (2, 1, 2)),
    ),
    "given factors": lambda x: (
        torch.cholesky_solve(x, x[:, :4].exp().tril() + torch.eye(4)),
        x[:, :3].cholesky_solve(x[:, 2:].exp().triu() + torch.eye(4), upper=True),
        torch.cholesky_inverse(x[:, :4].tril() + 3 * torch.eye(4)),
    ),
    "rare ones": lambda x: (
        F.rrelu(x, 0.1, 0.4),
        x.put(torch.tensor([[1, -2], [3, 3]]), x[:2, :2], True),
        x.put(torch.tensor([1, 7]), x[0, :2]),
        torch.isin(x, x[1]),
        torch.isin(x, x[1:3], invert=True),
        *torch.aminmax(x[0, 0]),
        torch.nonzero(x[0, 0]),
        torch.argwhere(x[0, 0] - x[0, 0]),
        torch.native_batch_norm(x, x[0].exp(), x[1], None, None, True, 0.1, 1e-5)[0],
        x.as_strided((2, 3), (6, 1), 2),
    ),
    "log gamma": lambda x: torch.lgamma(torch.cat([x * 3, x * 30])),
    "digamma": lambda x: torch.digamma(x * 5),
    "erfinv": lambda x: torch.erfinv(x.tanh()),
    "hypot": lambda x: torch.hypot(x, x.flip(0)),
    "signs": lambda x: (torch.copysign(x, x.flip(0)), torch.fmax(x, x.flip(0))),
    "extremes": lambda x: (x.amin(), x.amax(), *torch.aminmax(x.exp()), x.amax((0, 1))),
    "order": lambda x: (x.median(), *torch.kthvalue(x, 2, 1), *x.median(0, True)),
    "the most frequent": lambda x: (
        *torch.mode(x.round()),
        *torch.mode((x * 2).round().long(), 0, True),
        torch.histc(x, 5),
        torch.histc(x[:1, :1], 3),
    ),
    "numbers among others": lambda x: (
        x.where(x < 0.5, torch.nan).nanmedian(),
        *x.where(x < 0.3, torch.nan).nanmedian(1),
        *(x * 9).long().nanmedian(0, True),
        x.where(x < -9, torch.nan).nanmedian(1)[0].nan_to_num(3.0),
    ),
    "places": lambda x: torch.searchsorted(x.sort(1)[0], x.flip(0), right=True),
    "distances": F.pdist,
    "running": lambda x: (*x.cummax(1), *torch.cummin(x.round(), 0), x.cumprod(1)),
    "solutions": lambda x: (
        torch.linalg.solve(x[:, :4], x[:, 4:]),
        torch.linalg.solve(x[:, :4].flip(0), x[0, :4]),
        torch.linalg.inv(torch.stack([x[:, :4], x[:, 2:]])),
        torch.linalg.solve_triangular(x[:3, :3].exp(), x[:3, 3:], upper=True),
    ),
    "signals of other sizes": lambda x: [
        F.interpolate(x[None], mode="linear", align_corners=corners, **size)
        for corners in (False, True)
        for size in ({"scale_factor": 1.6}, {"scale_factor": 0.7}, {"size": 7})
    ],
    "images of other sizes": lambda x: [
        F.interpolate(x[None, None], None, (1.3, 2.0), mode, align_corners=corners)
        for corners in (False, True)
        for mode in ("bilinear", "bicubic")
    ],
    "images of averages": lambda x: [
        F.interpolate(x[None, None], None, scales, mode, antialias=True)
        for scales in ((0.6, 0.7), (1.3, 2.0))
        for mode in ("bilinear", "bicubic")
    ],
    "volumes of other sizes": lambda x: [
        F.interpolate(x.view(1, 1, 2, 3, 4), None, 1.5, "trilinear", align_corners=corners)
        for corners in (False, True)
    ],
    "inverse transforms": lambda x: [
        torch.istft(complex_pair(x)[0], 6, 2, window=torch.hamming_window(6), length=3),
        torch.istft(complex_pair(x)[0], 6, 3, 6, torch.ones(6), normalized=True, length=11),
        torch.istft(complex_pair(x)[0][None], 6, 4, center=False),
        torch.istft(complex_pair(x)[0], 4, 1, onesided=False, return_complex=True),
    ],
    "windows": lambda x: (
        [
            x[0] * window
            for how in (torch.hann_window, torch.hamming_window, torch.blackman_window)
            for window in (how(6), how(6, periodic=False), how(1))
        ]
        + [
            x[0] * torch.hamming_window(6, True, 0.5, 0.4),
            x[0] * torch.bartlett_window(6),
            x[0] * torch.bartlett_window(6, False, dtype=torch.float64),
        ]
    ),
    "numbers in float64": lambda x: (
        x.double() * 0.1 + 1e-12,
        torch.full((3,), 1 / 3, dtype=torch.float64),
        x.double().clamp(-0.1, 0.1),
    ),
    "determinants": lambda x: (torch.linalg.det(x[:, :4]), *torch.linalg.slogdet(x[:, 1:5])),
    "exponentials": lambda x: (
        torch.linalg.matrix_exp(x[:, :4]),
        torch.matrix_exp(torch.stack([x[:3, :3] * 0.01, x[:3, 3:] * 5])),
        torch.matrix_exp(x[:, :4] - x[:, :4].mT),
    ),
    "digits near zero": lambda x: (
        [
            f(x * scale)
            for f in (torch.expm1, torch.special.expm1, torch.erfc, lambda y: torch.log1p(y.abs()))
            for scale in (1e-12, 1e-4, 1.0, 5.0)
        ]
        + [(x.double() * 1e-9).expm1(), (x * 1e-9).double().abs().log1p(), (x * 9).long().erfc()]
    ),
    "sums of exponentials so far": lambda x: (
        *(
            x.logcumsumexp(1),
            torch.logcumsumexp(x.detach() * 200, 0),
            (x * 3 - 120).logcumsumexp(1),
        ),
    ),
    "statistics": lambda x: (
        *(torch.cov(x), x[0].cov(correction=0), torch.corrcoef(x), x[0].corrcoef()),
        torch.cov(x, fweights=torch.arange(1, x.shape[1] + 1), aweights=x[0].exp(), correction=2),
    ),
    "powers": lambda x: (torch.linalg.vander(x, N=4), torch.combinations(x[0], 3, True)),
    "sums and products by index": lambda x: (
        x.detach().scatter(0, torch.tensor([[0, 2], [0, 0]]), x.detach()[:2], reduce="multiply"),
        x.detach().scatter(1, torch.tensor([[1, 1, 4]]), 2.0, reduce="add"),
        x.scatter(0, torch.tensor([[0, 2], [1, 0]]), x.detach() * 2),
        x.scatter_add(0, torch.tensor([[0, 2], [0, 0]]), x.detach() * 2),
    ),
    "means by index": lambda x: (
        x.scatter_reduce(0, torch.zeros_like(x[:2]).long(), x[1:3], "mean"),
        x.scatter_reduce(1, torch.ones_like(x).long(), x, "mean", include_self=False),
        (x * 2).index_reduce_(1, torch.tensor([0, 2, 0]), x[:, :3], "mean"),
    ),
    "reflections": lambda x: (
        torch.linalg.householder_product(x[:, :3].tril(-1), x[0, :3].tanh()),
        torch.linalg.householder_product(torch.stack([x, 2 * x])[:, :, :2], x[:2, :1].tanh()),
    ),
    "factors": lambda x: (
        torch.linalg.cholesky(x @ x.T),
        torch.distributions.MultivariateNormal(x[:, 0], x @ x.T).log_prob(x[:, 1]),
    ),
    "bags": lambda x: (
        [
            F.embedding_bag(
                LABELS.flatten() % 4, x, torch.tensor([0, 0, 4]), mode=how, padding_idx=1
            )
            for how in ("mean", "sum", "max")
        ]
        + [F.embedding_bag(LABELS, x, per_sample_weights=x[:2, :3], mode="sum")]
    ),
    "distributions": lambda x: (
        torch.distributions.StudentT(3 + x.exp(), x, x.exp()).log_prob(x.flip(0)),
        torch.distributions.NegativeBinomial(x.exp(), x.sigmoid()).log_prob(torch.tensor(3.0)),
    ),
    "complex functions": lambda x: [
        f(complex_pair(x)[0]) for f in (torch.exp, torch.tanh, torch.sqrt, torch.log, torch.sin)
    ],
    "complex products": lambda x: (
        complex_pair(x)[0] @ complex_pair(x)[1].mT,
        torch.einsum("ij,kj->ik", *complex_pair(x)).conj().imag,
        (complex_pair(x)[0] ** 3 / (complex_pair(x)[1] + 2j)).abs(),
        F.linear(*complex_pair(x), complex_pair(x)[0][:, 0]),
    ),
    "complex numbers": lambda x: (
        (1j * x).imag + (x / 2j).imag,
        3 - complex_pair(x)[0],
        torch.rsub(complex_pair(x)[0], 2, alpha=3),
        complex_pair(x)[0].masked_fill(x[:, :3] > 0, 3),
        F.pad(complex_pair(x)[0], (1, 1), value=2),
        torch.addcmul(*complex_pair(x), complex_pair(x)[1], value=2),
        complex_pair(x)[0] * torch.full((3,), 1 + 2j),
        complex_pair(x)[0] * torch.ones(3, dtype=torch.complex64) + torch.zeros(3) * 1j,
        complex_pair(x)[0] + torch.full((3,), 2, dtype=torch.complex64),
        [complex_pair(x)[0].new_zeros(3), complex_pair(x)[0].new_full((3,), 2)],
        [f(complex_pair(x)[0]) for f in (torch.zeros_like, torch.ones_like)],
        complex_pair(x)[0].index_add(0, torch.tensor([0]), complex_pair(x)[1][:1], alpha=2.0),
    ),
    "complex functions of angles": lambda x: (
        torch.sinh(complex_pair(x)[0]),
        torch.cosh(complex_pair(x)[0]),
        torch.sgn(complex_pair(x)[0]),
        torch.linalg.vector_norm(complex_pair(x)[0], dim=-1),
    ),
    "complex parts": lambda x: (
        complex_pair(x)[0].unsqueeze(1).expand(4, 2, 3)[1:, 0].cumsum(1),
        torch.where(x[:, :3] > 0, *complex_pair(x)).detach(),
        F.pad(complex_pair(x)[0], (1, 0)).split(2, 1),
    ),
}


class Whole(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def parts(found: Any) -> list[Any]:
    """The tensors of a result, as real numbers."""
    leaves = torch.utils._pytree.tree_leaves(found)
    return [torch.view_as_real(t) if t.is_complex() else t for t in leaves]


def gradient(results: list[Any], x: Any) -> Any:
    reached = [t for t in results if t.requires_grad]
    if not reached:
        return torch.zeros(())
    weights = [torch.linspace(0.5, 1.5, t.numel()).view(t.shape) for t in reached]
    return torch.autograd.grad(reached, x, weights)[0]


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_values_and_gradients_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    module, x = Whole(FUNCTIONS[name]), torch.randn(4, 6, requires_grad=True)
    expected, got = module(x), ostinato.torch.compile(module, x)(x)
    kinds = [[t.dtype for t in torch.utils._pytree.tree_leaves(y)] for y in (expected, got)]
    assert kinds[0] == kinds[1]
    for a, b in zip(parts(expected), parts(got), strict=True):
        bounds = (1e-12, 1e-12) if a.dtype == torch.float64 else (1e-5, 1e-6)
        torch.testing.assert_close(b, a, rtol=bounds[0], atol=bounds[1])
    wanted, own = gradient(parts(expected), x), gradient(parts(got), x)
    assert float((own - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())


def test_digits_near_zero_are_those_of_torch() -> None:
    x = torch.tensor([1e-12, -3e-6, 1e-4, 0.01, -0.4, 0.9, 3.5, -0.99, 2.0, float("inf")])
    for function in (torch.expm1, torch.log1p, lambda x: torch.erfc(x * 2)):
        for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            given = x.to(kind)
            found = ostinato.torch.compile(Whole(function), given)(given)
            wide = function(given.double())
            near = 8 * torch.finfo(kind).eps if kind != torch.float64 else 1e-11
            tiny = torch.finfo(kind).smallest_normal
            torch.testing.assert_close(found.double(), wide, rtol=near, atol=tiny)
            assert found.dtype == kind


def test_defaults_may_be_functions() -> None:
    def forward(x: Any, activation: Callable[[Any], Any] = torch.tanh, scale: float = 2.0) -> Any:
        return activation(x) * scale

    x = torch.randn(3)
    for named in ({}, {"scale": 3.0}):
        compiled = ostinato.torch.compile(forward, x, example_kwargs=named)
        torch.testing.assert_close(compiled(x, **named), forward(x, **named))


def test_averages_between_corners_are_refused() -> None:
    def forward(x: Any) -> Any:
        return F.interpolate(x, None, 0.5, "bilinear", align_corners=True, antialias=True)

    with pytest.raises(UnsupportedError, match="antialias between corners"):
        ostinato.torch.compile(forward, torch.randn(1, 2, 6, 6))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.t().as_strided((2, 3), (6, 1)), "on a contiguous\\(\\) one"),
        (lambda x: x[1:].as_strided((2, 3), (6, 1), 0), "on the whole tensor"),
        (
            lambda x: torch.native_batch_norm(x, None, None, x[0] + 0, x[1] + 0, True, 0.1, 1e-5),
            "functional.batch_norm",
        ),
    ],
)
def test_what_looks_at_memory_or_writes_to_it_is_refused(
    function: Callable[[Any], Any], message: str
) -> None:
    x = torch.randn(4, 6)
    with pytest.raises(UnsupportedError, match=message):
        ostinato.torch.compile(function, x)


def test_images_between_corners_have_any_size() -> None:
    def forward(x: Any) -> Any:
        return F.interpolate(x, None, 1.5, "bilinear", align_corners=True)

    compiled = ostinato.torch.compile(forward, torch.randn(2, 3, 6, 5), dynamic=True)
    for x in (torch.randn(2, 3, 6, 5), torch.randn(2, 3, 9, 4)):
        torch.testing.assert_close(compiled(x), forward(x), rtol=1e-4, atol=1e-5)


def test_dynamo_takes_the_formulas() -> None:
    def whole(x: Any) -> Any:
        return SPREAD(x, LABELS.flatten()[:4]) + torch.lgamma(x.exp()).sum()

    torch._dynamo.reset()
    x = torch.randn(4, 6, requires_grad=True)
    got = torch.compile(whole, backend=dynamo.backend, fullgraph=True)(x)
    torch.testing.assert_close(got, whole(x))
    torch.testing.assert_close(*(torch.autograd.grad(y, x)[0] for y in (got, whole(x))))


class Complex(torch.nn.Module):
    """Complex parameters, arguments and results, and states that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.register_buffer("mean", torch.zeros(5, dtype=torch.complex64))
        self.register_buffer("last", torch.zeros(5, dtype=torch.complex64))

    def forward(self, x: Any, z: Any) -> Any:
        self.mean.mul_(0.5).add_(z.detach().mean(0))
        self.last = self.last + z[0].detach()
        return self.w * torch.fft.rfft(x) + z * self.mean, {"size": (self.w * z).abs()}


def test_complex_parameters_arguments_and_buffers() -> None:
    torch.manual_seed(0)
    modules = Complex(), Complex()
    modules[1].load_state_dict(modules[0].state_dict())
    x, z = torch.randn(2, 8), torch.randn(2, 5, dtype=torch.complex64, requires_grad=True)
    calls = modules[0], ostinato.torch.compile(modules[1], (x, z))
    found = []
    for call, module in zip(calls, modules, strict=True):
        for given in (z, z.conj()):
            y, others = call(x, given)
        wanted = torch.view_as_real(y).square().sum() + others["size"].sum()
        found.append([y, *torch.autograd.grad(wanted, [z, module.w]), module.mean, module.last])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a)


def test_formulas_without_gradients_stay_without() -> None:
    def whole(x: Any) -> Any:
        with torch.no_grad():
            scale = torch.lgamma(x.exp())
        return torch.lgamma(x.exp()) * scale

    x = torch.randn(3, requires_grad=True)
    got = ostinato.torch.compile(whole, x)(x)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (got, whole(x))))


class Narrow(torch.nn.Module):
    """Layers that ONNX has for bfloat16, and others that it has not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv1d(4, 6, 3), torch.nn.LayerNorm(6)
        self.gru = torch.nn.GRU(6, 5, batch_first=True)

    def forward(self, x: Any) -> Any:
        y = F.max_pool1d(F.gelu(self.conv(x)), 2).mT
        return self.gru(self.norm(y).cumsum(1))


def test_bfloat16() -> None:
    torch.manual_seed(0)
    module, x = Narrow().bfloat16(), torch.randn(2, 4, 12, dtype=torch.bfloat16).requires_grad_()
    compiled = ostinato.torch.compile(module, x)
    found = []
    for call in (module, compiled):
        y, state = call(x)
        assert y.dtype == state.dtype == torch.bfloat16
        wanted = y.square().sum() + state.sum()
        gradients = torch.autograd.grad(wanted, [x, *module.parameters()])
        found.append([y.detach(), state.detach(), *gradients])
    for a, b in zip(*found, strict=True):
        assert b.dtype == torch.bfloat16
        # Eight bits, rounded at every operator by both.
        assert float((a - b).abs().max()) <= 0.03 * float(a.abs().max())


def test_autocast() -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8)), torch.randn(4, 6)

    def whole(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(x)

    expected, got = whole(x), ostinato.torch.compile(whole, x)(x)
    assert got.dtype == expected.dtype
    assert float((got - expected).abs().max()) <= 0.01 * float(expected.abs().max())


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: torch.einsum("ij,kj->ik", x, x), id="einsum"),
        pytest.param(lambda x: torch.linalg.multi_dot([x, x.mT, x]), id="multi_dot"),
        pytest.param(lambda x: (torch.inner(x, x) * x[:, 0]).sum(1), id="inner"),
        pytest.param(lambda x: torch.linalg.vecdot(x, x), id="vecdot"),
        pytest.param(lambda x: torch.einsum("ij->j", x), id="an einsum without a product"),
    ],
)
@pytest.mark.parametrize("within", [False, True], ids=["around", "within"])
def test_autocast_casts_what_operators_are_made_of(
    function: Callable[[Any], Any], within: bool
) -> None:
    def cast(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(x)

    x, called = torch.randn(4, 6), cast if within else function
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not within):
        got = ostinato.torch.compile(called, x)(x)
    torch.testing.assert_close(got, cast(x), atol=0.05, rtol=0.02)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(torch.linalg.inv, id="inv"),
        pytest.param(lambda x: torch.linalg.solve(x, x[:, :2]), id="solve"),
        pytest.param(lambda x: torch.cdist(x @ x, x), id="cdist"),
    ],
)
def test_autocast_leaves_what_formulas_are_made_of(function: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 5) + 5 * torch.eye(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(ostinato.torch.compile(function, x)(x), function(x))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTM with projection"])
@pytest.mark.parametrize("is_packed", [False, True], ids=["tensor", "packed"])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_recurrent_layers_under_autocast_give_the_types_of_torch(
    kind: str, is_packed: bool, given: Any
) -> None:
    name, _, is_projected = kind.partition(" ")
    settings = {"proj_size": 2} if is_projected else {}
    module = getattr(torch.nn, name)(4, 3, num_layers=2, bidirectional=True, **settings)

    def call(x: Any) -> Any:
        if not is_packed:
            return module(x)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
        y, states = module(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(y)[0], states

    x = torch.randn(5, 2, 4, dtype=given, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, got = call(x), ostinato.torch.compile(call, x)(x)
        torch.testing.assert_close(got, expected, atol=0.02, rtol=0.02)
        y, _ = got
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert gradient.dtype == given and gradient.abs().sum() > 0


@pytest.mark.parametrize("kind", ["LSTM", "LSTM with projection", "inverse"])
def test_autocast_within_a_graph_of_dynamo(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"proj_size": 2} if kind.endswith("projection") else {}
    layer = torch.nn.LSTM(4, 3, **settings) if kind.startswith("LSTM") else torch.linalg.inv

    def call(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
        assert not torch.is_autocast_enabled("cpu")
        return y, x @ x.mT

    torch._dynamo.reset()
    x = torch.randn(2, 4, 4) + 5 * torch.eye(4)
    got = torch.compile(call, backend="ostinato")(x)
    assert not [r for r in caplog.records if r.name.startswith("ostinato")]
    assert not torch.is_autocast_enabled("cpu")
    tolerance = 0.02 if kind.startswith("LSTM") else 1e-5
    torch.testing.assert_close(got, call(x), atol=tolerance, rtol=tolerance)


def test_numbers_of_bfloat16_are_drawn_as_such_and_parts_of_it_taken() -> None:
    """PyTorch draws others for float32 where they are 16 or more, and no multiple of 16."""

    def drawn(x: Any) -> Any:
        a, b = x.split([2, 4], 1)
        return torch.randn_like(x) * 2, a, b, *torch.unsafe_split(x, 3, 1)

    x = torch.randn(4, 6, dtype=torch.bfloat16)
    compiled = ostinato.torch.compile(drawn, x)
    found = []
    for call in (drawn, compiled):
        torch.manual_seed(0)
        found.append(call(x))
    torch.testing.assert_close(*found, atol=0, rtol=0)


def test_parameters_with_two_names() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7)
            self.out.weight = self.table.weight

        def forward(self, x: Any) -> Any:
            return self.out(self.table(x))

    module, x = Tied(), torch.tensor([[1, 2, 2]])
    compiled = ostinato.torch.compile(module, x)
    found = [
        torch.autograd.grad(call(x).sin().sum(), module.table.weight) for call in (module, compiled)
    ]
    torch.testing.assert_close(*found)


def test_buffers_may_be_called_as_values_of_the_program() -> None:
    class Centred(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.ones(4))

        def forward(self, x: Any) -> Any:
            return x - x.mean(0) + self.mean

    x = torch.randn(3, 4)
    torch.testing.assert_close(ostinato.torch.compile(Centred(), x)(x), Centred()(x))


SCALES, POINTS = torch.rand(6) * 0.1 + 0.01, torch.arange(6, dtype=torch.int32)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(
            lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -20, 20), id="numbers"
        ),
        pytest.param(
            lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[0], POINTS[1], 0, 255),
            id="tensors",
        ),
        pytest.param(
            lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, POINTS, 1, -8, 7),
            id="channels",
        ),
    ],
)
@pytest.mark.parametrize("is_exported", [False, True], ids=["module", "program"])
def test_gradients_pass_what_is_rounded_within_its_range(
    function: Callable[[Any], Any], is_exported: bool
) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    x, module = torch.randn(5, 6, requires_grad=True), Module()
    given = torch.export.export(module, (x,)) if is_exported else module
    compiled = ostinato.torch.compile(given, x)
    weights = torch.randn(5, 6)
    found = [
        (y := call(x), *torch.autograd.grad((y * weights).sum(), x)) for call in (module, compiled)
    ]
    torch.testing.assert_close(*found, atol=0, rtol=0)


def test_products_of_bytes() -> None:
    a, b = (torch.randint(-100, 100, (32, 32), dtype=torch.int8) for _ in range(2))
    got = ostinato.torch.compile(torch._int_mm, (a, b))(a, b)
    torch.testing.assert_close(got, torch._int_mm(a, b), atol=0, rtol=0)


@pytest.mark.parametrize("function", [torch.linalg.qr, torch.frexp, torch.special.i0])
def test_operators_without_a_form_in_onnx_are_named(function: Callable[[Any], Any]) -> None:
    with pytest.raises(
        UnsupportedError, match=r"operator '\w+\.\w+' has no form in ONNX.* PyTorch"
    ):
        ostinato.torch.compile(function, torch.randn(3, 3))
