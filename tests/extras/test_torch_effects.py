"""What a call does beside its results: random numbers, written buffers, where gradients stop."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import ostinato.torch  # noqa: E402
from ostinato.errors import UnsupportedError  # noqa: E402
from ostinato.torch import dynamo  # noqa: E402

pytestmark = pytest.mark.extras
through = pytest.mark.parametrize("through", ["compile", "dynamo"])


def compiled(module: Any, through: str, *args: Any, dynamic: Any = None) -> Any:
    if through == "compile":
        return ostinato.torch.compile(module, args, dynamic)
    torch._dynamo.reset()
    return torch.compile(module, backend=dynamo.backend, fullgraph=True, dynamic=dynamic)


def trained(call: Any, module: Any, x: Any, steps: int = 3) -> list[Any]:
    """Results, gradients (zero or None count) and buffers after some steps of a seed."""
    torch.manual_seed(1)
    found: list[Any] = []
    for _ in range(steps):
        module.zero_grad()
        y = call(x)
        y.square().sum().backward()
        found += [y.detach(), *(p.grad for p in module.parameters())]
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
    return found + [buffer.clone() for buffer in module.buffers()]


def assert_trains_alike(module: Any, through: str, x: Any, dynamic: Any = None) -> None:
    other = copy.deepcopy(module)
    expected = trained(module, module, x)
    got = trained(compiled(other, through, x, dynamic=dynamic), other, x)
    for a, b in zip(expected, got, strict=True):
        if a is None or b is None:
            assert a is b
        else:
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


class Drawing(torch.nn.Module):
    """Draws at many places, at each step of a loop too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        h = torch.zeros(x.shape[1], 6)
        for t in range(x.shape[0]):
            h = torch.tanh(self.cell(h) + F.dropout(x[t], 0.3, self.training))
        h = F.dropout1d(h[None], 0.2, self.training)[0] + torch.randn_like(h)
        h = h * torch.rand(h.shape[0], 1) + torch.bernoulli(torch.sigmoid(h.detach()))
        return self.out(F.alpha_dropout(h, 0.1, self.training))


@through
def test_the_numbers_of_a_seed_are_those_of_torch(through: str) -> None:
    assert_trains_alike(Drawing(), through, torch.randn(10, 4, 6))


def test_drawn_numbers_have_the_sizes_of_the_call() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Dropout(0.5))
    call = ostinato.torch.compile(module, torch.randn(4, 6), dynamic=True)
    for rows in (7, 3):
        assert_same_seed(module, call, torch.randn(rows, 6))


def assert_same_seed(module: Any, call: Any, x: Any) -> None:
    torch.manual_seed(2)
    expected = module(x)
    torch.manual_seed(2)
    torch.testing.assert_close(call(x), expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(call(x), call(x))


def test_dropout_of_attention() -> None:
    attention = torch.nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = torch.randn(1, 5, 8)
    for module in (
        lambda x: attention(x, x, x)[0],
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    ):
        assert_same_seed(module, ostinato.torch.compile(module, x), x)


def test_numbers_within_a_loop_are_refused() -> None:
    from torch._higher_order_ops.scan import scan

    def forward(x: Any) -> Any:
        return scan(lambda h, e: (h + F.dropout(e), h.clone()), x[0].clone(), x)[1]

    with pytest.raises(UnsupportedError, match="draws random numbers within a loop"):
        ostinato.torch.compile(forward, torch.randn(5, 3))


class Remembering(torch.nn.Module):
    """A state that is written in place or replaced, a count of calls and whether there were any."""

    def __init__(self, replaced: bool) -> None:
        super().__init__()
        self.replaced, self.cell = replaced, torch.nn.GRUCell(6, 6)
        self.register_buffer("state", torch.zeros(4, 6))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("odd", torch.tensor(False))

    def forward(self, x: Any) -> Any:
        h = self.cell(x, self.state.detach().clone())
        if self.replaced:
            self.state, self.count, self.odd = h, self.count * 2 + 1, ~self.odd
        else:
            self.count += 1
            self.odd.logical_not_()
            self.state.mul_(0.5).add_(h.detach())
        return torch.where(self.odd, h * self.count, h)


@through
@pytest.mark.parametrize("replaced", [False, True])
def test_buffers_that_a_call_writes(through: str, replaced: bool) -> None:
    assert_trains_alike(Remembering(replaced), through, torch.randn(4, 6))


class Copying(torch.nn.Module):
    """Copies what has another type than a buffer, or fewer axes, over it or a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros(4, dtype=torch.int32))

    def forward(self, x: Any) -> Any:
        self.mean.copy_(x.mean())
        self.count[1:3].copy_(x.double().sum(0)[:2])
        x.fill_diagonal_(0.5)
        return self.mean * 2, self.count, x[0].copy_(self.count), self.mean + x[0], x.cos()


@through
def test_copies_have_the_type_and_the_shape_of_what_they_write(through: str) -> None:
    x, module = torch.linspace(-3, 9, 20).view(5, 4), Copying()
    other = copy.deepcopy(module)
    expected = [*module(x.clone()), *module.buffers()]
    got = [*compiled(other, through, x.clone())(x.clone()), *other.buffers()]
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a)


class Watched(torch.nn.Module):
    """Keeps what no later call reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4))
        self.seen = None
        self.register_buffer("last", torch.zeros(3, 4))

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        self.seen, self.last = torch.tanh(y), y.detach()
        return self.seen * 2


def test_attributes_that_no_call_reads() -> None:
    module, x = Watched(), torch.randn(3, 4)
    other = copy.deepcopy(module)
    call = ostinato.torch.compile(other, x)
    for _ in range(2):
        torch.testing.assert_close(call(x), module(x))
        torch.testing.assert_close(other.seen, module.seen)
        torch.testing.assert_close(other.last, module.last)
        torch.testing.assert_close(other.linear.weight_u, module.linear.weight_u)


class Holding(torch.nn.Module):
    """Keeps something for the next call in an attribute that is no tensor."""

    def __init__(self, kept: Any, write: Any) -> None:
        super().__init__()
        self.kept, self.write = kept, write

    def forward(self, x: Any) -> Any:
        self.write(self, x)
        return x * 2


def _grow(module: Any, x: Any) -> None:
    module.kept.append(x)


def _replace(module: Any, x: Any) -> None:
    module.kept["h"] = module.kept["h"] + x


def _set(module: Any, x: Any) -> None:
    module.kept.h = x + 1


HOLDING = {
    "a list that grows": (list, _grow, r"kept\[0\]"),
    "an entry of a dict": (lambda: {"h": torch.zeros(3)}, _replace, r"kept\['h'\]"),
    "an object": (lambda: SimpleNamespace(h=None), _set, r"kept\.h"),
}


@pytest.mark.parametrize("name", HOLDING)
def test_tensors_that_lists_and_dicts_keep_for_the_next_call_are_refused(name: str) -> None:
    make, write, message = HOLDING[name]
    with pytest.raises(UnsupportedError, match=f"writes into .{message}"):
        ostinato.torch.compile(Holding(make(), write), torch.ones(3))


def _count(module: Any, x: Any) -> None:
    module.kept += 1


def _look_up(module: Any, x: Any) -> None:
    if "table" not in module.kept:
        module.kept["table"] = torch.arange(3.0)


@pytest.mark.parametrize(("make", "write"), [(int, _count), (dict, _look_up)])
def test_what_compiled_calls_leave_out_is_a_warning(make: Any, write: Any) -> None:
    module = Holding(make(), write)
    with pytest.warns(UserWarning, match=r"Holding: a call changes .kept"):
        call = ostinato.torch.compile(module, torch.ones(3))
    torch.testing.assert_close(call(torch.ones(3)), 2 * torch.ones(3))
    assert module.kept == make()


class Lazy(torch.nn.Module):
    """Makes a table, or a state, when it is called first."""

    def __init__(self, is_state: bool) -> None:
        super().__init__()
        self.h: Any = None
        self.is_state = is_state

    def forward(self, x: Any) -> Any:
        if self.h is None:
            self.h = torch.arange(3.0)
        if self.is_state:
            self.h = self.h + x
        return x + self.h


def test_an_attribute_that_a_call_makes_a_tensor_is_one_for_the_next() -> None:
    call, module, x = ostinato.torch.compile(Lazy(False), torch.ones(3)), Lazy(False), torch.ones(3)
    for _ in range(3):
        torch.testing.assert_close(call(x), module(x))
    state = ostinato.torch.compile(Lazy(True), x)
    torch.testing.assert_close(state(x), Lazy(True)(x))
    with pytest.raises(UnsupportedError, match="writes into 'h'"):
        state(x)


@through
def test_batch_normalization_in_training(through: str) -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv1d(6, 5, 2, bias=False),
        torch.nn.BatchNorm1d(5),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
    )
    assert_trains_alike(module, through, torch.randn(8, 6, 7), dynamic=True)


def test_instance_normalization_with_running_statistics() -> None:
    module = torch.nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
    assert_trains_alike(module, "compile", torch.randn(4, 3, 5))


@through
def test_an_argument_that_a_call_writes(through: str) -> None:
    def forward(x: Any, total: Any) -> Any:
        total.add_(x.sum(0))
        return x * total

    x, total = torch.randn(3, 4), torch.zeros(4)
    call = compiled(forward, through, x, torch.zeros(4))
    for steps in (1, 2):
        torch.testing.assert_close(call(x, total), x * x.sum(0) * steps)
        torch.testing.assert_close(total, x.sum(0) * steps)


class Stopping(torch.nn.Module):
    """Gradients stop in the graph, in a loop, and in front of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.code = torch.nn.Embedding(9, 6)
        self.enter, self.target = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        z = self.enter(x)
        nearest = self.code(torch.cdist(z, self.code.weight).argmin(-1))
        z = z + (nearest - z).detach()
        with torch.no_grad():
            target = self.target(z)
        h, spikes = torch.zeros_like(z[0]), []
        for t in range(x.shape[0]):
            h = 0.9 * h + z[t]
            soft = torch.sigmoid(h)
            spikes.append(soft + ((h > 0.5).float() - soft).detach())
            h = h - spikes[-1].detach()
        return torch.stack(spikes) - target


@through
def test_gradients_stop_where_torch_stops_them(through: str) -> None:
    assert_trains_alike(Stopping(), through, torch.randn(10, 2, 6))


class Padded(torch.nn.Module):
    """One row of a table has no gradient, and a part is computed again in the backward call."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = torch.nn.Embedding(5, 4, padding_idx=1), torch.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        rows = self.table(x)
        rows = checkpoint(lambda rows: self.out(rows).tanh(), rows, use_reentrant=True)
        return checkpoint(torch.sin, rows, use_reentrant=False)


@through
def test_padding_of_an_embedding_and_checkpoints(
    through: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert_trains_alike(Padded(), through, torch.tensor([[0, 1, 1], [4, 1, 2]]))
    assert "runs in PyTorch" not in caplog.text


def test_gradients_that_are_divided_by_counts_are_refused() -> None:
    module = torch.nn.Embedding(5, 4, scale_grad_by_freq=True)
    with pytest.raises(UnsupportedError, match="scale_grad_by_freq"):
        ostinato.torch.compile(module, (torch.tensor([0, 1, 1]),))


def test_results_without_a_gradient_say_so() -> None:
    weight = torch.nn.Parameter(torch.randn(3))
    call = ostinato.torch.compile(lambda x: (x * 2, (x * 2).detach(), x.argmax()), (weight,))
    assert [y.requires_grad for y in call(weight)] == [True, False, False]


def test_what_has_only_the_sizes_of_an_argument_has_no_gradient() -> None:
    class Filled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = torch.nn.Parameter(torch.randn(4))

        def forward(self, x: Any) -> Any:
            h = torch.zeros_like(self.start) + 1
            return h, torch.full_like(x, 2.0), torch.zeros_like(x).fill_(3), x.new_ones(3), x * h

    module, x = Filled(), torch.randn(3, 4, requires_grad=True)
    compiled = ostinato.torch.compile(module, x)
    results = compiled(x)
    assert [y.requires_grad for y in results] == [y.requires_grad for y in module(x)]
    results[-1].sum().backward()
    assert module.start.grad is None
    torch.testing.assert_close(x.grad, torch.ones(3, 4))


@pytest.mark.parametrize("by", ["grad", "backward"])
def test_gradients_within_a_module_are_refused(by: str) -> None:
    def forward(x: Any) -> Any:
        energy = x.pow(3).sum()
        if by == "backward":
            energy.backward()
        return torch.autograd.grad(energy, x, create_graph=True)[0]

    with pytest.raises(UnsupportedError, match="compile the part that it is of"):
        ostinato.torch.compile(forward, torch.randn(3, requires_grad=True))


def test_a_transform_in_a_graph_of_dynamo_runs_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    def forward(x: Any) -> Any:
        return torch.func.grad(lambda x: x.pow(3).sum())(x)

    x = torch.randn(3)
    call = compiled(forward, "dynamo")
    torch.testing.assert_close(call(x), 3 * x * x)
    assert "runs in PyTorch" in caplog.text


def test_hooks_within_a_module_are_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3))
    module[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="hook"):
        ostinato.torch.compile(module, torch.randn(2, 3))

    def forward(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: g * 2)
        return y

    with pytest.raises(UnsupportedError, match="hook"):
        ostinato.torch.compile(forward, torch.randn(2, 3).requires_grad_())
