"""Networks made of attention, with seeded weights: see `tools.torch_networks`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Heads over [N, T, width]; keys and values come from `memory` [N, S, width] where given.

    bias: added to the scores, `[heads, T, S]` or what broadcasts to it.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.both = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        each = width // self.heads
        query = self.query(x).reshape(batch, length, self.heads, each).transpose(1, 2)
        pairs = self.both(memory).reshape(batch, -1, 2, self.heads, each).permute(2, 0, 3, 1, 4)
        key, value = pairs[0], pairs[1]
        scores = query @ key.transpose(-1, -2) / each**0.5
        scores = scores if bias is None else scores + bias
        seen = torch.softmax(scores, -1) @ value
        return self.out(seen.transpose(1, 2).reshape(batch, length, width))


def within(width: int) -> nn.Sequential:
    """What a transformer does with each place."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Layer(nn.Module):
    """Attention to itself, to `memory` if there is one, and a network for each place."""

    def __init__(self, width: int, heads: int, crosses: bool = False) -> None:
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.across = Attention(width, heads) if crosses else None
        self.between = nn.LayerNorm(width) if crosses else None
        self.behind, self.within = nn.LayerNorm(width), within(width)

    def forward(
        self, x: Tensor, bias: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:
        before = self.before(x)
        x = x + self.attention(before, before, bias)
        if self.across is not None and self.between is not None and memory is not None:
            x = x + self.across(self.between(x), memory)
        return x + self.within(self.behind(x))


def later(length: int) -> Tensor:
    """Minus infinity where a place would see one that comes later: [length, length]."""
    return torch.full((length, length), float("-inf")).triu(1)


class Encoder(nn.Module):
    """A transformer encoder. x [N, T, width] -> y [N, T, width]."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.heads, self.layers = heads, nn.ModuleList()
        for _ in range(layers):
            within = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
            parts = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.layers.append(nn.ModuleList([*parts, nn.LayerNorm(width), within]))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        for before, project, out, behind, within in self.layers:
            parts = project(before(x)).reshape(batch, length, 3, self.heads, width // self.heads)
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
            seen = (torch.softmax(scores, -1) @ value).transpose(1, 2)
            x = x + out(seen.reshape(batch, length, width))
            x = x + within(behind(x))
        return x


class Bert(nn.Module):
    """Tokens [N, T] -> states [N, T, 384]: four layers of six heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.encoder = nn.Embedding(1000, 384), Encoder(384, 4, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.encoder(self.embedding(tokens))


class ViT(nn.Module):
    """x [N, 3, 224, 224] -> y [N, 1000]: patches of 16 x 16, six layers of three heads."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.encoder = nn.Conv2d(3, 192, 16, 16), Encoder(192, 6, 3)
        self.head = nn.Linear(192, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class GPT2(nn.Module):
    """Tokens [N, T] -> logits [N, T, 1000]: six causal layers of 384, six heads."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(1000, 384), nn.Embedding(256, 384)
        self.layers = nn.ModuleList([Layer(384, 6) for _ in range(6)])
        self.norm = nn.LayerNorm(384)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x, bias = self.tokens(tokens) + self.places.weight[:length], later(length)
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x) @ self.tokens.weight.T / 384**0.5


class T5(nn.Module):
    """Tokens [N, T] -> logits [N, T, 1000]: encoder and causal decoder, three layers of 256 each.

    The distance of two places, in 32 buckets, adds to the scores of a head.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, 256)
        self.near, self.back = nn.Embedding(32, 4), nn.Embedding(32, 4)
        self.encoder = nn.ModuleList([Layer(256, 4) for _ in range(3)])
        self.decoder = nn.ModuleList([Layer(256, 4, crosses=True) for _ in range(3)])

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        buckets = (places[None] - places[:, None]).clamp(-16, 15) + 16
        x = memory = self.tokens(tokens)
        for layer in self.encoder:
            memory = layer(memory, self.near(buckets).permute(2, 0, 1))
        bias = self.back(buckets).permute(2, 0, 1) + later(tokens.shape[1])
        for layer in self.decoder:
            x = layer(x, bias, memory)
        return x @ self.tokens.weight.T


class Wav2Vec2(nn.Module):
    """Samples [N, T] -> states [N, T // 320, 256]: seven convolutions, then four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(1, 256, 10, 5), nn.GroupNorm(256, 256), nn.GELU())
        shapes = [(3, 2)] * 4 + [(2, 2)] * 2
        self.others = nn.Sequential(
            *(nn.Sequential(nn.Conv1d(256, 256, *shape), nn.GELU()) for shape in shapes)
        )
        self.places = nn.Conv1d(256, 256, 64, padding=32, groups=16)
        self.norm, self.encoder = nn.LayerNorm(256), Encoder(256, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        features = self.norm(self.others(self.first(x[:, None])).transpose(1, 2))
        places = functional.gelu(self.places(features.transpose(1, 2))[..., :-1])
        return self.encoder(features + places.transpose(1, 2))


class WhisperEncoder(nn.Module):
    """Log mel spectrum [N, 80, T] -> states [N, T // 2, 256]: two convolutions, four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, 256, 3, 1, 1), nn.Conv1d(256, 256, 3, 2, 1)
        self.places, self.encoder = nn.Embedding(1500, 256), Encoder(256, 4, 4)
        self.norm = nn.LayerNorm(256)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(x)))).transpose(1, 2)
        return self.norm(self.encoder(x + self.places.weight[: x.shape[1]]))
