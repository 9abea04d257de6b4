"""Steps of a Trainer beside those of PyTorch: losses, optimizers, clipping."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato
from ostinato.training import SGD, Adagrad, Adam, AdamW, Momentum

torch = pytest.importorskip("torch", reason="torch is not installed")
functional = torch.nn.functional

STEPS, RATE = 8, 0.05
TEXT = """<ir_version: 9, opset_import: ["": 20]>
g (float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w)  y = Add(h, b) }"""

OPTIMIZERS = {
    "sgd": (SGD(weight_decay=0.1), lambda p: torch.optim.SGD(p, RATE, weight_decay=0.1)),
    "momentum": (Momentum(), lambda p: torch.optim.SGD(p, RATE, momentum=0.9)),
    "nesterov": (
        Momentum(0.8, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, RATE, momentum=0.8, nesterov=True, weight_decay=0.1),
    ),
    "adam": (Adam(), lambda p: torch.optim.Adam(p, RATE)),
    "adam with decay": (
        Adam(0.8, 0.95, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, RATE, (0.8, 0.95), weight_decay=0.1),
    ),
    "adamw": (AdamW(), lambda p: torch.optim.AdamW(p, RATE)),
    "adagrad": (
        Adagrad(decay=0.1, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(p, RATE, lr_decay=0.1, weight_decay=0.1),
    ),
}

Arrays = dict[str, np.ndarray]


def weights() -> Arrays:
    random = np.random.default_rng(0)
    return {
        "w": random.standard_normal((4, 3)).astype(np.float32),
        "b": random.standard_normal(3).astype(np.float32),
    }


def model_of(start: Arrays) -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in start.items())
    return model


def compare(optimizer, other, loss: str, loss_of, target: np.ndarray, clip=None) -> None:
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    trainer = ostinato.Trainer(model_of(weights()), loss, optimizer, lr=RATE, clip_norm=clip)
    parameters = {n: torch.tensor(a, requires_grad=True) for n, a in weights().items()}
    updates = other(list(parameters.values()))
    for _ in range(STEPS):
        updates.zero_grad()
        y = torch.from_numpy(x) @ parameters["w"] + parameters["b"]
        expected = loss_of(y, torch.from_numpy(target))
        expected.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        updates.step()
        got = trainer.step({"x": x}, {"y": target})
        assert got == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in parameters.items():
        np.testing.assert_allclose(
            trainer.parameters[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-5
        )


def floats() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((6, 3)).astype(np.float32)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, clip: float | None) -> None:
    compare(*OPTIMIZERS[name], "mse", functional.mse_loss, floats(), clip)


@pytest.mark.parametrize(
    ("loss", "loss_of", "target"),
    [
        ("l1", functional.l1_loss, floats()),
        ("bce_with_logits", functional.binary_cross_entropy_with_logits, np.abs(np.sin(floats()))),
        ("cross_entropy", functional.cross_entropy, np.array([0, 2, 1, -100, 0, 2])),
    ],
)
def test_losses(loss: str, loss_of, target: np.ndarray) -> None:
    compare(*OPTIMIZERS["sgd"], loss, loss_of, target)


def test_steps_of_sequences_have_classes_along_the_last_axis() -> None:
    text = TEXT.replace("float[N,", "float[T, N,")
    model = onnx.parser.parse_model(text)
    start = weights()
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in start.items())
    random = np.random.default_rng(1)
    x = random.standard_normal((5, 2, 4)).astype(np.float32)
    target = random.integers(0, 3, (5, 2))
    loss = ostinato.Trainer(model, "cross_entropy").step({"x": x}, {"y": target})
    y = torch.from_numpy(x @ start["w"] + start["b"]).movedim(-1, 1)
    assert loss == pytest.approx(
        functional.cross_entropy(y, torch.from_numpy(target)).item(), rel=1e-5
    )
