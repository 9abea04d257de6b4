"""Further small networks in PyTorch: cells written out, transducers, masks from lengths, caches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional

WIDTH = 16


@torch.jit.script
def slstm_scripted(
    gates: Tensor, recurrent: Tensor, h: Tensor, c: Tensor, n: Tensor, m: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`SLSTM` as a Python loop, which the older exporter turns into a Loop."""
    outputs: list[Tensor] = []
    for t in range(gates.size(1)):
        raw = gates[:, t] + h @ recurrent
        z, i, f, o = raw.chunk(4, dim=-1)
        decay = functional.logsigmoid(f) + m
        next_m = torch.maximum(decay, i)
        grow, keep = torch.exp(i - next_m), torch.exp(decay - next_m)
        c = keep * c + grow * torch.tanh(z)
        n = keep * n + grow
        h = torch.sigmoid(o) * c / n
        m = next_m
        outputs.append(h)
    return torch.stack(outputs, dim=1), h, c, n, m


class SLSTM(nn.Module):
    """The sLSTM cell of xLSTM with exponential gates (Beck et al. 2024, equations 8 to 17).

    x [N, T, 12], h, c, n, m [N, 16] -> y [N, T, 16], next_h, next_c, next_n, next_m.
    """

    def __init__(self, is_scripted: bool = False) -> None:
        super().__init__()
        self.is_scripted = is_scripted
        self.gates = nn.Linear(12, 4 * WIDTH)
        self.recurrent = nn.Parameter(0.25 * torch.randn(WIDTH, 4 * WIDTH))

    def step(self, state: tuple[Tensor, ...], given: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        h, c, n, m = state
        z, i, f, o = (given + h @ self.recurrent).chunk(4, dim=-1)
        decay = functional.logsigmoid(f) + m
        next_m = torch.maximum(decay, i)
        grow, keep = torch.exp(i - next_m), torch.exp(decay - next_m)
        c = keep * c + grow * torch.tanh(z)
        n = keep * n + grow
        h = torch.sigmoid(o) * c / n
        return (h, c, n, next_m), h.clone()

    def forward(self, x: Tensor, h: Tensor, c: Tensor, n: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        gates = self.gates(x)
        if self.is_scripted:
            return slstm_scripted(gates, self.recurrent, h, c, n, m)
        (h, c, n, m), y = scan(self.step, (h, c, n, m), gates.transpose(0, 1))
        return y.transpose(0, 1), h, c, n, m


class MinGRU(nn.Module):
    """minGRU step by step (Feng et al. 2024): gate and candidate depend on the input alone.

    x [N, T, 12], h [N, 16] -> y [N, T, 16], next_h.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.candidate = nn.Linear(12, WIDTH), nn.Linear(12, WIDTH)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        z, new = torch.sigmoid(self.gate(x)), self.candidate(x)

        def step(h: Tensor, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            z, new = given
            h = (1 - z) * h + z * new
            return h, h.clone()

        h, y = scan(step, h, (z.transpose(0, 1), new.transpose(0, 1)))
        return y.transpose(0, 1), h


class ParallelMinGRU(MinGRU):
    """minGRU without a loop: a running sum instead of the recurrence (decays bounded from below).

    x [N, T, 12], h [N, 16] -> y [N, T, 16], next_h.
    """

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        z, new = torch.sigmoid(self.gate(x)), self.candidate(x)
        decay = torch.cumsum(torch.log1p(-z), dim=1)
        y = torch.exp(decay) * (h[:, None] + torch.cumsum(z * new * torch.exp(-decay), dim=1))
        return y, y[:, -1]


class Transducer(nn.Module):
    """Prediction and joint network of an RNN-T (Graves 2012), one decoding step.

    token [N, 1] int64, h and c [1, N, 16], encoded [N, T, 12] -> logits [N, T, 1, 20], next_h,
    next_c.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.predict = nn.LSTM(12, WIDTH, batch_first=True)
        self.from_encoder, self.from_prediction = nn.Linear(12, 16), nn.Linear(WIDTH, 16)
        self.classes = nn.Linear(16, 20)

    def forward(
        self, token: Tensor, h: Tensor, c: Tensor, encoded: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        prediction, (next_h, next_c) = self.predict(self.embed(token), (h, c))
        joint = self.from_encoder(encoded)[:, :, None] + self.from_prediction(prediction)[:, None]
        return self.classes(torch.tanh(joint)), next_h, next_c


class MaskedEncoder(nn.Module):
    """Encoder for speech recognition over padded sequences: subsampling, masked attention, CTC.

    x [N, T, 16], lengths [N] int64, the valid frames of each row -> y [N, ceil(T / 2), 20]
    log-probabilities that are 0 behind the end of a row, next lengths [N].
    """

    def __init__(self) -> None:
        super().__init__()
        self.subsample = nn.Conv1d(16, WIDTH, 3, stride=2, padding=1)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.expand, self.contract = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.classes = nn.Linear(WIDTH, 20)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = x.masked_fill(~valid(lengths, x.size(1))[:, :, None], 0.0)
        z = functional.relu(self.subsample(x.transpose(1, 2))).transpose(1, 2)
        lengths = (lengths + 1) // 2
        mask = valid(lengths, z.size(1))
        n = self.norms[0](z)
        z = z + self.attention(n, n, n, key_padding_mask=~mask, need_weights=False)[0]
        z = z + self.contract(functional.gelu(self.expand(self.norms[1](z))))
        y = torch.log_softmax(self.classes(z), dim=-1)
        return y * mask[:, :, None], lengths


def valid(lengths: Tensor, steps: int) -> Tensor:
    """lengths [N] -> [N, steps], true where a row has data."""
    return torch.arange(steps, device=lengths.device)[None] < lengths[:, None]


class PackedGRU(nn.Module):
    """A bidirectional GRU over padded rows of given lengths: the node's sequence_lens.

    x [N, T, 12], lengths [N] int64, falling -> y [N, max of lengths, 32], last states [2, N, 16].
    """

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(12, WIDTH, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, last = self.cell(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], last


class CachedDecoder(nn.Module):
    """A Transformer decoder layer with a cache that grows, as language models run.

    token [N, T] int64, keys and values [N, 2, P, 8] of the P tokens before -> logits [N, T, 20],
    next_keys, next_values [N, 2, P + T, 8].
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.classes = nn.Linear(WIDTH, 20)

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(token)
        query, key, value = self.project(self.norms[0](x)).chunk(3, dim=-1)
        start = keys.size(2)
        query = rotate(split_heads(query), start)
        keys = torch.cat([keys, rotate(split_heads(key), start)], dim=2)
        values = torch.cat([values, split_heads(value)], dim=2)
        column = torch.arange(keys.size(2), device=x.device)
        row = torch.arange(token.size(1), device=x.device)[:, None] + start
        z = functional.scaled_dot_product_attention(query, keys, values, attn_mask=column <= row)
        x = x + self.out(z.transpose(1, 2).flatten(2))
        x = x + self.contract(functional.silu(self.expand(self.norms[1](x))))
        return self.classes(x), keys, values


def split_heads(x: Tensor) -> Tensor:
    """[N, T, 16] -> [N, 2, T, 8]."""
    return x.view(x.size(0), -1, 2, WIDTH // 2).transpose(1, 2)


def rotate(x: Tensor, start: int) -> Tensor:
    """Rotary position embedding (Su et al. 2021) of x [N, heads, T, size] from `start` on."""
    half = WIDTH // 4
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    position = torch.arange(x.size(2), device=x.device) + start
    angles = position[:, None].to(torch.float32) * rates
    left, right = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
