"""Programs in PyTorch that keep lists of tensors: what steps append, push, pop, insert and choose.

Each is a function in TorchScript, so that its loops and branches stay what they are in the file.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 16


@torch.jit.script
def parsed(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Join the two topmost elements of a stack where data say so, and all in the end."""
    stack: list[Tensor] = []
    joined = 0
    for t in range(x.shape[0]):
        stack.append(x[t])
        while len(stack) > 1 and bool(stack[-1].sum() > 0):
            right = stack.pop()
            left = stack.pop()
            stack.append(torch.tanh(weight @ torch.cat([left, right])))
            joined += 1
    return torch.stack(stack), torch.zeros(1, dtype=torch.long) + joined


class StackParser(nn.Module):
    """A shift-reduce parser. x [T, 16] -> what is on the stack, [M, 16], joined [1]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 2 * WIDTH) / WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return parsed(x, self.weight)


@torch.jit.script
def pooled(x: Tensor, labels: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Segments of equal labels, each of its own length, and the largest elements of each."""
    segments: list[Tensor] = []
    start = 0
    for t in range(1, labels.shape[0]):
        if bool(labels[t] != labels[t - 1]):
            segments.append(x[start:t] @ weight)
            start = t
    segments.append(x[start:] @ weight)
    largest: list[Tensor] = []
    for i in range(len(segments)):
        largest.append(segments[len(segments) - 1 - i].max(0)[0])
    return torch.stack(largest), torch.cat(segments)


class Segments(nn.Module):
    """Pooling by segments. x [T, 8], labels [T] -> largest [M, 16], y [T, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, WIDTH))

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return pooled(x, labels, self.weight)


@torch.jit.script
def ordered(x: Tensor) -> Tensor:
    """Insertion of each row where the first elements stay in order."""
    rows: list[Tensor] = []
    for t in range(x.shape[0]):
        place = 0
        for i in range(len(rows)):
            if bool(rows[i][0] < x[t, 0]):
                place = i + 1
        rows.insert(place, x[t])
    return torch.stack(rows)


class Insertion(nn.Module):
    """A list kept in order. x [T, 3] -> y [T, 3]."""

    def forward(self, x: Tensor) -> Tensor:
        return ordered(x)


@torch.jit.script
def searched(x: Tensor, weight: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor]:
    """Beam search whose hypotheses are lists of their own, some of which end early."""
    tokens: list[Tensor] = [torch.zeros(1, dtype=torch.long)] * 3
    scores = torch.tensor([0.0, -1000.0, -1000.0])
    for t in range(x.shape[0]):
        rows: list[Tensor] = []
        for k in range(3):
            seen = torch.embedding(embedding, tokens[k].reshape(-1)).sum(0)
            rows.append(torch.log_softmax(weight @ (seen + x[t]), 0) + scores[k])
        scores, best = torch.topk(torch.stack(rows).flatten(), 3)
        after: list[Tensor] = []
        for k in range(3):
            token = best[k] % weight.shape[0]
            before = tokens[int(best[k] // weight.shape[0])]
            if bool(token == 0):
                after.append(before)
            else:
                after.append(torch.cat([before, token.reshape(1)]))
        tokens = after
    return tokens[0], scores


class Hypotheses(nn.Module):
    """Beams of different lengths. x [T, 16] -> tokens [L], scores [3]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, WIDTH) / WIDTH)
        self.embedding = nn.Parameter(torch.randn(10, WIDTH))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return searched(x, self.weight, self.embedding)


@torch.jit.script
def grown(x: Tensor, left: Tensor, right: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes of a graph, each made of two that were there before it."""
    nodes: list[Tensor] = []
    for t in range(x.shape[0]):
        nodes.append(x[t])
    for t in range(left.shape[0]):
        pair = torch.cat([nodes[int(left[t])], nodes[int(right[t])]])
        nodes.append(torch.tanh(weight @ pair))
    return nodes[-1], torch.stack(nodes)


class Tree(nn.Module):
    """A recursive network. x [T, 16], left, right [P] below T -> root [16], nodes [T + P, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 2 * WIDTH) / WIDTH)

    def forward(self, x: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return grown(x, left, right, self.weight)
