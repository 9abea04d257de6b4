"""Writes through `detach` and `.data`, which gradients pass by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import torch.nn.functional as F  # noqa: E402

import ostinato.torch  # noqa: E402
from ostinato.errors import UnsupportedError  # noqa: E402
from tests.extras.test_torch_effects import assert_trains_alike, through  # noqa: E402

pytestmark = pytest.mark.extras


class Kept(torch.nn.Module):
    """A mean that a call writes in a way of its own."""

    def __init__(self, write: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.layer, self.write = torch.nn.Linear(4, 4), write
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        self.write(self.mean, y)
        return y - self.mean


def _averaged(mean: Any, y: Any) -> None:
    mean.data.mul_(0.9).add_(y.mean(0), alpha=0.1)


def _in_part(mean: Any, y: Any) -> None:
    mean.data[1:3] = y.mean(0).data[1:3]


def _interpolated(mean: Any, y: Any) -> None:
    mean.detach().lerp_(y.mean(0).detach(), 0.1)


def _without_gradients(mean: Any, y: Any) -> None:
    with torch.no_grad():
        mean.data.copy_(0.9 * mean + 0.1 * y.mean(0))


@through
@pytest.mark.parametrize("write", [_averaged, _in_part, _interpolated, _without_gradients])
def test_a_buffer_is_written_through_what_has_its_memory(through: str, write: Any) -> None:
    assert_trains_alike(Kept(write), through, torch.randn(3, 4))


def test_data_that_are_assigned_are_written() -> None:
    def assign(mean: Any, y: Any) -> None:
        mean.data = 0.9 * mean.data + 0.1 * y.mean(0).data

    assert_trains_alike(Kept(assign), "compile", torch.randn(3, 4))


class Codes(torch.nn.Module):
    """The nearest of some vectors, with how often each was."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.code = torch.nn.Linear(4, 4), torch.nn.Embedding(5, 4)
        self.register_buffer("counts", torch.zeros(5))

    def forward(self, x: Any) -> Any:
        z = self.enter(x)
        nearest = torch.cdist(z, self.code.weight).argmin(-1)
        self.counts.data.mul_(0.99).add_(F.one_hot(nearest, 5).float().sum(0), alpha=0.01)
        code = self.code(nearest)
        return z + (code - z).detach() + (code - z.detach()).square().mean() + self.counts.sum()


@through
def test_counts_of_a_quantiser(through: str) -> None:
    assert_trains_alike(Codes(), through, torch.randn(6, 4))


def _detached(y: Any) -> None:
    y.detach().mul_(2)


def _clamped(y: Any) -> None:
    y.data.clamp_(-0.1, 0.1)


def _assigned(y: Any) -> None:
    y.data = y.data.round()


def _doubled(y: Any) -> None:
    with torch.no_grad():
        y.mul_(2)


@pytest.mark.parametrize("write", [_detached, _clamped, _assigned, _doubled])
def test_writes_that_a_gradient_would_have_to_pass_by_are_refused(write: Any) -> None:
    layer = torch.nn.Linear(4, 4)

    def forward(x: Any) -> Any:
        y = layer(x)
        write(y)
        return 3 * y

    with pytest.raises(UnsupportedError, match=r"writes through detach\(\), .data or no_grad\(\)"):
        ostinato.torch.compile(forward, torch.randn(3, 4))


@through
def test_what_only_detach_has_may_be_written(through: str) -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.layer(x).detach()
            y[0] = 0
            return self.layer(y)

    assert_trains_alike(Masked(), through, torch.randn(3, 4))


def test_rows_of_a_table_that_are_scaled_where_it_is_an_argument_are_left_to_torch() -> None:
    table, places = torch.nn.Embedding(10, 4, max_norm=1.0), torch.tensor([1, 3])
    torch._dynamo.reset()
    rows = torch.compile(table, backend="ostinato")(places)
    torch.testing.assert_close(rows, table.weight[places])
    assert float(rows.norm(dim=-1).max().detach()) < 1.0001
