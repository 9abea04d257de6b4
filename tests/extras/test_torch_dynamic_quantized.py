"""Modules that quantize_dynamic has made, compiled, beside PyTorch's own kernels."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

from torch import nn  # noqa: E402
from torch.ao import quantization  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402

import ostinato.torch  # noqa: E402
from ostinato.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.extras
LAYERS = {nn.LSTM, nn.GRU, nn.Linear}
CELLS = {nn.LSTMCell, nn.GRUCell, nn.RNNCell}
BY_CHANNEL = {nn.Linear: quantization.per_channel_dynamic_qconfig}


def narrow(module: Any, layers: Any = LAYERS, dtype: Any = torch.qint8) -> Any:
    return quantization.quantize_dynamic(module.eval(), layers, dtype=dtype)


def assert_alike(got: Any, expected: Any) -> None:
    pairs = zip(*map(torch.utils._pytree.tree_leaves, (got, expected)), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=1e-6)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv1d(8, 8, 3, padding=1)
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(32, 6, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Any, h: Any = None) -> Any:
        y, states = self.lstm(self.front(x.transpose(1, 2)).transpose(1, 2))
        y, h = self.gru(torch.relu(y), h)
        return self.out(y), h, states


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(8, 16), nn.GRUCell(16, 8), nn.RNNCell(8, 3)

    def forward(self, x: Any) -> Any:
        h, c = self.lstm(x)
        return self.rnn(self.gru(h)), c


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_layers_of_any_length_give_what_those_of_torch_give(dtype: Any) -> None:
    torch.manual_seed(0)
    module, x = narrow(Network(), dtype=dtype), torch.randn(2, 7, 8)
    compiled = ostinato.torch.compile(module, x, dynamic=True)
    # Ranges at which scales and zero points are found otherwise: one sign, nothing, very small.
    for given in (x, torch.randn(3, 5, 8), x.abs(), -x.abs(), torch.zeros(2, 3, 8), x * 1e-7):
        assert_alike(compiled(given), module(given))
    assert compiled.session.report()["fallback"] == []


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_cells_give_what_those_of_torch_give(dtype: Any) -> None:
    torch.manual_seed(1)
    module, x = narrow(Cells(), CELLS, dtype), torch.randn(4, 8)
    assert_alike(ostinato.torch.compile(module, x)(x), module(x))


def test_weights_may_have_a_scale_per_channel_and_may_be_loaded_again() -> None:
    torch.manual_seed(2)
    module, other = (narrow(nn.Sequential(nn.Linear(8, 16)), BY_CHANNEL) for _ in range(2))
    x = torch.randn(5, 8)
    compiled = ostinato.torch.compile(module, x)
    assert_alike(compiled(x), module(x))
    module.load_state_dict(other.state_dict())
    assert_alike(compiled(x), other(x))
    assert_alike(copy.deepcopy(compiled)(x), other(x))


def test_what_is_not_compiled_is_refused_by_name() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 4, batch_first=True)

        def forward(self, x: Any, lengths: Any) -> Any:
            return self.lstm(pack_padded_sequence(x, lengths, batch_first=True))[1]

    given = torch.randn(2, 7, 8), torch.tensor([7, 3])
    with pytest.raises(UnsupportedError, match=r"'LSTM'.*packed sequence.*padded tensor"):
        ostinato.torch.compile(narrow(Packed()), given)
    embedding = nn.Sequential(nn.Embedding(20, 8))
    config = quantization.float_qparams_weight_only_qconfig
    with pytest.raises(UnsupportedError, match=r"part '0' is .*Embedding.*in float"):
        ostinato.torch.compile(narrow(embedding, {nn.Embedding: config}), torch.tensor([[3]]))
