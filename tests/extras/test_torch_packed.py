"""Packed sequences of PyTorch around recurrent layers, and what stands between them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

from torch.nn.utils.rnn import (  # noqa: E402
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

import ostinato.torch  # noqa: E402
from ostinato.torch import dynamo  # noqa: E402

pytestmark = pytest.mark.extras
TOLERANCE = 1e-5


class Packed(torch.nn.Module):
    """A recurrent layer of packed rows."""

    def __init__(self, kind: str, is_sorted: bool, total: int | None = None, **settings: Any):
        super().__init__()
        self.layer = getattr(torch.nn, kind)(6, 8, **settings)
        self.is_sorted, self.total = is_sorted, total
        self.batch_first = settings.get("batch_first", False)

    def forward(self, x: Any, lengths: Any, *states: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, self.batch_first, self.is_sorted)
        given = states if len(states) > 1 else states[0] if states else None
        y, final = self.layer(packed, given)
        return *pad_packed_sequence(y, self.batch_first, 0.5, self.total), final


def results(call: Any, args: list[Any], parameters: list[Any]) -> list[Any]:
    """Results, and gradients for arguments and parameters."""
    given = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    found = torch.utils._pytree.tree_leaves(call(*given))
    sources = [a for a in given if a.requires_grad] + parameters
    loss = sum((y * y.sin()).sum() for y in found if y.is_floating_point())
    return [*found, *torch.autograd.grad(loss, sources)]


def same(module: Any, compiled: Any, args: list[Any]) -> None:
    own = [*module.parameters()]
    expected, got = results(module, args, own), results(compiled, args, own)
    for a, b in zip(expected, got, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert float((a - b).detach().abs().max()) <= TOLERANCE * float(a.detach().abs().max())


def arguments(
    batch_first: bool, lengths: list[int], states: tuple[int, ...] = (), rows: int = 1
) -> list[Any]:
    x = torch.randn(len(lengths), 7, 6)
    given = [torch.randn(rows, len(lengths), width) for width in states]
    return [x if batch_first else x.transpose(0, 1), torch.tensor(lengths), *given]


@pytest.mark.parametrize(
    ("kind", "is_sorted", "states", "settings"),
    [
        ("GRU", False, (), {"batch_first": True, "num_layers": 2}),
        ("GRU", True, (8,), {"bidirectional": True}),
        ("LSTM", False, (8, 8), {"batch_first": True, "bidirectional": True}),
        ("LSTM", True, (), {"bias": False}),
        ("LSTM", False, (), {"proj_size": 5, "bidirectional": True}),
        ("RNN", False, (8,), {"batch_first": True, "nonlinearity": "relu"}),
    ],
)
def test_values_and_gradients_are_those_of_torch(
    kind: str, is_sorted: bool, states: tuple[int, ...], settings: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    module = Packed(kind, is_sorted, **settings)
    rows = settings.get("num_layers", 1) * (1 + settings.get("bidirectional", False))
    args = arguments(module.batch_first, [6, 4, 2] if is_sorted else [2, 6, 4], states, rows)
    same(module, ostinato.torch.compile(module, args), args)


def test_any_sizes_and_lengths_compile_nothing() -> None:
    module = Packed("GRU", False, batch_first=True)
    compiled = ostinato.torch.compile(module, arguments(True, [2, 6, 4]), dynamic=True)
    for lengths in ([7, 1], [3, 3, 5, 2]):
        same(module, compiled, arguments(True, lengths))


@pytest.mark.parametrize(
    ("kind", "is_sorted", "states", "settings"),
    [
        ("GRU", False, (), {"batch_first": True}),
        ("LSTM", True, (8, 8), {"bidirectional": True}),
        ("RNN", False, (8,), {}),
    ],
)
def test_dynamo_keeps_the_graph_whole(
    kind: str, is_sorted: bool, states: tuple[int, ...], settings: dict[str, Any]
) -> None:
    torch._dynamo.reset()
    module = Packed(kind, is_sorted, **settings)
    compiled = torch.compile(module, backend=dynamo.backend, fullgraph=True)
    rows = 1 + settings.get("bidirectional", False)
    for lengths in ([6, 4, 2], [7, 5]):
        same(module, compiled, arguments(module.batch_first, lengths, states, rows))


def test_other_backends_break_the_graph_as_ever() -> None:
    torch._dynamo.reset()
    module, args = Packed("GRU", False), arguments(False, [2, 6])
    with pytest.raises(torch._dynamo.exc.Unsupported, match="pack_padded_sequence"):
        torch.compile(module, backend="eager", fullgraph=True)(*args)
    same(module, torch.compile(module, backend="eager"), args)


@pytest.mark.parametrize("total", [7, 9])
def test_rows_may_be_filled_up_to_a_length(total: int) -> None:
    module = Packed("GRU", True, total, batch_first=True)
    args = arguments(True, [5, 2])
    same(module, ostinato.torch.compile(module, args), args)


class Elements(torch.nn.Module):
    """Layers that compute with the elements of a packed sequence, and a loss of them."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.layer = torch.nn.Linear(6, 5), torch.nn.GRU(5, 8)
        self.after = torch.nn.Linear(8, 3)

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        packed = PackedSequence(self.before(packed.data), *packed[1:])
        y, _ = self.layer(packed)
        scores = PackedSequence(self.after(y.data), *y[1:])
        return scores.data.square().mean(), pad_packed_sequence(scores)[0]


def test_elements_of_packed_sequences() -> None:
    module, args = Elements(), arguments(False, [2, 7, 4])
    same(module, ostinato.torch.compile(module, args), args)


def test_a_list_of_rows() -> None:
    layer = torch.nn.LSTM(6, 8)

    def forward(a: Any, b: Any) -> Any:
        return pad_packed_sequence(layer(pack_sequence([a, b]))[0])[0]

    args = [torch.randn(5, 6), torch.randn(3, 6)]
    compiled = ostinato.torch.compile(forward, args)
    expected, got = results(forward, args, []), results(compiled, args, [])
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(a, b, rtol=TOLERANCE, atol=TOLERANCE)
