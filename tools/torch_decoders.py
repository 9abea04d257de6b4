"""Small decoders as their authors write them in PyTorch: one token per call, and whole searches.

A step takes `token` [N, 1] and, for each layer, the keys and values of the tokens before,
[N, heads, P, size]. It gives logits [N, 1, VOCABULARY] and the keys and values with its own behind.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, SIZE = 40, 16, 4, 4
LONGEST = 64
"""Positions that learned embeddings know."""
Decoded = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def split_heads(x: Tensor, heads: int = HEADS) -> Tensor:
    """[N, T, heads * SIZE] -> [N, heads, T, SIZE]."""
    return x.view(x.size(0), x.size(1), heads, SIZE).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[N, heads, T, SIZE] -> [N, T, heads * SIZE]."""
    return x.transpose(1, 2).reshape(x.size(0), -1, WIDTH)


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(query keys' / sqrt(size) + bias) values, heads joined."""
    scores = query @ keys.transpose(2, 3) / math.sqrt(SIZE)
    if bias is not None:
        scores = scores + bias
    return join_heads(torch.softmax(scores, dim=-1) @ values)


class GPT2(nn.Module):
    """GPT-2 (Radford et al. 2019), two layers: learned positions, norms first, tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(GPT2Layer() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(
        self,
        token: Tensor,
        position: Tensor,
        keys_0: Tensor,
        values_0: Tensor,
        keys_1: Tensor,
        values_1: Tensor,
    ) -> Decoded:
        x = self.embed(token) + self.position(position)
        x, keys_0, values_0 = self.layers[0](x, keys_0, values_0)
        x, keys_1, values_1 = self.layers[1](x, keys_1, values_1)
        logits = self.norm(x) @ self.embed.weight.T
        return logits, keys_0, values_0, keys_1, values_1


class GPT2Layer(nn.Module):
    """One matrix for queries, keys and values; GELU by its tanh form."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.project(self.norms[0](x)).split(WIDTH, dim=2)
        keys = torch.cat([keys, split_heads(key)], dim=2)
        values = torch.cat([values, split_heads(value)], dim=2)
        x = x + self.out(attend(split_heads(query), keys, values))
        z = functional.gelu(self.expand(self.norms[1](x)), approximate="tanh")
        return x + self.contract(z), keys, values


class RMSNorm(nn.Module):
    """x / root of the mean of squares, times a weight (Zhang & Sennrich 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH).uniform_(0.5, 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    """Llama 2 (Touvron et al. 2023), two layers: rotary positions, two key heads for four queries.

    mask [N, P + 1] int64 is 1 for tokens that count, as libraries of Transformers have it; a
    token's position is the number of those before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(2))
        self.norm, self.classes = RMSNorm(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(
        self,
        token: Tensor,
        mask: Tensor,
        keys_0: Tensor,
        values_0: Tensor,
        keys_1: Tensor,
        values_1: Tensor,
    ) -> Decoded:
        x = self.embed(token)
        position = mask.sum(1, keepdim=True) - 1
        rates = 10000.0 ** (-torch.arange(0, SIZE, 2, dtype=torch.float32) / SIZE)
        angles = position[:, :, None].to(torch.float32) * rates
        angles = torch.cat([angles, angles], dim=-1)[:, None]
        turn = angles.cos(), angles.sin()
        bias = (1.0 - mask[:, None, None].to(torch.float32)) * torch.finfo(torch.float32).min
        x, keys_0, values_0 = self.layers[0](x, turn, bias, keys_0, values_0)
        x, keys_1, values_1 = self.layers[1](x, turn, bias, keys_1, values_1)
        return self.classes(self.norm(x)), keys_0, values_0, keys_1, values_1


class LlamaLayer(nn.Module):
    """Grouped-query attention and a gated feed-forward part."""

    GROUPS = 2

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RMSNorm() for _ in range(2))
        self.query, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(WIDTH, self.GROUPS * SIZE, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 40, bias=False) for _ in range(2))
        self.down = nn.Linear(40, WIDTH, bias=False)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], bias: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        z = self.norms[0](x)
        key, value = split_heads(self.key(z), self.GROUPS), split_heads(self.value(z), self.GROUPS)
        keys, values = torch.cat([keys, rotate(key, turn)], 2), torch.cat([values, value], 2)
        query = rotate(split_heads(self.query(z)), turn)
        x = x + self.out(attend(query, repeat_heads(keys), repeat_heads(values), bias))
        z = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(z)) * self.up(z)), keys, values


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding (Su et al. 2021), halves in place of pairs."""
    left, right = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat([-right, left], dim=-1) * turn[1]


def repeat_heads(x: Tensor) -> Tensor:
    """[N, heads, T, SIZE] -> [N, HEADS, T, SIZE], each head as often as it has queries."""
    batch, heads, steps, size = x.shape
    x = x[:, :, None].expand(batch, heads, HEADS // heads, steps, size)
    return x.reshape(batch, HEADS, steps, size)


class T5(nn.Module):
    """The decoder of T5 (Raffel et al. 2020), two layers.

    encoded [N, S, WIDTH] is what the encoder gave; every step makes its keys and values anew.
    """

    BUCKETS, FARTHEST = 8, 16

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.bias = nn.Embedding(self.BUCKETS, HEADS)
        self.layers = nn.ModuleList(T5Layer() for _ in range(2))
        self.norm, self.classes = RMSNorm(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def _position_bias(self, length: int) -> Tensor:
        """Of the last one of `length` tokens to all: [1, HEADS, 1, length]."""
        distance = torch.arange(length - 1, -1, -1)
        near = self.BUCKETS // 2
        far = torch.log(distance.clamp(min=1).to(torch.float32) / near)
        far = (far / math.log(self.FARTHEST / near) * (self.BUCKETS - near)).to(torch.int64)
        bucket = torch.where(distance < near, distance, (near + far).clamp(max=self.BUCKETS - 1))
        return self.bias(bucket).T[None, :, None]

    def forward(
        self,
        token: Tensor,
        encoded: Tensor,
        keys_0: Tensor,
        values_0: Tensor,
        keys_1: Tensor,
        values_1: Tensor,
    ) -> Decoded:
        x = self.embed(token)
        bias = self._position_bias(keys_0.size(2) + 1)
        x, keys_0, values_0 = self.layers[0](x, encoded, bias, keys_0, values_0)
        x, keys_1, values_1 = self.layers[1](x, encoded, bias, keys_1, values_1)
        return self.classes(self.norm(x)), keys_0, values_0, keys_1, values_1


class T5Layer(nn.Module):
    """Attention over the tokens so far and over the encoder's output; ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RMSNorm() for _ in range(3))
        self.project, self.query = linears(3), linears(1)[0]
        self.cross, self.out = linears(2), linears(2)
        self.expand = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.contract = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(
        self, x: Tensor, encoded: Tensor, bias: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        z = self.norms[0](x)
        query, key, value = (split_heads(project(z)) for project in self.project)
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        x = x + self.out[0](attend(query, keys, values, bias))
        query = split_heads(self.query(self.norms[1](x)))
        x = x + self.out[1](attend(query, *(split_heads(each(encoded)) for each in self.cross)))
        return x + self.contract(torch.relu(self.expand(self.norms[2](x)))), keys, values


def linears(count: int) -> nn.ModuleList:
    """So many square matrices without biases."""
    return nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count))


class WhisperEncoder(nn.Module):
    """Whisper's encoder (Radford et al. 2022), one layer, and what the decoder makes of it.

    mel [N, 8, M] -> the decoder's cross_keys, cross_values [N, HEADS, ceil(M / 2), SIZE].
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, WIDTH, 3, padding=1)
        self.second = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.project, self.out, self.cross = linears(3), nn.Linear(WIDTH, WIDTH), linears(2)
        self.expand, self.contract = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, mel: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.gelu(self.second(functional.gelu(self.first(mel)))).transpose(1, 2)
        rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
        angles = torch.arange(x.size(1))[:, None].to(torch.float32) * rates
        x = x + torch.cat([angles.sin(), angles.cos()], dim=1)
        z = self.norms[0](x)
        x = x + self.out(attend(*(split_heads(project(z)) for project in self.project)))
        x = x + self.contract(functional.gelu(self.expand(self.norms[1](x))))
        x = self.norms[2](x)
        return split_heads(self.cross[0](x)), split_heads(self.cross[1](x))


class WhisperDecoder(nn.Module):
    """Whisper's decoder, one layer; position is a number, the same for all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.project, self.query = linears(3), nn.Linear(WIDTH, WIDTH)
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.expand, self.contract = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(
        self,
        token: Tensor,
        position: Tensor,
        cross_keys: Tensor,
        cross_values: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(token) + self.position(position)
        z = self.norms[0](x)
        query, key, value = (split_heads(project(z)) for project in self.project)
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        x = x + self.out[0](attend(query, keys, values))
        query = split_heads(self.query(self.norms[1](x)))
        x = x + self.out[1](attend(query, cross_keys, cross_values))
        x = x + self.contract(functional.gelu(self.expand(self.norms[2](x))))
        return self.norms[3](x) @ self.embed.weight.T, keys, values


class TransducerEncoder(nn.Module):
    """x [1, T, 12] -> encoded [1, T, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(12, WIDTH, batch_first=True)
        for weight in self.rnn.parameters():
            weight.data *= 3

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


class TransducerPredictor(nn.Module):
    """token [1, 1] int64, h and c [1, 1, WIDTH] -> prediction [1, 1, WIDTH], next_h, next_c."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(20, 12), nn.LSTM(12, WIDTH, batch_first=True)
        nn.init.normal_(self.embed.weight, std=4.0)

    def forward(self, token: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        prediction, (h, c) = self.rnn(self.embed(token), (h, c))
        return prediction, h, c


class TransducerJoint(nn.Module):
    """frame and prediction [1, 1, WIDTH] -> logits [1, 1, 20]; token 0 is blank."""

    def __init__(self) -> None:
        super().__init__()
        self.frame, self.prediction = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.classes = nn.Linear(WIDTH, 20)
        self.frame.weight.data *= 3
        # As often as in speech: about every second frame gives a token.
        nn.init.normal_(self.classes.weight, std=2.0)
        self.classes.bias.data[0] = 8.0

    def forward(self, frame: Tensor, prediction: Tensor) -> Tensor:
        return self.classes(torch.tanh(self.frame(frame) + self.prediction(prediction)))


class TransducerSearch(nn.Module):
    """Greedy search with an RNN-T (Graves 2012): tokens of a frame until one is blank.

    x [1, T, 12] -> tokens [1 + U], the first one the blank that it begins with, and the frame of
    each. To be scripted: a loop that ends early in a loop over frames, and
    lists that grow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.predictor = TransducerEncoder(), TransducerPredictor()
        self.joint = TransducerJoint()
        self.most = 3  # tokens of one frame

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        encoded = self.encoder(x)
        token = torch.zeros(1, 1, dtype=torch.int64)
        h = torch.zeros(1, 1, encoded.size(2))
        prediction, h, c = self.predictor(token, h, h)
        tokens, frames = [token[0]], [torch.zeros(1, dtype=torch.int64)]
        for t in range(encoded.size(1)):
            for _ in range(self.most):
                logits = self.joint(encoded[:, t].unsqueeze(1), prediction)
                token = logits.argmax(dim=-1)
                if bool(token[0, 0] == 0):
                    break
                tokens.append(token[0])
                frames.append(torch.full((1,), t, dtype=torch.int64))
                prediction, h, c = self.predictor(token, h, c)
        return torch.cat(tokens), torch.cat(frames)


class Tacotron(nn.Module):
    """The decoder of Tacotron 2 (Shen et al. 2018): location-sensitive attention, stop token.

    memory [N, S, 12] of the encoder, most: int64[] steps -> mel [N, T, 8], gates [N, T],
    alignments [N, T, S]. To be scripted: a while loop and lists that grow.
    """

    MEL = 8

    def __init__(self) -> None:
        super().__init__()
        self.prenet = nn.Sequential(
            nn.Linear(self.MEL, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()
        )
        self.attention_rnn = nn.LSTMCell(WIDTH + 12, WIDTH)
        self.decoder_rnn = nn.LSTMCell(WIDTH + 12, WIDTH)
        self.query = nn.Linear(WIDTH, 8, bias=False)
        self.memory = nn.Linear(12, 8, bias=False)
        self.location = nn.Conv1d(2, 4, 7, padding=3, bias=False)
        self.place = nn.Linear(4, 8, bias=False)
        self.energy = nn.Linear(8, 1, bias=False)
        self.mel, self.gate = nn.Linear(WIDTH + 12, self.MEL), nn.Linear(WIDTH + 12, 1)
        # It forgets slowly, so that gates rise from step to step.
        self.decoder_rnn.bias_ih.data[WIDTH : 2 * WIDTH] += 4
        self.gate.weight.data *= -8
        self.gate.bias.data[0] = -0.1
        self.width = WIDTH
        self.mels = self.MEL

    def forward(self, memory: Tensor, most: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, length = memory.size(0), memory.size(1)
        keys = self.memory(memory)
        frame = torch.zeros(rows, self.mels)
        h, c = torch.zeros(rows, self.width), torch.zeros(rows, self.width)
        g, d = torch.zeros(rows, self.width), torch.zeros(rows, self.width)
        weights, total = torch.zeros(rows, length), torch.zeros(rows, length)
        context = torch.zeros(rows, memory.size(2))
        mels: list[Tensor] = []
        gates: list[Tensor] = []
        alignments: list[Tensor] = []
        going, step = True, 0
        while going and step < int(most):
            h, c = self.attention_rnn(torch.cat([self.prenet(frame), context], dim=1), (h, c))
            places = self.location(torch.stack([weights, total], dim=1)).transpose(1, 2)
            sums = self.query(h).unsqueeze(1) + self.place(places) + keys
            weights = torch.softmax(self.energy(torch.tanh(sums)).squeeze(-1), dim=1)
            total = total + weights
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            g, d = self.decoder_rnn(torch.cat([h, context], dim=1), (g, d))
            out = torch.cat([g, context], dim=1)
            frame, gate = self.mel(out), self.gate(out).squeeze(1)
            mels.append(frame)
            gates.append(gate)
            alignments.append(weights)
            step += 1
            going = bool((torch.sigmoid(gate) <= 0.5).any())
        return torch.stack(mels, dim=1), torch.stack(gates, dim=1), torch.stack(alignments, dim=1)
