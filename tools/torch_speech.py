"""Networks for sound and for series, with seeded weights: see `tools.torch_networks`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.torch_transformers import Attention, later, within


class ComplexConv(nn.Module):
    """A convolution of complex numbers, real parts and then imaginary ones along the channels.

    deep: transposed, twice as many frequencies instead of half.
    """

    def __init__(self, inputs: int, outputs: int, deep: bool = False) -> None:
        super().__init__()
        shape = (inputs, outputs, (5, 2), (2, 1))
        if deep:
            self.real = nn.ConvTranspose2d(*shape, (2, 0), (1, 0))
            self.imaginary = nn.ConvTranspose2d(*shape, (2, 0), (1, 0))
        else:
            self.real = nn.Conv2d(*shape, (2, 1))
            self.imaginary = nn.Conv2d(*shape, (2, 1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        real = self.real(a) - self.imaginary(b)
        imaginary = self.real(b) + self.imaginary(a)
        return torch.cat([real, imaginary], 1)[..., :-1]


class DCCRN(nn.Module):
    """Spectrum [N, 2, 256, T] -> mask of the same shape (Hu et al. 2020), a fifth as wide."""

    def __init__(self) -> None:
        super().__init__()
        wide = [1, 16, 32, 64, 64]
        pairs = list(pairwise(wide))
        self.down = nn.ModuleList([ComplexConv(a, b) for a, b in pairs])
        self.norms = nn.ModuleList([nn.BatchNorm2d(2 * b) for _, b in pairs])
        self.recurrent = nn.LSTM(128 * 16, 128, 2)
        self.spread = nn.Linear(128, 128 * 16)
        self.up = nn.ModuleList([ComplexConv(2 * b, a, deep=True) for a, b in pairs[::-1]])

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for convolution, norm in zip(self.down, self.norms, strict=True):
            x = functional.leaky_relu(norm(convolution(x)), 0.2)
            kept.append(x)
        batch, channels, bins, frames = x.shape
        rows = x.permute(3, 0, 1, 2).reshape(frames, batch, channels * bins)
        rows = self.spread(self.recurrent(rows)[0])
        x = rows.reshape(frames, batch, channels, bins).permute(1, 2, 3, 0)
        for convolution in self.up:
            (a, b), (c, d) = x.chunk(2, 1), kept.pop().chunk(2, 1)
            x = convolution(torch.cat([a, c, b, d], 1))
        return torch.tanh(x)


class Dilated(nn.Module):
    """1x1, depthwise of three places far apart, 1x1, added to the input (Luo, Mesgarani 2019)."""

    def __init__(self, width: int, hidden: int, dilation: int, causal: bool) -> None:
        super().__init__()
        self.behind = 2 * dilation if causal else dilation
        self.ahead = 0 if causal else dilation
        self.wide, self.narrow = nn.Conv1d(width, hidden, 1), nn.Conv1d(hidden, width, 1)
        self.deep = nn.Conv1d(hidden, hidden, 3, dilation=dilation, groups=hidden)
        self.norms = nn.ModuleList([nn.GroupNorm(1, hidden) for _ in range(2)])
        self.slopes = nn.ModuleList([nn.PReLU() for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norms[0](self.slopes[0](self.wide(x)))
        hidden = self.deep(functional.pad(hidden, (self.behind, self.ahead)))
        return x + self.narrow(self.norms[1](self.slopes[1](hidden)))


class ConvTasNet(nn.Module):
    """Samples [N, T] -> two voices [N, 2, T], T a multiple of 8 (Luo, Mesgarani 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.narrow = nn.Conv1d(1, 256, 16, 8, 4), nn.Conv1d(256, 128, 1)
        self.blocks = nn.Sequential(*(Dilated(128, 256, 2 ** (i % 8), False) for i in range(16)))
        self.masks, self.decoder = nn.Conv1d(128, 512, 1), nn.ConvTranspose1d(256, 1, 16, 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        sound = torch.relu(self.encoder(x[:, None]))
        masks = torch.sigmoid(self.masks(self.blocks(self.narrow(sound))))
        voices = [self.decoder(sound * mask) for mask in masks.chunk(2, 1)]
        return torch.cat(voices, 1)


class TCN(nn.Module):
    """Series [N, 8, T] -> forecast of each step [N, 8, T]: eight causal blocks of 64."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(8, 64, 1), nn.Conv1d(64, 8, 1)
        self.blocks = nn.Sequential(*(Dilated(64, 64, 2**i, True) for i in range(8)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.first(x)))


class Demucs(nn.Module):
    """Samples [N, 1, T] -> samples (Defossez et al. 2020): four levels from 32 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        wide = [1, 32, 64, 128, 256]
        for a, b in pairwise(wide):
            parts = nn.Conv1d(a, b, 8, 4), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)
            self.down.append(nn.Sequential(*parts))
            back = [nn.Conv1d(b, 2 * b, 1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4)]
            self.up.insert(0, nn.Sequential(*back, *([] if a == 1 else [nn.ReLU()])))
        self.recurrent = nn.LSTM(256, 256, 2)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
        x = self.recurrent(x.permute(2, 0, 1))[0].permute(1, 2, 0)
        for level in self.up:
            x = level(x + kept.pop()[..., : x.shape[-1]])
        return x


class Conformer(nn.Module):
    """Features [N, T, 144] -> states (Gulati et al. 2020): four blocks of four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(4):
            norms = nn.ModuleList([nn.LayerNorm(144) for _ in range(5)])
            convolution = nn.Sequential(
                nn.Conv1d(144, 288, 1),
                nn.GLU(1),
                nn.Conv1d(144, 144, 31, padding=15, groups=144),
                nn.BatchNorm1d(144),
                nn.SiLU(),
                nn.Conv1d(144, 144, 1),
            )
            parts = [norms, within(144), Attention(144, 4), convolution, within(144)]
            self.blocks.append(nn.ModuleList(parts))

    def forward(self, x: Tensor) -> Tensor:
        for norms, first, attention, convolution, second in self.blocks:
            x = x + 0.5 * first(norms[0](x))
            seen = norms[1](x)
            x = x + attention(seen, seen)
            x = x + convolution(norms[2](x).transpose(1, 2)).transpose(1, 2)
            x = norms[4](x + 0.5 * second(norms[3](x)))
        return x


class DeepAR(nn.Module):
    """Series and covariates [N, T, 10] -> mean and scale of each step [N, T, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.LSTM(10, 64, 3, batch_first=True), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        mean, scale = self.head(self.recurrent(x)[0]).chunk(2, -1)
        return torch.cat([mean, functional.softplus(scale)], -1)


class Gated(nn.Module):
    """A gated residual network (Lim et al. 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.gate, self.norm = nn.Linear(width, 2 * width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.second(functional.elu(self.first(x)))
        return self.norm(x + functional.glu(self.gate(hidden), -1))


class TFT(nn.Module):
    """Series [N, T, 8] -> three quantiles of the last 24 steps (Lim et al. 2019), width 64."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList([nn.Linear(1, 64) for _ in range(8)])
        self.gates = nn.ModuleList([Gated(64) for _ in range(8)])
        self.choice, self.recurrent = nn.Linear(512, 8), nn.LSTM(64, 64, batch_first=True)
        self.attention, self.last = Attention(64, 4), Gated(64)
        self.head = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        parts = [embed(x[..., i : i + 1]) for i, embed in enumerate(self.each)]
        weights = torch.softmax(self.choice(torch.cat(parts, -1)), -1)
        gated = [gate(part) for gate, part in zip(self.gates, parts, strict=True)]
        chosen = (torch.stack(gated, -1) * weights[..., None, :]).sum(-1)
        hidden = self.recurrent(chosen)[0]
        hidden = self.last(hidden + self.attention(hidden, hidden, later(x.shape[1])))
        return self.head(hidden[:, -24:])
