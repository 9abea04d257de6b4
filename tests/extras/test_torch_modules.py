"""What may be given as a module: programs, compiled modules, modules that contain these."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import ostinato.torch  # noqa: E402
from ostinato.errors import UnsupportedError  # noqa: E402
from ostinato.torch import dynamo  # noqa: E402

pytestmark = pytest.mark.extras


def assert_alike(call: Any, module: Any, x: Any) -> None:
    """Results and gradients of parameters."""
    results = []
    for one in (module, call):
        module.zero_grad()
        y = one(x)
        y.square().sum().backward()
        results.append([y, *[p.grad for p in module.parameters()]])
    torch.testing.assert_close(*results)


def test_a_compiled_module_may_be_a_part_of_others() -> None:
    cell, x = torch.nn.GRUCell(4, 4), torch.randn(2, 4)
    part = ostinato.torch.compile(cell, x)
    whole = torch.nn.Sequential(part, torch.nn.Linear(4, 3))
    module = torch.nn.Sequential(cell, whole[1])
    assert_alike(whole, module, x)
    assert_alike(ostinato.torch.compile(whole, x), module, x)
    assert_alike(ostinato.torch.compile(part, x), cell, x)
    for backend in (dynamo.backend, "eager"):
        torch._dynamo.reset()
        assert_alike(torch.compile(whole, backend=backend, fullgraph=True), module, x)


def test_an_exported_program() -> None:
    module, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    call = ostinato.torch.compile(torch.export.export(module, (x,)), x)
    torch.testing.assert_close(call(x), module(x))
    call(x).sum().backward()
    assert all(p.grad is not None for p in call.parameters())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused_by_name() -> None:
    x = torch.randn(2, 4)
    traced = torch.jit.trace(torch.nn.Linear(4, 4), x)
    with pytest.raises(UnsupportedError, match=r"'1' is TorchScript.*TS2EPConverter"):
        ostinato.torch.compile(torch.nn.Sequential(torch.nn.Tanh(), traced), x)
    with pytest.raises(UnsupportedError, match="it is TorchScript"):
        ostinato.torch.compile(traced, x)


def test_a_refusal_logs_nothing_beside_its_message(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedError, match="same reduction dim"):
        ostinato.torch.compile(torch.nn.Linear(4, 3), torch.randn(2, 5))
    assert capfd.readouterr() == ("", "")
