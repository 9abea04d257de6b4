"""Random modules of PyTorch, as Python text: loops, branches, masks, views that are written.

Values of a module are vectors `[B, D]` and sequences `[T, B, D]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tools.fuzz.choosing import Chooser

STEPS, BATCH, WIDTH = 6, 3, 4

VECTORS = (
    *("torch.tanh({v} @ {W} + {b})", "torch.sigmoid({v}) * {v}", "F.relu({v} - {b})") * 2,
    *("{s}[-1]", "{s}.mean(0)", "{s}.amax(0)", "{s}[1]", "{s}[::2].sum(0)") * 2,
    *("{v}.roll(1, -1)", "{v}.flip(-1)", "{v}.cumsum(-1) * 0.3", "{v} + {v}", "{v} * {v}"),
    "torch.where({v} > 0.1, {v}, {v})",
    "{v}.masked_fill({v} < 0, 0.25)",
    "F.softmax({v}, -1)",
    "F.layer_norm({v}, (4,), {b})",
    "torch.einsum('tbd,bd->bd', {s}, {v}) * 0.3",
    "{v}.gather(1, torch.tensor([[0, 3, 1, 1], [2, 2, 0, 1], [3, 0, 0, 2]]))",
    "{v}[:, [2, 0, 3, 0]]",
    "{v}[torch.tensor([2, 0, 2])]",
    "torch.lerp({v}, {v}, 0.3)",
    "torch.addmm({b}, {v}, {W}, beta=0.5, alpha=0.7)",
    "{v}.clamp(-0.5, 0.8)",
    "torch.maximum({v}, {v})",
    "({v} @ {v}.T) @ {v} * 0.2",
    "torch.logsumexp({s}, 0) * 0.3",
    "F.glu(torch.cat([{v}, {v}], -1))",
    "{s}.std(0)",
    "torch.cat([{v}[:, :1], {v}[:, 1:]], 1)",
    "{s}.reshape(3, -1)[:, :4]",
    "{v}.sort(-1).values",
    "{v}.topk(2, -1).values.repeat(1, 2)",
    "{v}.unsqueeze(0).expand(2, -1, -1).prod(0)",
    "torch.stack({v}.unbind(1)[::-1], 1)",
    "{v}.norm(dim=-1, keepdim=True) * {b}",
    "torch.bmm({v}.unsqueeze(1), {s}.permute(1, 2, 0)).squeeze(1)[:, :4]",
    "{s}.cummax(0).values[2]",
    "F.gelu({v})",
    "{v}.tril() + {v}.triu(1) * 2",
    "torch.outer({b}, {b})[:3] * {v}",
    "torch.where(torch.arange(4) % 2 == 0, {v}, -{v})",
)
SEQUENCES = (
    *("torch.tanh({s} @ {W})", "{s} * {v}", "{s} + {v}", "{s}.flip(0)", "{s}.roll(1, 0)") * 2,
    "{s}.cumsum(0) * 0.2",
    "F.conv1d({s}.permute(1, 2, 0), {W}[:, :, None].expand(4, 4, 3), padding=1).permute(2, 0, 1)",
    "torch.where({s} > {v}, {s}, {v})",
    "{s}.cummax(0).values",
    "F.scaled_dot_product_attention(*[{s}.transpose(0, 1)] * 3, is_causal=True).transpose(0, 1)",
    "torch.softmax({s}, 0)",
    "F.pad({s}, (0, 0, 0, 0, 1, 0))[:-1]",
    "torch.stack([{v}, {v}, {v}, {v}, {v}, {v}])",
    "self.gru({s})[0]",
    "self.lstm({s})[0]",
    "torch.cat([{s}[3:], {s}[:3]])",
    "{s}.gather(0, torch.tensor([5, 1, 0, 3, 3, 2])[:, None, None].expand(6, 3, 4))",
    "{s}[torch.tensor([1, 1, 0, 5, 4, 2])]",
    "{s}.unfold(0, 2, 1).sum(-1).repeat(2, 1, 1)[:6]",
    "{s}.masked_fill(torch.arange(6)[:, None, None] > 3, 0.0)",
)
# Statements that write into `o`, a copy of a vector or of a sequence.
WRITES_OF_VECTORS = (
    "o[:, 0] = {v}[:, 1]",
    "o[0] = {b}",
    "o[:, 1:3] *= 0.5",
    "o.view(-1)[::2].mul_(0.5)",
    "o.masked_fill_({v} > 0, 0.1)",
    "o[{v} > 0] = 0.5",
    "o[[0, 2], [1, 3]] = {v}[[1, 0], [2, 2]]",
    "o.index_add_(1, torch.tensor([0, 2]), {v}[:, :2])",
    "o.index_copy_(0, torch.tensor([2, 0]), {v}[:2])",
    "o.scatter_add_(1, torch.tensor([[0, 0], [1, 3], [2, 2]]), {v}[:, :2])",
    "o.scatter_(1, torch.tensor([[0, 1], [1, 3], [2, 0]]), {v}[:, :2])",
    "o.transpose(0, 1)[0].zero_()",
    "o.T[1:3].add_({v}.T[:2])",
    "o.chunk(2, 1)[0].mul_(o.chunk(2, 1)[1].clone())",
    "o.diagonal().add_(1)",
    "o.add_({v}).tanh_()",
    "o.select(1, 2).copy_({v}.select(1, 0))",
    "o.narrow(1, 1, 2).sub_({v}.narrow(1, 0, 2))",
    "o[:, ::2], o[:, 1::2] = o[:, 1::2].clone(), o[:, ::2].clone()",
    "o.index_put_((torch.tensor([0, 0]), torch.tensor([1, 1])), {b}[:2], accumulate=True)",
    "o.unsqueeze(0)[0, 1] += {b}",
    "o.clamp_(-0.6, 0.9)",
)
WRITES_OF_SEQUENCES = (
    "o[0] = {v}",
    "o[1:] = o[1:] * 0.5 + o[:-1]",
    "o[:, 1].mul_(0.3)",
    "o[{s}[:, :, 0] > 0] = {b}",
    "o[torch.tensor([4, 0])] = {s}[1:3]",
    "o[1:5:2, :, 0] = {v}[:2, :3]",
    "o.transpose(0, 1)[1].add_({s}[:, 0])",
    "o.view(3, -1)[0].zero_()",
    "o.flatten(1)[2, 3:7] += 1.0",
    "o.permute(2, 0, 1)[0].copy_({s}.permute(2, 0, 1)[1])",
    "o.index_add_(0, torch.tensor([1, 1]), {s}[:2])",
    "for t in range(1, 6): o[t] = torch.tanh(o[t - 1] + {s}[t])",
    "for t in range(6): o[t, :, 0] += o[t, :, 1]",
    "for t in range(1, 6): o[t] += 0.5 * o[t - 1]",
    "for t in range(4, -1, -1): o[t] = o[t] * 0.5 + o[t + 1] @ {W}",
)


@dataclass
class Module(Chooser):
    """A module under construction. lines: of `forward`."""

    lines: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=lambda: {"v": [], "s": ["x"]})
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"a{self.count}"

    def filled(self, text: str, **own: str) -> str:
        """Text with values in place of `{v}`, `{s}`, and parameters of `{W}` and `{b}`."""
        found = text
        for key, names in {
            **self.values,
            "W": ["self.p", "self.q"],
            "b": ["self.b", "self.c"],
        }.items():
            while "{" + key + "}" in found:
                chosen = own[key] if key in own and self.chance(0.7) else str(self.choose(names))
                found = found.replace("{" + key + "}", chosen, 1)
        return found

    def put(self, kind: str, expression: str) -> None:
        name = self.name()
        self.lines.append(f"{name} = {expression}")
        self.values[kind].append(name)

    def simple(self) -> None:
        kind = self.choose("vvs")
        self.put(kind, self.filled(self.choose(VECTORS if kind == "v" else SEQUENCES)))

    def written(self) -> None:
        """A copy that is written, and maybe read through a view that was there before."""
        kind = self.choose("vs")
        name = self.name()
        source = self.filled("{" + kind + "}")
        self.lines.append(f"{name} = {source}.{self.choose(('clone()', 'clone()', 'mul(1.5)'))}")
        has_view = self.chance(0.4)
        if has_view:
            self.lines.append(f"{name}_view = {name}[1:]")
        for _ in range(self.choose((1, 2, 3))):
            writes = WRITES_OF_VECTORS if kind == "v" else WRITES_OF_SEQUENCES
            text = self.filled(self.choose(writes))
            self.lines.append(text.replace("o[", f"{name}[").replace("o.", f"{name}."))
        if has_view:
            self.put("v", f"{name}_view.sum(0)" if kind == "s" else f"{name}_view.sum(0) + {name}")
        self.values[kind].append(name)

    def loop(self) -> None:
        """A loop in Python over time, in either direction, some steps of which differ."""
        h, outs = self.name(), self.name()
        self.lines += [f"{h} = {self.filled('{v}')}", f"{outs} = []"]
        order = self.choose(("range(6)", "reversed(range(6))", "range(0, 6, 2)", "range(5)"))
        self.lines.append(f"for t in {order}:")
        self.lines.append(f"    u = {self.choose(('x[t]', self.filled('{s}') + '[t]'))}")
        for _ in range(self.choose((1, 1, 2))):
            update = self.filled(self.choose(VECTORS[:6] + VECTORS[16:33]), v=h)
            self.lines.append(f"    {h} = 0.5 * ({update}) + u")
        if self.chance(0.3):
            self.lines.append(f"    if t % 2: {h} = {h} * 0.5")
        if self.chance(0.3):
            self.lines.append(f"    {h} = torch.where(u > 0, {h}, u)")
        self.lines.append(f"    {outs}.append({h})")
        self.values["v"].append(h)
        self.put("v", f"torch.stack({outs}).sum(0) * 0.3")
        if order in ("range(6)", "reversed(range(6))"):
            self.put("s", f"torch.stack({outs})")

    def branch(self) -> None:
        """`torch.cond` of a sum."""
        v, w = self.filled("{v}"), self.filled("{v}")
        own = {"v": "h"}
        texts = [self._inner(self.choose(VECTORS[:6] + VECTORS[16:24]), **own) for _ in range(2)]
        one, other = (f"lambda h, g: {text} + 0 * g" for text in texts)
        decides = self.choose((f"{v}.sum() > 0", f"{v}.sum() < 0.3", "torch.tensor(True)"))
        self.put("v", f"torch.cond({decides}, {one}, {other}, ({v} * 1.0, {w} * 1.0))")

    def _inner(self, text: str, **own: str) -> str:
        """An expression of a body, which reads only what it is given, and parameters."""
        return self.filled(text.replace("{v}", own["v"]).replace("{s}", own.get("s", "h[None]")))

    def while_loop(self) -> None:
        """Steps that a counter ends."""
        update = self._inner(self.choose(VECTORS[:6] + VECTORS[16:24]), v="h")
        count = self.choose((1, 3, 4))
        body = f"lambda t, h: (t + 1, 0.5 * ({update}) + 0.1 * h)"
        start = f"(torch.tensor(0), {self.filled('{v}')} * 1.0)"
        self.put("v", f"while_loop(lambda t, h: t < {count}, {body}, {start})[1]")

    def scan(self) -> None:
        update = self._inner(self.choose(VECTORS[:6] + VECTORS[16:24]), v="h")
        name, back = self.name(), self.choose(("", ", reverse=True"))
        operands = self.filled("{v} * 1.0, {s} * 1.0")
        self.lines += [
            f"def {name}_step(h, u):",
            f"    r = 0.5 * ({update}) + u",
            "    return r, r * 2.0",
            f"{name}_last, {name} = scan({name}_step, {operands}{back})",
        ]
        self.values["v"].append(f"{name}_last")
        self.values["s"].append(name)


_HEAD = """
import torch
import torch.nn.functional as F
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = torch.nn.Parameter(torch.randn(4, 4) * 0.5)
        self.q = torch.nn.Parameter(torch.randn(4, 4) * 0.5)
        self.b = torch.nn.Parameter(torch.randn(4) * 0.5)
        self.c = torch.nn.Parameter(torch.randn(4) * 0.5)
        self.gru = torch.nn.GRU(4, 4)
        self.lstm = torch.nn.LSTM(4, 4)

    def forward(self, x):
"""


def random_module(seed: int) -> str:
    """The source of a class `Module`, whose call takes `x [T, B, D]`."""
    m = Module(np.random.default_rng(seed))
    m.put("v", m.filled("torch.tanh(x[0] @ {W})"))
    blocks: list[tuple[Callable[[], None], int]] = [(m.simple, 6), (m.written, 4), (m.loop, 2)]
    blocks += [(m.branch, 1), (m.while_loop, 1), (m.scan, 1)]
    choices: list[Any] = [block for block, weight in blocks for _ in range(weight)]
    for _ in range(int(m.random.integers(2, 7))):
        m.choose(choices)()
    results = [*m.values["v"][-2:], *[s for s in m.values["s"][-1:] if s != "x"]]
    m.lines.append(f"return {', '.join(results)},")
    return _HEAD + "".join(f"        {line}\n" for line in m.lines)
