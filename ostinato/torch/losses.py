"""Losses of PyTorch that its exporter has no form for, or a wrong one, in terms of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.scan import scan

# Takes the place of the logarithm of 0 where its gradient, too, has to be a number.
_NEVER = -1e30
_REDUCTIONS = ("none", "mean", "sum")


def _reduced(loss: Tensor, reduction: str | int) -> Tensor:
    """reduction: its name, or the number that operators have for it."""
    how = _REDUCTIONS[reduction] if isinstance(reduction, int) else reduction
    return loss.sum() if how == "sum" else loss.mean() if how == "mean" else loss


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy with smoothed labels, which the exporter ignores, or of probabilities."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    return cross_entropy_loss(x, target, weight, reduction, ignore_index, label_smoothing)


def cross_entropy_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str | int = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """The same with the arguments of the operator."""
    is_labels = not target.is_floating_point()
    if is_labels and label_smoothing == 0:
        return NotImplemented
    how = _REDUCTIONS[reduction] if isinstance(reduction, int) else reduction
    axis = min(x.dim() - 1, 1)
    logarithms, classes = x.log_softmax(axis), x.shape[axis]
    weights = torch.ones_like(x)
    if weight is not None:
        weights = weight.view([-1 if i == axis else 1 for i in range(x.dim())]).expand_as(x)
    if not is_labels:
        target = target * (1 - label_smoothing) + label_smoothing / classes
        loss = -(logarithms * target * weights).sum(axis)
        return loss.sum() / max(loss.numel(), 1) if how == "mean" else _reduced(loss, how)
    counts = target != ignore_index
    label = torch.where(counts, target, 0).unsqueeze(axis)
    own = weights.gather(axis, label).squeeze(axis) * counts
    hit = -logarithms.gather(axis, label).squeeze(axis) * own
    spread = -(logarithms * weights).sum(axis) * counts
    loss = (1 - label_smoothing) * hit + label_smoothing / classes * spread
    return loss.sum() / own.sum() if how == "mean" else _reduced(loss, how)


def gaussian_nll_loss(
    x: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Without the look at the elements, whether a variance is negative."""
    var = var if isinstance(var, Tensor) else x.new_full((), var)
    if var.dim() and var.dim() < x.dim():
        var = var.unsqueeze(-1)
    # The bound stops no gradient.
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (var.log() + (x - target).square() / var)
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative logarithm of the chance of all alignments, by `scan` over time.

    log_probs: [time, batch, classes], or without batch; targets: [batch, labels], or those of all
        rows in one. Graves et al. 2006, equations 6 to 8.
    """
    if log_probs.dim() == 2:
        log_probs = log_probs.unsqueeze(1)
        frames, labels = (torch.as_tensor(n).reshape(1) for n in (input_lengths, target_lengths))
        row = targets.reshape(1, -1)
        loss = ctc_loss(log_probs, row, frames, labels, blank, reduction, zero_infinity)
        return loss if loss.dim() == 0 else loss.squeeze(0)
    frames, labels = torch.as_tensor(input_lengths), torch.as_tensor(target_lengths)
    labels = labels.to(torch.int64)
    targets = targets.to(torch.int64)
    if targets.dim() == 1:
        # Each row begins where those before it end; what lies behind its own labels does not count.
        places = torch.arange(targets.shape[0]) + (labels.cumsum(0) - labels).unsqueeze(1)
        targets = targets[places.clamp(max=targets.shape[0] - 1)]
    longest = targets.shape[1]
    # A blank before each label and behind the last one.
    states = torch.stack([torch.full_like(targets, blank), targets], 2).flatten(1)
    states = F.pad(states, (0, 1), value=blank)
    chances = log_probs.gather(2, states.clamp(0).expand(log_probs.shape[0], -1, -1))
    # A label may follow another one at once, if it is not the same.
    jumps = F.pad(targets[:, 1:] != targets[:, :-1], (1, 0), value=True)
    jumps = F.pad(torch.stack([torch.zeros_like(jumps), jumps], 2).flatten(1), (0, 1), value=False)
    never = torch.full_like(chances[0], _NEVER)
    first = torch.where(torch.arange(2 * longest + 1) < 2, chances[0].clamp(min=_NEVER), never)

    def step(alpha: Tensor, element: Any) -> Any:
        chance, time = element
        before = F.pad(alpha, (1, 0), value=_NEVER)[:, :-1]
        over = torch.where(jumps, F.pad(alpha, (2, 0), value=_NEVER)[:, :-2], never)
        total = torch.stack([alpha, before, over]).logsumexp(0) + chance
        alpha = torch.where((time < frames).unsqueeze(1), total.clamp(min=_NEVER), alpha)
        return alpha, alpha.clone()

    times = torch.arange(1, log_probs.shape[0])
    last = scan(step, first, (chances[1:], times))[0]
    ends = torch.stack([2 * labels, (2 * labels - 1).clamp(0)], 1)
    final = last.gather(1, ends)
    final = torch.where(torch.stack([labels >= 0, labels > 0], 1), final, _NEVER)
    loss = -final.logsumexp(1)
    never_ends = loss > -_NEVER / 2
    loss = torch.where(never_ends, 0.0 if zero_infinity else math.inf, loss)
    if reduction in ("mean", 1):
        # Over the labels of each row, then over rows.
        return (loss / labels.clamp(1)).mean()
    return _reduced(loss, reduction)
