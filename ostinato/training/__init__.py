"""Training ONNX models: forward, backward and update compiled into one call."""

from __future__ import annotations

from ostinato.training.optimizers import SGD, Adagrad, Adam, AdamW, Momentum, Optimizer
from ostinato.training.trainer import Trainer

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Momentum", "Optimizer", "Trainer"]
