"""Small streaming and recurrent networks as their authors write them in PyTorch.

Every module takes and returns batch-first tensors. State is explicit: an output `next_<input>` is
what the next call takes as `<input>`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional

WIDTH = 16


class Recurrent(nn.Module):
    """A stack of `nn.GRU`, `nn.LSTM` or `nn.RNN` with its state as input and output.

    x [N, T, features], h [layers * directions, N, hidden] (and c for LSTM) ->
    y [N, T, directions * hidden], next_h (, next_c).
    """

    def __init__(self, kind: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.cell = kind(12, WIDTH, batch_first=True, **options)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        y, next_h = self.cell(x, h)
        return y, next_h


class RecurrentLSTM(Recurrent):
    """`Recurrent` for LSTM, which has two states."""

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (next_h, next_c) = self.cell(x, (h, c))
        return y, next_h, next_c


class ProjectedLSTM(nn.Module):
    """LSTM with a projected state (Sak et al. 2014), for which ONNX has no op.

    x [N, T, 12], h [N, 8], c [N, 16] -> y [N, T, 8], next_h, next_c.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(12, WIDTH, proj_size=8, batch_first=True)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cell = self.cell
        gates = functional.linear(x, cell.weight_ih_l0, cell.bias_ih_l0 + cell.bias_hh_l0)
        recurrent, project = cell.weight_hh_l0.T, cell.weight_hr_l0.T

        def step(
            state: tuple[Tensor, Tensor], given: Tensor
        ) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h, c = state
            i, f, g, o = (given + h @ recurrent).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = (torch.sigmoid(o) * torch.tanh(c)) @ project
            return (h, c), h.clone()

        (h, c), y = scan(step, (h, c), gates.transpose(0, 1))
        return y.transpose(0, 1), h, c


class TimeFirst(nn.Module):
    """x [T, N, features] -> y [T, N, hidden] from a state of zeros."""

    def __init__(self, kind: type[nn.RNNBase], **options: object) -> None:
        super().__init__()
        self.cell = kind(12, WIDTH, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x)[0]


class CRNN(nn.Module):
    """Convolutions over a spectrogram, a bidirectional GRU, frame-wise classes.

    x [N, 1, T, 16] -> y [N, T, 5] log-probabilities.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d((1, 2)),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d((1, 2)),
        )
        self.rnn = nn.GRU(32, 12, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(24, 5)
        for module in self.features.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.1)
                nn.init.uniform_(module.running_var, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        z = self.features(x)
        z = z.permute(0, 2, 1, 3).flatten(2)
        return functional.log_softmax(self.classes(self.rnn(z)[0]), dim=-1)


class CausalBlock(nn.Module):
    """Residual block of a TCN (Bai et al. 2018): dilated causal convolution, norm, PReLU.

    x [N, channels, T], past [N, channels, (taps - 1) * dilation] -> y [N, channels, T], next past.
    """

    def __init__(self, channels: int, dilation: int, taps: int = 3) -> None:
        super().__init__()
        self.past = (taps - 1) * dilation
        self.conv = nn.Conv1d(channels, channels, taps, dilation=dilation)
        self.norm = nn.BatchNorm1d(channels)
        self.activation = nn.PReLU()
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([past, x], dim=2)
        y = self.mix(self.activation(self.norm(self.conv(joined))))
        return x + y, joined[:, :, -self.past :]


class TCN(nn.Module):
    """Causal dilated residual blocks over a whole sequence. x [N, T, 8] -> y [N, T, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv1d(8, WIDTH, 1)
        self.blocks = nn.ModuleList(CausalBlock(WIDTH, dilation) for dilation in (1, 2, 4))
        self.decode = nn.Conv1d(WIDTH, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x.transpose(1, 2))
        for block in self.blocks:
            z = z + block.mix(
                block.activation(block.norm(block.conv(functional.pad(z, (block.past, 0)))))
            )
        return torch.sigmoid(self.decode(z)).transpose(1, 2)


class StreamingTCN(TCN):
    """The same network with what the convolutions remember as state.

    x [N, T, 8], past [N, 16, 2 + 4 + 8] -> y [N, T, 3], next_past.
    """

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encode(x.transpose(1, 2))
        start, kept = 0, []
        for block in self.blocks:
            z, remembered = block(z, past[:, :, start : start + block.past])
            kept.append(remembered)
            start += block.past
        return torch.sigmoid(self.decode(z)).transpose(1, 2), torch.cat(kept, dim=2)


class RelativeAttention(nn.Module):
    """Self-attention over a window of the past, relative positions as in Transformer-XL.

    x [N, T, width], cache [N, context, width] of inputs that came before, filled [N] of them are
    valid -> y [N, T, width]. Each frame sees itself and at most `context` frames before it.
    """

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads, self.context, self.size = heads, context, width // heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.position = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(0.1 * torch.randn(heads, self.size))
        self.position_bias = nn.Parameter(0.1 * torch.randn(heads, self.size))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), -1, self.heads, self.size)

    def forward(self, x: Tensor, cache: Tensor, filled: Tensor) -> Tensor:
        keys = torch.cat([cache, x], dim=1)
        steps, length = x.size(1), keys.size(1)
        query = self._heads(self.query(x))
        key = self._heads(self.key(keys)).permute(0, 2, 3, 1)
        value = self._heads(self.value(keys)).transpose(1, 2)
        where = torch.arange(length - 1, -steps, -1, device=x.device)
        position = self._heads(self.position(sinusoids(where, x.size(2)))[None]).permute(0, 2, 3, 1)
        content = (query + self.content_bias).transpose(1, 2) @ key
        relative = shift((query + self.position_bias).transpose(1, 2) @ position)[..., :length]
        scores = (content + relative) / math.sqrt(self.size)
        column = torch.arange(length, device=x.device)
        row = torch.arange(steps, device=x.device)[:, None] + self.context
        seen = (column <= row) & (column >= row - self.context)
        valid = column >= (self.context - filled)[:, None]
        mask = (seen[None] & valid[:, None])[:, None]
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)
        y = (weights @ value).transpose(1, 2).flatten(2)
        return self.out(y)


def sinusoids(position: Tensor, width: int) -> Tensor:
    """position [P] -> [P, width], sines and cosines of falling frequency."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = position[:, None].to(torch.float32) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def shift(x: Tensor) -> Tensor:
    """Scores by distance become scores by key: the shift of Transformer-XL. x [N, H, T, P]."""
    batch, heads, rows, columns = x.size()
    padded = functional.pad(x, (1, 0)).view(batch, heads, columns + 1, rows)
    return padded[:, :, 1:].reshape(batch, heads, rows, columns)


class Conformer(nn.Module):
    """A streaming Conformer block (Gulati et al. 2020) with caches, as NeMo exports them.

    x [N, T, 16], attention [N, 6, 16] and convolution [N, 16, 4] caches, filled [N] ->
    y [N, T, 16], next_attention, next_convolution, next_filled.
    """

    CONTEXT, TAPS = 6, 5

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = feed_forward(WIDTH), feed_forward(WIDTH)
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = RelativeAttention(WIDTH, 4, self.CONTEXT)
        self.convolution_norm = nn.LayerNorm(WIDTH)
        self.expand = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, self.TAPS, groups=WIDTH)
        self.channel_norm = nn.BatchNorm1d(WIDTH)
        self.project = nn.Conv1d(WIDTH, WIDTH, 1)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(
        self, x: Tensor, attention: Tensor, convolution: Tensor, filled: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = x + 0.5 * self.first(x)
        z = self.attention_norm(x)
        next_attention = torch.cat([attention, z], dim=1)[:, -self.CONTEXT :]
        x = x + self.attention(z, attention, filled)
        z = functional.glu(self.expand(self.convolution_norm(x).transpose(1, 2)), dim=1)
        joined = torch.cat([convolution, z], dim=2)
        z = functional.silu(self.channel_norm(self.depthwise(joined)))
        x = x + self.project(z).transpose(1, 2)
        y = self.norm(x + 0.5 * self.second(x))
        next_filled = torch.clamp(filled + x.size(1), max=self.CONTEXT)
        return y, next_attention, joined[:, :, -(self.TAPS - 1) :], next_filled


def feed_forward(width: int) -> nn.Module:
    """Norm, expansion by two, Swish, projection."""
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
    )


def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """h = exp(delta A) h + delta B u, y = C h (Gu & Dao 2023, equations 2a and 2b).

    u, delta [N, T, D], A [D, S], B, C [N, T, S], state [N, D, S] -> last state, y [N, T, D].
    """

    def step(h: Tensor, given: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        decay, new, c = given
        h = decay * h + new
        return h, (h * c[:, None]).sum(-1)

    decay = torch.exp(delta[..., None] * A)
    new = (delta * u)[..., None] * B[:, :, None]
    last, y = scan(step, state, tuple(value.transpose(0, 1) for value in (decay, new, C)))
    return last, y.transpose(0, 1)


@torch.jit.script
def selective_scan_scripted(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """`selective_scan` as a Python loop, which the older exporter turns into a Loop."""
    outputs: list[Tensor] = []
    for t in range(u.size(1)):
        decay = torch.exp(delta[:, t].unsqueeze(-1) * A)
        state = decay * state + (delta[:, t] * u[:, t]).unsqueeze(-1) * B[:, t].unsqueeze(1)
        outputs.append((state * C[:, t].unsqueeze(1)).sum(-1))
    return state, torch.stack(outputs, dim=1)


class Mamba(nn.Module):
    """A Mamba block (Gu & Dao 2023): gated, short convolution, selective scan.

    x [N, T, 12], past [N, 16, 3] of the convolution, state [N, 16, 4] -> y [N, T, 12], next_past,
    next_state.
    """

    INNER, STATES, TAPS, RANK = 16, 4, 4, 2

    def __init__(self, is_scripted: bool = False) -> None:
        super().__init__()
        self.is_scripted = is_scripted
        self.norm = nn.LayerNorm(12)
        self.enter = nn.Linear(12, 2 * self.INNER, bias=False)
        self.convolution = nn.Conv1d(self.INNER, self.INNER, self.TAPS, groups=self.INNER)
        self.select = nn.Linear(self.INNER, self.RANK + 2 * self.STATES, bias=False)
        self.step_size = nn.Linear(self.RANK, self.INNER)
        decay = torch.arange(1, self.STATES + 1, dtype=torch.float32)
        self.log_decay = nn.Parameter(decay.log().repeat(self.INNER, 1))
        self.skip = nn.Parameter(torch.ones(self.INNER))
        self.leave = nn.Linear(self.INNER, 12, bias=False)

    def forward(self, x: Tensor, past: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, gate = self.enter(self.norm(x)).chunk(2, dim=-1)
        joined = torch.cat([past, u.transpose(1, 2)], dim=2)
        u = functional.silu(self.convolution(joined)).transpose(1, 2)
        delta, B, C = self.select(u).split([self.RANK, self.STATES, self.STATES], dim=-1)
        delta = functional.softplus(self.step_size(delta))
        run = selective_scan_scripted if self.is_scripted else selective_scan
        next_state, y = run(u, delta, -torch.exp(self.log_decay), B, C, state)
        y = (y + u * self.skip) * functional.silu(gate)
        return x + self.leave(y), joined[:, :, -(self.TAPS - 1) :], next_state
