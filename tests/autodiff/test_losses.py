"""Losses are defined by other operators, which they become before they are differentiated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.autodiff.check import check
from tests.autodiff.models import parse


@pytest.mark.parametrize("op_type", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weights", ["", ", w"])
@pytest.mark.parametrize("ignored", ["", ", ignore_index=1"])
def test_losses(op_type: str, reduction: str, weights: str, ignored: str) -> None:
    result = "float[N,T] y" if reduction == "none" else "float y"
    given = ", float[5] w" if weights else ""
    model = parse(
        f"g (float[N,5,T] x, int64[N,T] t{given}) => ({result}) "
        f'{{ y = {op_type}<reduction="{reduction}"{ignored}>(x, t{weights}) }}'
    )
    random = np.random.default_rng(1)
    feeds = {
        "x": random.standard_normal((3, 5, 4)).astype(np.float32),
        "t": random.integers(0, 5, (3, 4)),
        "w": random.random(5).astype(np.float32) + np.float32(0.5),
    }
    if not weights:
        del feeds["w"]
    check(model, feeds, ["x"])


@pytest.mark.parametrize("shape", ["N,5", "2,5,3,2"])
def test_losses_of_other_ranks(shape: str) -> None:
    target = ",".join(size for i, size in enumerate(shape.split(",")) if i != 1)
    model = parse(
        f"g (float[{shape}] x, int64[{target}] t) => (float y, float[{shape}] p) "
        "{ y, p = SoftmaxCrossEntropyLoss(x, t) }"
    )
    random = np.random.default_rng(2)
    sizes = [3 if size == "N" else int(size) for size in shape.split(",")]
    x = random.standard_normal(sizes).astype(np.float32)
    check(model, {"x": x, "t": random.integers(0, 5, (sizes[0], *sizes[2:]))})


def test_a_loss_beside_a_model() -> None:
    model = parse(
        "g (float[N,4] x, float[4,3] w, int64[N] t) => (float y) "
        "{ z = MatMul(x, w) y = SoftmaxCrossEntropyLoss(z, t) }"
    )
    random = np.random.default_rng(3)
    feeds = {
        "x": random.standard_normal((6, 4)).astype(np.float32),
        "w": random.standard_normal((4, 3)).astype(np.float32),
        "t": random.integers(0, 3, 6),
    }
    check(model, feeds)
