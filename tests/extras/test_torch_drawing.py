"""Numbers that a seed gives through the operators that draw."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import torch.nn.functional as F  # noqa: E402

import ostinato.torch  # noqa: E402
from ostinato.errors import UnsupportedError  # noqa: E402
from ostinato.torch.layers import unseen_elements  # noqa: E402
from tests.extras.test_torch_effects import assert_same_seed, assert_trains_alike, through  # noqa: E402

pytestmark = pytest.mark.extras


class Choosing(torch.nn.Module):
    """Chooses among classes in the ways of quantisers, policies and samplers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 5)

    def forward(self, x: Any) -> Any:
        scores = self.layer(x)
        y = F.gumbel_softmax(scores, hard=True) + F.gumbel_softmax(scores, 0.5)
        chances = scores.detach().softmax(-1)
        policy = torch.distributions.Categorical(logits=scores)
        y = y + policy.log_prob(policy.sample()).unsqueeze(-1)
        y = y * torch.multinomial(chances, 5) + torch.multinomial(chances, 5, replacement=True)
        y = y[torch.randperm(x.shape[0])] + torch.randint(2, 9, (5,))
        y = y + torch.randint_like(y, 3) * torch.empty(5).uniform_(-1, 1)
        y = y + torch.empty(5).normal_(1, 2) + torch.empty_like(y).exponential_(0.5)
        return y + torch.normal(y.detach(), 0.5) + torch.empty(5).log_normal_() / 50


@through
def test_the_numbers_of_a_seed_are_those_of_torch(through: str) -> None:
    torch.manual_seed(0)
    assert_trains_alike(Choosing(), through, torch.randn(7, 6))


@pytest.mark.parametrize("is_first", [True, False])
def test_distributions_validate_after_a_compilation_unless_dynamo_ends_it(
    is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = torch.distributions.Distribution
    monkeypatch.setattr(distribution, "_validate_args", True)
    with unseen_elements():
        assert not distribution._validate_args
        if is_first:
            distribution.set_default_validate_args(False)
    assert distribution._validate_args is not is_first


def test_drawn_places_have_the_sizes_of_the_call() -> None:
    def forward(x: Any) -> Any:
        return x[torch.randperm(x.shape[0])] + torch.multinomial(x.exp(), 1)

    call = ostinato.torch.compile(forward, torch.randn(4, 6), dynamic=True)
    for rows in (9, 3):
        assert_same_seed(forward, call, torch.randn(rows, 6))


def test_integers_that_no_float_has_are_refused() -> None:
    def forward(x: Any) -> Any:
        return x + torch.randint(0, 2**63 - 1, (3,))

    with pytest.raises(UnsupportedError, match=r"randint.*2\*\*53"):
        ostinato.torch.compile(forward, torch.zeros(3))
